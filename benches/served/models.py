"""A model to be served: what its file declares, its recorded requests, and random ones."""

import json
import pathlib
import re
import tomllib
import zlib

import numpy
import onnx
from onnx import numpy_helper
from protocol import NAMES, from_json

CORPUS = pathlib.Path(__file__).resolve().parents[1] / "corpus" / "corpus.toml"
MOST_ROWS = 5
WORDS = ["a", "b", "cat", "Dog", "", "é", "a b", "1", "-2.5", "zz"]


def numpy_type(element):
    """numpy's name of an ONNX type; None if the protocol lacks the type."""
    if element == onnx.TensorProto.STRING:
        return "object"
    if element == onnx.TensorProto.BFLOAT16:
        return "bfloat16"
    try:
        name = numpy.dtype(onnx.helper.tensor_dtype_to_np_dtype(element)).name
    except (KeyError, TypeError):
        return None
    return name if name in NAMES else None


class Model:
    """A file, what it declares, and its recorded requests."""

    def __init__(self, path, label):
        self.path, self.label = path, label
        self.folder = path.parent if path.name == "model.onnx" else None
        network = onnx.load(path, load_external_data=False)
        held = {weight.name for weight in network.graph.initializer} | {w.values.name for w in network.graph.sparse_initializer}
        self.inputs = [value for value in network.graph.input if value.name not in held]
        self.outputs = [value.name for value in network.graph.output]
        nodes = list(network.graph.node)
        self.is_quantised = any(re.search("Quant|Integer|QLinear|QGemm", node.op_type) for node in nodes)
        # onnxruntime's DynamicQuantizeLSTM has a scale for the rows that one of its threads takes: its answers to several rows differ
        # with the number of threads, and only those to a single row are the file's.
        self.goes_by_row = any(node.op_type == "DynamicQuantizeLSTM" for node in nodes)
        self.labels = {}
        for node in nodes:
            for attribute in node.attribute if node.op_type == "ZipMap" else []:
                if attribute.name.startswith("classlabels"):
                    self.labels[node.output[0]] = [
                        one.decode() if isinstance(one, bytes) else one for one in onnx.helper.get_attribute_value(attribute)
                    ]
        # Lengths of free axes that the server was told, by their names.
        self.dims = {}
        # Relative and absolute, of the recorded answers; and relative to the largest number.
        self.tolerance, self.of_largest = (1e-3, 1e-4), None
        if self.folder is not None and (self.folder / "made").exists():
            listed = [one for one in tomllib.loads(CORPUS.read_text())["model"] if one["name"] == self.folder.name]
            self.of_largest = listed[0].get("tolerance", 1e-3) if listed else None
        self.is_test = self.folder is not None and (self.folder / "tolerance").exists()
        if self.is_test:
            self.tolerance = tuple(map(float, (self.folder / "tolerance").read_text().split()))
        self.is_refused = self.folder is not None and (self.folder / "refused").exists()

    def recorded(self):
        """Each recorded request with its answer: two lists of (name, array). The answer is None if it must be rejected."""
        if self.folder is None:
            beside = self.path.with_suffix(".json")
            records = json.loads(beside.read_text()) if beside.exists() else []
            for record in records if isinstance(records, list) else [records]:
                yield [[(one["name"], from_json(one)) for one in record.get(kind, [])] for kind in ("inputs", "outputs")]
            return
        for folder in sorted(path for path in self.folder.iterdir() if path.name.isdigit() and path.is_dir()):
            inputs = self.read(folder, "input", [value.name for value in self.inputs])
            yield inputs, None if self.is_refused else self.read(folder, "output", self.outputs)

    def read(self, folder, kind, names):
        """The arrays of a set; None if one of them is no tensor or has a type that the protocol lacks."""
        arrays = []
        for at, name in enumerate(names):
            file = folder / f"{kind}_{at}.pb"
            if not file.exists():
                return None
            tensor = onnx.TensorProto.FromString(file.read_bytes())
            if numpy_type(tensor.data_type) is None:
                return None
            arrays.append((name, numpy_helper.to_array(tensor)))
        return arrays

    def declared(self):
        """Name, numpy's type and axes of each input: a length, a name, or None for an axis without either. None if the protocol lacks one."""
        inputs = []
        for value in self.inputs:
            tensor = value.type.tensor_type
            kind = numpy_type(tensor.elem_type) if value.type.HasField("tensor_type") else None
            if kind is None:
                return None
            # Some exporters write a free axis as a negative length.
            axes = [axis.dim_value if axis.HasField("dim_value") and axis.dim_value >= 0 else axis.dim_param or None for axis in tensor.shape.dim]
            axes = [self.dims.get(axis, axis) for axis in axes]
            inputs.append((value.name, kind, axes if tensor.HasField("shape") else None))
        return inputs


def lengths(model):
    """The lengths that a recorded request gives to the free axes of a model, except to the first axis of the first input; by name."""
    inputs, _ = next(iter(model.recorded()), (None, None))
    declared = model.declared()
    if not inputs or not declared:
        return {}
    dims = {}
    for (_, _, axes), (_, array) in zip(declared, inputs):
        if axes is not None and len(axes) == array.ndim:
            dims.update({axis: length for axis, length in zip(axes, array.shape) if isinstance(axis, str)})
    first = declared[0][2]
    if first:
        dims.pop(first[0], None)
    return dims


class Draw:
    """Random requests for a model. `sample` is a recorded request: its values give the range of those that are drawn."""

    def __init__(self, model, sample, seed):
        self.dice = numpy.random.default_rng(zlib.crc32(f"{seed}/{model.label}".encode()))
        self.declared, self.sample = model.declared(), dict(sample or [])

    def maybe(self, chance):
        return self.dice.random() < chance

    def request(self):
        """A request within the declaration; None if an input has neither a shape nor a sample."""
        rows = int(self.dice.integers(1, MOST_ROWS, endpoint=True))
        # As the sample, or with a free first axis of another length, or with each free axis of another length.
        how = self.dice.choice(["sample", "rows", "free"], p=[0.2, 0.5, 0.3]) if self.sample else "free"
        lengths, request = {}, []
        first = next((x.shape[0] for x in self.sample.values() if x.ndim), None)
        for name, kind, axes in self.declared:
            sample = self.sample.get(name)
            if axes is None:
                if sample is None:
                    return None
                axes = list(sample.shape)
            if sample is not None and sample.ndim != len(axes):
                return None
            shape = [
                axis if isinstance(axis, int) else self.length(lengths, axis, at, sample, rows, how, first)
                for at, axis in enumerate(axes)
            ]
            request.append((name, self.values(kind, shape, sample)))
        return request

    def alike(self, request):
        """A request of the same shapes with other values."""
        return [(name, self.values(array.dtype.name, array.shape, self.sample.get(name))) for name, array in request]

    def length(self, lengths, axis, at, sample, rows, how, first):
        recorded = sample.shape[at] if sample is not None else None
        if axis is not None and axis in lengths:
            return lengths[axis]
        if how == "sample":
            length = recorded
        elif how == "rows":
            length = rows if at == 0 and recorded == first else recorded
        elif at == 0:
            length = rows
        else:
            length = recorded if recorded is not None and self.maybe(0.5) else int(self.dice.integers(1, 6))
        if axis is not None:
            lengths[axis] = length
        return length

    def values(self, kind, shape, sample):
        if sample is not None and sample.size:
            # A single number or a short list of integers often is a shape, an axis or a count.
            if list(sample.shape) == list(shape) and sample.ndim <= 1 and kind.startswith(("int", "uint")) and self.maybe(0.7):
                return sample
            pool = sample.ravel()
            if kind not in ("bool", "object"):
                with numpy.errstate(all="ignore"):
                    pool = pool[numpy.isfinite(pool.astype(numpy.float64))]
            if pool.size:
                low, high = (pool.min(), pool.max()) if kind.startswith("float") else (None, None)
                if low is not None and float(low) < float(high) and self.maybe(0.5):
                    return self.dice.uniform(float(low), float(high), shape).astype(kind)
                return self.dice.choice(pool, shape) if kind != "object" else self.texts(shape, list(pool))
        if kind == "object":
            return self.texts(shape, WORDS)
        if kind == "bool":
            return self.dice.integers(0, 2, shape).astype(bool)
        return (self.dice.normal(size=shape) if "float" in kind else self.dice.integers(0, 4, shape)).astype(kind)

    def texts(self, shape, among):
        count = int(numpy.prod(shape))
        return numpy.array([among[i] for i in self.dice.integers(0, len(among), count)] + [None], object)[:-1].reshape(shape)
