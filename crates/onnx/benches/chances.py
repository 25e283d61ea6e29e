"""What the programs that draw nodes and graphs by chance share: a case, how onnxruntime answers it, and how it is written.

draws_ml.py, draws_more.py and draws_graphs.py stand on this. Each has families, as draws.py has; a family gives a case.
With EMPTY=1 lengths may be zero; with ODD=1 numbers may be none, or not finite; with REASONS=1 it is said what onnxruntime refuses.
"""

import json
import os
import pathlib
import shutil
import signal
import sys
import warnings

import numpy as np
import onnx
import onnxruntime
from cases import operators, write
from draws import Dice as Plain
from onnx import TensorProto as T
from onnx import helper, numpy_helper

warnings.filterwarnings("ignore")

f32 = lambda *numbers: np.array(*numbers, np.float32)
i64 = lambda *numbers: np.array(*numbers, np.int64)
NAN = float("nan")
# Those that a request can bring.
KINDS = [np.float32, np.float64, np.float16, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
SIGNED = [np.int8, np.int16, np.int32, np.int64]
UNSIGNED = [np.uint8, np.uint16, np.uint32, np.uint64]


def element(kind):
    return helper.np_dtype_to_tensor_dtype(np.dtype(kind))


class Dice(Plain):
    """Chance, with tensors of every type up to its ends."""

    def numbers(self, *shape, kind=np.float32, low=-3, high=3):
        x = super().numbers(*shape, kind=kind, low=low, high=high)
        # ODD=1 puts what is no number, or no finite one, among what would be (at most one in a case is likely).
        if os.environ.get("ODD") and x.size and np.issubdtype(kind, np.floating) and self.maybe(0.3):
            x.ravel()[self.randrange(x.size)] = self.choice([NAN, np.inf, -np.inf, -0.0, 1e-42, 1e30])
        return x

    def shape(self, rank, most=6):
        # EMPTY=1 draws lengths of zero.
        least = 0 if os.environ.get("EMPTY") and self.maybe(0.3) else 1
        return [self.randint(least, most) for _ in range(rank)]

    def whole(self, *shape, kind=np.int64):
        info = np.iinfo(kind)
        source = np.random.default_rng(self.getrandbits(32))
        return source.integers(info.min, info.max, shape, dtype=kind, endpoint=True)

    def words(self, *shape, among=("a", "b", "cat", "Dog", "", "é", "a b", "1", "-2.5", "zz")):
        count = int(np.prod(shape))
        return np.array([self.choice(among) for _ in range(count)], object).reshape(shape)

    def signed(self, axis, rank):
        return axis - rank if self.maybe() else axis

    def part(self, whole, least=0):
        """A shape that is broadcast to `whole`."""
        return [1 if self.maybe(0.3) else n for n in whole][self.randint(0, len(whole) - least) :]


class Case:
    """Nodes with what a request brings (`given`), what the file holds (`held`), and the names of outputs."""

    def __init__(self, nodes, given, outputs, held=None, opset=20, ml=3, tolerance=(1e-4, 1e-4), free=None, feeds=None, kinds=None, twin=None, batch=False, functions=()):
        self.nodes, self.given, self.outputs, self.held, self.opset, self.ml = nodes, given, outputs, held or {}, opset, ml
        # Other values for onnxruntime, where it takes maps; types of inputs beyond those of numpy; "rows" where the first length alone is free.
        self.tolerance, self.free, self.feeds, self.kinds = tolerance, free, feeds, kinds or {}
        # The type of a graph that may be computed in float32 where there is no kernel for it; whether its rows may share a batch.
        self.twin, self.batch, self.functions = twin, batch, list(functions)


def one(dice, operator, values, attributes, outputs, opset=20, domain="", chance=0.3, **more):
    """A single node, whose arguments but the first are constants or come with the request."""
    while values and list(values.values())[-1] is None:
        values.popitem()
    names = [key if value is not None else "" for key, value in values.items()]
    values = {key: np.asarray(value) for key, value in values.items() if value is not None}
    first = next(iter(values), None)
    given = {key: value for key, value in values.items() if key == first or dice.maybe(chance)}
    held = {key: value for key, value in values.items() if key not in given}
    outputs = outputs.split()
    return Case([helper.make_node(operator, names, [name for name in outputs], domain=domain, **attributes)], given, outputs, held, opset, **more)


class Slow(Exception):
    pass


def late(*_):
    raise Slow


def held_as(dice, x, key):
    """A constant by its bytes, or number by number in the field of its type."""
    x = np.asarray(x)
    if x.dtype.kind in "OU" or dice.random() < 0.7:
        return numpy_helper.from_array(x.astype(object) if x.dtype.kind == "U" else x, key)
    return helper.make_tensor(key, element(x.dtype), x.shape, x.ravel().tolist())


def model_of(case, name, types, free, seed=0):
    dice = Plain(f"{name}/{seed}")
    def info(key, x):
        shape = x.shape
        if free == "rows":
            shape = ["rows", *x.shape[1:]] if x.ndim else []
        elif free:
            shape = [f"{key}{i}" for i in range(x.ndim)]
        kind = T.STRING if x.dtype.kind in "OU" else element(x.dtype)
        return case.kinds.get(key) or helper.make_tensor_value_info(key, kind, shape)

    given = [info(key, x) for key, x in case.given.items()]
    made = [types[key] if types else onnx.ValueInfoProto(name=key) for key in case.outputs]
    held = []
    for key, x in case.held.items():
        held.append(held_as(dice, x, key))
    # Old files list their constants among the inputs.
    old = case.opset <= 10 and not case.functions and dice.random() < 0.4
    if old:
        given += [helper.make_tensor_value_info(key, T.STRING if np.asarray(x).dtype.kind in "OU" else element(np.asarray(x).dtype), np.asarray(x).shape) for key, x in case.held.items()]
    graph = helper.make_graph(case.nodes, name, given, made, held)
    sets = [helper.make_opsetid("", case.opset), helper.make_opsetid("ai.onnx.ml", case.ml)]
    if any(node.domain == "com.microsoft" for node in case.nodes):
        sets.append(helper.make_opsetid("com.microsoft", 1))
    if case.functions:
        sets.append(helper.make_opsetid("own", 1))
    return helper.make_model(graph, opset_imports=sets, ir_version=3 if old else 10, functions=case.functions)


def answers(model, feeds, level=onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = level
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def twin(model, kind):
    """The same graph in float32."""
    other, number = onnx.ModelProto(), element(kind)
    other.CopyFrom(model)

    def narrow(tensor):
        if tensor.data_type == number:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name))

    for tensor in other.graph.initializer:
        narrow(tensor)
    for attribute in (a for node in other.graph.node for a in node.attribute if a.HasField("t")):
        narrow(attribute.t)
    for value in [*other.graph.input, *other.graph.output]:
        if value.type.tensor_type.elem_type == number:
            value.type.tensor_type.elem_type = T.FLOAT
    return other


def batches(folder, name, model, case, found):
    """The case as pipelines.py writes one, which is run in batches of several requests."""
    names = {"float32": "FP32", "float64": "FP64"}
    rows = len(next(iter(case.given.values())))
    if any(x.dtype.name not in names or x.ndim == 0 or len(x) != rows or not np.isfinite(x).all() for x in [*case.given.values(), *found]):
        return
    say = lambda key, x: {"name": key, "datatype": names[x.dtype.name], "shape": list(x.shape), "data": [float(str(n)) for n in x.ravel()]}
    to = folder / "batches"
    to.mkdir(exist_ok=True)
    (to / f"{name}.onnx").write_bytes(model.SerializeToString())
    record = {"inputs": [say(*one) for one in case.given.items()], "outputs": [say(key, x) for key, x in zip(case.outputs, found)]}
    (to / f"{name}.json").write_text(json.dumps(record) + "\n")


def type_of(key, x):
    if isinstance(x, list):
        if not x:
            return onnx.ValueInfoProto(name=key)
        inner = helper.make_tensor_type_proto(T.STRING if x[0].dtype.kind in "OU" else element(x[0].dtype), None)
        return helper.make_value_info(key, helper.make_sequence_type_proto(inner))
    return helper.make_tensor_value_info(key, T.STRING if x.dtype.kind in "OU" else element(x.dtype), None)


def columns(model, x):
    """A sequence of maps as a column for each key, in the order of the labels."""
    for node in model.graph.node:
        if node.op_type == "ZipMap":
            labels = [helper.get_attribute_value(a) for a in node.attribute if a.name.startswith("classlabels")][0]
            labels = [label.decode() if isinstance(label, bytes) else label for label in labels]
            return f32([[row[label] for label in labels] for row in x]).reshape(len(x), len(labels))
    return x


def maps(model, key):
    """The type of an output that is a sequence of maps."""
    of_texts = any(a.name == "classlabels_strings" for node in model.graph.node if key in node.output for a in node.attribute)
    inner = onnx.TypeProto()
    inner.map_type.key_type = T.STRING if of_texts else T.INT64
    inner.map_type.value_type.tensor_type.elem_type = T.FLOAT
    return helper.make_value_info(key, helper.make_sequence_type_proto(inner))


def emit(folder, name, case, dice):
    """Writes a case; what onnxruntime says where it has no answer."""
    free = case.free if case.free is not None else dice.maybe()
    signal.signal(signal.SIGALRM, late)
    signal.alarm(10)
    try:
        model = model_of(case, name, None, free)
        try:
            found = answers(model, case.feeds or case.given)
        except Exception as error:
            # What onnxruntime has no kernel for in float64 and float16 it computes in float32.
            if "NOT_IMPLEMENTED" not in str(error) or case.twin is None:
                raise
            narrow = lambda x: x.astype(np.float32) if x.dtype == case.twin else x
            found = answers(twin(model, case.twin), {key: narrow(x) for key, x in case.given.items()})
            found = [x.astype(case.twin) if x.dtype == np.float32 else x for x in found]
            case.tolerance = max(case.tolerance, (1e-3, 1e-3))
    except Exception as error:
        return f"{type(error).__name__}: {error}".replace("\n", " ")
    finally:
        signal.alarm(0)
    types = {}
    for at, (key, x) in enumerate(zip(case.outputs, found)):
        if isinstance(x, list) and x and isinstance(x[0], dict):
            found[at], types[key] = columns(model, x), maps(model, key)
        else:
            found[at] = x if isinstance(x, list) else np.asarray(x)
            types[key] = type_of(key, found[at])
    model = model_of(case, name, types, free)
    at = folder / name
    (at / "0").mkdir(parents=True, exist_ok=True)
    (at / "model.onnx").write_bytes(model.SerializeToString())
    (at / "operators").write_text("\n".join(sorted(operators(model.graph, set()))) + "\n")
    (at / "tolerance").write_text(f"{case.tolerance[0]} {case.tolerance[1]}\n")
    put = lambda x: np.asarray(x, object) if isinstance(x, np.ndarray) and x.dtype.kind == "U" else x
    for i, x in enumerate(case.given.values()):
        write(put(x), at / "0" / f"input_{i}")
    for i, x in enumerate(found):
        write([put(e) for e in x] if isinstance(x, list) else put(x), at / "0" / f"output_{i}")
    if case.batch and free == "rows":
        batches(folder, name, model, case, found)
    return None


def apart(work):
    """What `work` returns, done in a process of its own: some nodes end onnxruntime."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reads)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            why = work()
            os.write(writes, b"fine" if why is None else why[:3000].encode())
        except Exception as error:
            os.write(writes, f"here: {type(error).__name__}: {error}"[:3000].encode())
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads, "rb") as pipe:
        said = pipe.read().decode(errors="replace")
    os.waitpid(child, 0)
    return None if said == "fine" else said or "it ends onnxruntime"


def main(families, doc):
    if len(sys.argv) < 3:
        sys.exit(doc)
    folder, count, seed = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "1"
    wanted = sys.argv[4:]
    families = [family for family in families if not wanted or family.__name__ in wanted]
    made, refused, reasons = {}, {}, {}
    for number in range(count):
        draw = families[number % len(families)]
        dice = Dice(f"{seed}/{draw.__name__}/{number}")
        case = draw(dice)
        name = f"{draw.__name__}_{case.nodes[-1 if len(case.nodes) > 1 else 0].op_type.lower()}_{seed}_{number}"
        why = apart(lambda: emit(folder, name, case, dice))
        into = made if why is None else refused
        into[draw.__name__] = into.get(draw.__name__, 0) + 1
        if why:
            shutil.rmtree(folder / name, ignore_errors=True)
            reasons.setdefault(f"{draw.__name__} {case.nodes[0].op_type}", why[:230])
    print(f"{sum(made.values())} cases in {folder}; onnxruntime refused {sum(refused.values())} others")
    for family in families:
        key = family.__name__
        print(f"  {key}: {made.get(key, 0)}, refused {refused.get(key, 0)}")
    if os.environ.get("REASONS"):
        for key, why in reasons.items():
            print("   ", key, "::", why)
