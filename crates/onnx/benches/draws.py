"""Writes nodes with attributes and shapes by chance, beside onnxruntime's answers: python3 crates/onnx/benches/draws.py FOLDER COUNT [SEED]

Each case is one node, whose weights are constants or inputs by chance, and whose shapes are declared or free. What onnxruntime refuses is
left out. Run them by cargo bench --bench onnx -- cases FOLDER.
"""

import pathlib
import random
import shutil
import sys

import numpy as np
from edges import T, emit, f32, helper, i64, operators

FAMILIES = []
TYPES = {np.float32: T.FLOAT, np.int64: T.INT64, np.int32: T.INT32, np.uint8: T.UINT8, np.int8: T.INT8, np.bool_: T.BOOL, np.float64: T.DOUBLE}


def family(draw):
    FAMILIES.append(draw)
    return draw


class Dice(random.Random):
    """Chance, and tensors by it."""

    def numbers(self, *shape, kind=np.float32, low=-3, high=3):
        source = np.random.default_rng(self.getrandbits(32))
        if np.issubdtype(kind, np.floating):
            return source.uniform(low, high, shape).astype(kind)
        return source.integers(low, high + 1, shape).astype(kind)

    def shape(self, rank, most=6):
        return [self.randint(1, most) for _ in range(rank)]

    def maybe(self, chance=0.5):
        return self.random() < chance


# Each gives: operator, inputs by name and value in order (None is left out), attributes, outputs by name and type, opset.


def windows(dice, rank, attributes, pooled=False):
    kernel = [dice.randint(1, 4) for _ in range(rank)]
    attributes["kernel_shape"] = kernel
    if dice.maybe(0.7):
        attributes["strides"] = [dice.randint(1, 3) for _ in range(rank)]
    if dice.maybe(0.3):
        attributes["dilations"] = [dice.randint(1, 2) for _ in range(rank)]
    way = dice.choice(["none", "pads", "pads", "SAME_UPPER", "SAME_LOWER", "VALID"])
    if way.startswith("SAME") and pooled:
        # As many places as strides are in the input, says ONNX, and no padding below none: onnxruntime's pools forget the dilation, and
        # leave out pixels before a window that is shorter than its stride.
        attributes.pop("dilations", None)
        if any(s > k for s, k in zip(attributes.get("strides", []), kernel)):
            way = "none"
    if way == "pads":
        attributes["pads"] = [dice.randint(0, k - 1 if pooled else k) for k in kernel * 2]
    elif way != "none":
        attributes["auto_pad"] = way
    return kernel


@family
def conv(dice):
    rank, groups, attributes = dice.choice([1, 2, 2, 2, 3]), dice.choice([1, 1, 2, 3]), {}
    kernel = windows(dice, rank, attributes)
    inside, outside = dice.choice([1, 1, 2, 5]), dice.choice([1, 2, 3, 17])
    x = dice.numbers(dice.randint(1, 5), groups * inside, *dice.shape(rank, 20))
    w = dice.numbers(groups * outside, inside, *kernel)
    attributes["group"] = groups
    return "Conv", {"x": x, "w": w, "b": dice.numbers(groups * outside) if dice.maybe() else None}, attributes, {"y": T.FLOAT}, 20


@family
def conv_transpose(dice):
    rank, groups, attributes = dice.choice([1, 2, 2, 3]), dice.choice([1, 1, 2]), {}
    kernel = windows(dice, rank, attributes)
    inside, outside = dice.choice([1, 2, 4]), dice.choice([1, 2, 3])
    x = dice.numbers(dice.randint(1, 3), groups * inside, *dice.shape(rank, 8))
    w = dice.numbers(groups * inside, outside, *kernel)
    attributes["group"] = groups
    strides = attributes.get("strides", [1] * rank)
    # Where a stride leaps over places, "same" is as many places as strides and inputs multiply to; onnxruntime gives fewer.
    if any(s > k for s, k in zip(strides, kernel)):
        attributes.pop("auto_pad", None)
    if dice.maybe(0.4):
        attributes["output_padding"] = [dice.randint(0, s - 1) for s in strides]
    elif dice.maybe(0.3):
        attributes["output_shape"] = [n * s + dice.randint(0, 1) for n, s in zip(x.shape[2:], strides)]
    return "ConvTranspose", {"x": x, "w": w, "b": dice.numbers(groups * outside) if dice.maybe() else None}, attributes, {"y": T.FLOAT}, 20


@family
def pool(dice):
    rank, attributes = dice.choice([1, 2, 2, 2, 3]), {}
    kind = dice.choice(["MaxPool", "AveragePool", "LpPool"])
    windows(dice, rank, attributes, pooled=True)
    if dice.maybe(0.4):
        attributes["ceil_mode"] = 1
    outputs = {"y": T.FLOAT}
    if kind == "AveragePool" and dice.maybe():
        attributes["count_include_pad"] = 1
    if kind == "LpPool":
        attributes["p"] = dice.choice([1, 2, 3])
    if kind == "MaxPool" and dice.maybe(0.4):
        outputs["i"] = T.INT64
        # onnxruntime's places along the other order are wrong for volumes.
        attributes["storage_order"] = 0
    # A window that is larger than the input is refused here; onnxruntime gives a tensor without elements.
    reaches = [(k - 1) * d + 1 for k, d in zip(attributes["kernel_shape"], attributes.get("dilations", [1] * rank))]
    x = dice.numbers(dice.randint(1, 3), dice.randint(1, 3), *(dice.randint(reach, 14) for reach in reaches))
    return kind, {"x": x}, attributes, outputs, 20


@family
def resize(dice):
    rank = dice.choice([1, 2, 2])
    x = dice.numbers(1, dice.randint(1, 2), *dice.shape(rank, 9))
    mode = dice.choice(["nearest", "linear", "cubic"]) if rank == 2 else dice.choice(["nearest", "linear"])
    way = dice.choice(["half_pixel", "asymmetric", "pytorch_half_pixel", "align_corners", "half_pixel_symmetric"])
    # Where a place falls between two, onnxruntime's floats decide, and ours are exact.
    if mode == "nearest" and way == "half_pixel_symmetric":
        way = "half_pixel"
    attributes = {"mode": mode, "coordinate_transformation_mode": way}
    if mode == "nearest":
        attributes["nearest_mode"] = dice.choice(["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
    if mode == "cubic" and dice.maybe():
        attributes["cubic_coeff_a"] = dice.choice([-0.5, -0.75])
        attributes["exclude_outside"] = dice.choice([0, 1])
    if dice.maybe() or way == "half_pixel_symmetric":
        sizes = i64([*x.shape[:2], *(dice.randint(1, 15) for _ in range(rank))])
        return "Resize", {"x": x, "r": None, "s": None, "z": sizes}, attributes, {"y": T.FLOAT}, 20
    scales = f32([1, 1, *(dice.choice([0.5, 0.6, 1.5, 2, 2.5, 3, 1 / 3]) for _ in range(rank))])
    return "Resize", {"x": x, "r": None, "s": scales}, attributes, {"y": T.FLOAT}, 20


@family
def pad(dice):
    rank = dice.randint(1, 4)
    x, mode = dice.numbers(*dice.shape(rank)), dice.choice(["constant", "constant", "reflect", "edge", "wrap"])
    most = lambda n: n - 1 if mode == "reflect" else n
    pads = [dice.randint(0, most(n)) for n in x.shape * 2]
    if mode == "constant" and dice.maybe(0.3):
        pads = [dice.randint(-((n - 1) // 2), 2) for n in x.shape * 2]
    return "Pad", {"x": x, "p": i64(pads), "v": f32(dice.randint(-2, 2)) if mode == "constant" else None}, {"mode": mode}, {"y": T.FLOAT}, 19


@family
def slices(dice):
    rank = dice.randint(1, 3)
    x = dice.numbers(*dice.shape(rank, 8))
    axes = dice.sample(range(rank), dice.randint(1, rank))
    ends = lambda: i64([dice.choice([dice.randint(-10, 10), 2**62, -(2**62)]) for _ in axes])
    steps = i64([dice.choice([1, 1, 2, 3, -1, -2, -5]) for _ in axes])
    signed = i64([axis - rank if dice.maybe() else axis for axis in axes])
    return "Slice", {"x": x, "s": ends(), "e": ends(), "a": signed, "t": steps}, {}, {"y": T.FLOAT}, 17


@family
def reduce(dice):
    rank = dice.randint(1, 4)
    kinds = ["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare"]
    kind = dice.choice(kinds)
    integers = kind in ("Sum", "Max", "Min", "Prod") and dice.maybe(0.3)
    number = np.int32 if integers else np.float32
    x = dice.numbers(*dice.shape(rank), kind=number, low=0 if kind == "LogSum" else -3)
    axes = dice.sample(range(rank), dice.randint(0, rank))
    attributes = {"keepdims": dice.choice([0, 1]), "noop_with_empty_axes": dice.choice([0, 1])}
    axes = i64([axis - rank if dice.maybe() else axis for axis in axes]) if axes or dice.maybe() else None
    return f"Reduce{kind}", {"x": x, "a": axes}, attributes, {"y": TYPES[number]}, 18


@family
def arg(dice):
    rank = dice.randint(1, 4)
    x = dice.numbers(*dice.shape(rank), kind=np.int32, low=0, high=3).astype(np.float32)
    attributes = {"axis": dice.randint(-rank, rank - 1), "keepdims": dice.choice([0, 1]), "select_last_index": dice.choice([0, 1])}
    return dice.choice(["ArgMax", "ArgMin"]), {"x": x}, attributes, {"y": T.INT64}, 13


@family
def gather(dice):
    rank = dice.randint(1, 4)
    x = dice.numbers(*dice.shape(rank))
    axis = dice.randint(0, rank - 1)
    n = x.shape[axis]
    attributes = {"axis": axis - rank if dice.maybe() else axis}
    if dice.maybe():
        index = dice.numbers(*dice.shape(dice.randint(0, 2)), kind=dice.choice([np.int64, np.int32]), low=-n, high=n - 1)
        return "Gather", {"x": x, "i": index}, attributes, {"y": T.FLOAT}, 13
    shape = [dice.randint(1, n) if i != axis else dice.randint(1, 6) for i, n in enumerate(x.shape)]
    index = dice.numbers(*shape, kind=np.int64, low=-n, high=n - 1)
    return "GatherElements", {"x": x, "i": index}, attributes, {"y": T.FLOAT}, 13


@family
def gather_nd(dice):
    rank = dice.randint(2, 4)
    x = dice.numbers(*dice.shape(rank, 4))
    shared = dice.randint(0, rank - 2)
    deep = dice.randint(1, rank - shared)
    outer = [*x.shape[:shared], *dice.shape(dice.randint(0 if shared else 1, 2), 3)]
    index = np.stack([dice.numbers(*outer, kind=np.int64, low=-n, high=n - 1) for n in x.shape[shared : shared + deep]], axis=-1)
    return "GatherND", {"x": x, "i": index}, {"batch_dims": shared}, {"y": T.FLOAT}, 13


@family
def scatter(dice):
    rank = dice.randint(1, 3)
    x = dice.numbers(*dice.shape(rank, 5))
    axis = dice.randint(0, rank - 1)
    how = dice.choice(["none", "add", "mul", "max", "min"])
    shape = [dice.randint(1, n) for n in x.shape]
    n = x.shape[axis]
    index = dice.numbers(*shape, kind=np.int64, low=-n, high=n - 1)
    if how == "none":
        # Whoever comes last wins, which nobody promises: each place once.
        shape[axis] = min(shape[axis], n)
        index = np.argsort(dice.numbers(*[n if i == axis else m for i, m in enumerate(shape)]), axis=axis)
        index = np.take(index, range(shape[axis]), axis=axis).astype(np.int64)
    return "ScatterElements", {"x": x, "i": index, "u": dice.numbers(*index.shape)}, {"axis": axis, "reduction": how}, {"y": T.FLOAT}, 18


@family
def scatter_nd(dice):
    rank = dice.randint(1, 3)
    x = dice.numbers(*dice.shape(rank, 5))
    deep, how = dice.randint(1, rank), dice.choice(["none", "add", "mul", "max", "min"])
    places = list(np.ndindex(*x.shape[:deep]))
    some = dice.sample(places, dice.randint(1, len(places))) if how == "none" else [dice.choice(places) for _ in range(4)]
    index = i64(some)
    return "ScatterND", {"x": x, "i": index, "u": dice.numbers(len(some), *x.shape[deep:])}, {"reduction": how}, {"y": T.FLOAT}, 18


@family
def top(dice):
    rank = dice.randint(1, 3)
    x = dice.numbers(*dice.shape(rank), kind=dice.choice([np.float32, np.int64]), low=0, high=4)
    axis = dice.randint(-rank, rank - 1)
    attributes = {"axis": axis, "largest": dice.choice([0, 1])}
    return "TopK", {"x": x, "k": i64([dice.randint(0, x.shape[axis])])}, attributes, {"y": TYPES[x.dtype.type], "i": T.INT64}, 11


@family
def sums(dice):
    rank = dice.randint(1, 3)
    x = dice.numbers(*dice.shape(rank), kind=dice.choice([np.float32, np.int64]))
    attributes = {"exclusive": dice.choice([0, 1]), "reverse": dice.choice([0, 1])}
    return "CumSum", {"x": x, "a": i64(dice.randint(-rank, rank - 1))}, attributes, {"y": TYPES[x.dtype.type]}, 14


@family
def triangle(dice):
    x = dice.numbers(*dice.shape(dice.randint(2, 4)), kind=dice.choice([np.float32, np.int64]))
    return "Trilu", {"x": x, "k": i64(dice.randint(-5, 5)) if dice.maybe() else None}, {"upper": dice.choice([0, 1])}, {"y": TYPES[x.dtype.type]}, 14


@family
def broadcast(dice):
    whole = dice.shape(dice.randint(1, 4))
    part = lambda: [1 if dice.maybe(0.3) else n for n in whole][dice.randint(0, len(whole) - 1) :]
    kind = dice.choice([np.float32, np.float32, np.int32, np.int64])
    operator = dice.choice(["Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Mod", "Less", "Equal", "GreaterOrEqual"])
    low = 1 if operator in ("Div", "Mod") and kind != np.float32 else -4
    x, z = dice.numbers(*part(), kind=kind, low=-9, high=9), dice.numbers(*part(), kind=kind, low=low, high=4)
    attributes = {"fmod": 1} if operator == "Mod" and (kind == np.float32 or dice.maybe()) else {}
    if operator == "Pow":
        x, z = np.abs(x), np.abs(z)
    out = T.BOOL if operator in ("Less", "Equal", "GreaterOrEqual") else TYPES[kind]
    return operator, {"x": x, "z": z}, attributes, {"y": out}, 18


@family
def where(dice):
    whole = dice.shape(dice.randint(1, 4))
    part = lambda: [1 if dice.maybe(0.3) else n for n in whole][dice.randint(0, len(whole) - 1) :]
    kind = dice.choice([np.float32, np.int64])
    return "Where", {"c": dice.numbers(*part(), low=-1, high=1) > 0, "x": dice.numbers(*part(), kind=kind), "z": dice.numbers(*part(), kind=kind)}, {}, {"y": TYPES[kind]}, 16


@family
def product(dice):
    rows, terms, columns = dice.shape(3, 9)
    stack = dice.shape(dice.randint(0, 2), 3)
    part = lambda: [1 if dice.maybe(0.3) else n for n in stack][dice.randint(0, len(stack)) :]
    x, w = [*part(), rows, terms], [*part(), terms, columns]
    if dice.maybe(0.1):
        x = [terms]
    elif dice.maybe(0.1):
        w = [terms]
    return "MatMul", {"x": dice.numbers(*x), "w": dice.numbers(*w)}, {}, {"y": T.FLOAT}, 13


@family
def gemm(dice):
    rows, terms, columns = dice.shape(3, 20)
    turned = [dice.choice([0, 1]), dice.choice([0, 1])]
    x, w = [rows, terms], [terms, columns]
    c = dice.choice([None, [columns], [1, columns], [rows, 1], [rows, columns], [1], []])
    attributes = {"transA": turned[0], "transB": turned[1], "alpha": dice.choice([1.0, 0.5]), "beta": dice.choice([1.0, 2.0, 0.0])}
    shape = lambda s, t: s[::-1] if t else s
    return "Gemm", {"x": dice.numbers(*shape(x, turned[0])), "w": dice.numbers(*shape(w, turned[1])),
                    "c": None if c is None else dice.numbers(*c)}, attributes, {"y": T.FLOAT}, 13


@family
def einsum(dice):
    text = dice.choice(["ij,jk->ik", "bij,bjk->bik", "bhqd,bhkd->bhqk", "ij->ji", "ii->i", "ij->", "i,j->ij", "...ij,...jk->...ik", "bij,kj->bik", "ij,ij->i", "ijk,k->ij"])
    sizes = {letter: dice.randint(1, 5) for letter in "bhijkqd"}
    shapes = [[sizes[l] for l in term.replace("...", "b")] for term in text.split("->")[0].split(",")]
    return "Einsum", {f"x{i}": dice.numbers(*s) for i, s in enumerate(shapes)}, {"equation": text}, {"y": T.FLOAT}, 12


@family
def softmax(dice):
    rank = dice.randint(1, 4)
    return dice.choice(["Softmax", "LogSoftmax", "Hardmax"]), {"x": dice.numbers(*dice.shape(rank), high=20)}, {"axis": dice.randint(-rank, rank - 1)}, {"y": T.FLOAT}, dice.choice([11, 13])


@family
def norm(dice):
    rank = dice.randint(3, 5)
    x = dice.numbers(*dice.shape(rank, 5))
    channels, kind = x.shape[1], dice.choice(["BatchNormalization", "InstanceNormalization", "LayerNormalization", "LRN", "MeanVarianceNormalization", "LpNormalization"])
    more = lambda *s: dice.numbers(*s, low=0.2)
    if kind == "BatchNormalization":
        return kind, {"x": x, "s": more(channels), "b": more(channels), "m": more(channels), "v": more(channels)}, {"epsilon": 1e-3}, {"y": T.FLOAT}, 15
    if kind == "InstanceNormalization":
        return kind, {"x": x, "s": more(channels), "b": more(channels)}, {}, {"y": T.FLOAT}, 17
    if kind == "LayerNormalization":
        axis = dice.randint(0, rank - 1)
        return kind, {"x": x, "s": more(*x.shape[axis:]), "b": more(*x.shape[axis:]) if dice.maybe() else None}, {"axis": axis - rank if dice.maybe() else axis}, {"y": T.FLOAT}, 17
    if kind == "LRN":
        return kind, {"x": x}, {"size": dice.choice([1, 2, 3, 5]), "alpha": 0.1, "beta": 0.5, "bias": 2.0}, {"y": T.FLOAT}, 13
    if kind == "LpNormalization":
        return kind, {"x": x}, {"axis": dice.randint(0, rank - 1), "p": dice.choice([1, 2])}, {"y": T.FLOAT}, 13
    # Of one number there is no variance: 0 / 0 in onnxruntime.
    x = dice.numbers(*(n + 1 for n in x.shape))
    return kind, {"x": x}, {"axes": sorted(dice.sample(range(rank), dice.randint(1, rank)))}, {"y": T.FLOAT}, 13


@family
def recurrent(dice):
    kind = dice.choice(["LSTM", "GRU", "RNN"])
    way = dice.choice(["forward", "reverse", "bidirectional"])
    steps, rows, width, size = dice.randint(1, 6), dice.randint(1, 4), dice.randint(1, 5), dice.randint(1, 9)
    ways, gates = 2 if way == "bidirectional" else 1, {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    attributes = {"direction": way, "hidden_size": size}
    if kind == "GRU":
        attributes["linear_before_reset"] = dice.choice([0, 1])
    if kind == "RNN" and dice.maybe():
        attributes["activations"] = [dice.choice(["Relu", "Tanh", "Sigmoid"])] * ways
    if dice.maybe(0.2):
        attributes["clip"] = 0.5
    inputs = {
        "x": dice.numbers(steps, rows, width),
        "w": dice.numbers(ways, gates * size, width, low=-1, high=1),
        "r": dice.numbers(ways, gates * size, size, low=-1, high=1),
        "b": dice.numbers(ways, 2 * gates * size) if dice.maybe() else None,
        "n": dice.numbers(rows, kind=np.int32, low=1, high=steps) if dice.maybe() else None,
        "h": dice.numbers(ways, rows, size) if dice.maybe() else None,
    }
    outputs = {"y": T.FLOAT, "yh": T.FLOAT}
    if kind == "LSTM":
        inputs["c"] = dice.numbers(ways, rows, size) if dice.maybe() else None
        inputs["p"] = dice.numbers(ways, 3 * size) if dice.maybe(0.3) else None
        outputs["yc"] = T.FLOAT
    return kind, inputs, attributes, outputs, 14


@family
def quantized(dice):
    kind = dice.choice([np.uint8, np.int8])
    info = np.iinfo(kind)
    zero = lambda *s: dice.numbers(*s, kind=kind, low=-5 if kind == np.int8 else 0, high=9)
    scale = lambda *s: dice.numbers(*s, low=0.01, high=0.1)
    pick = dice.choice(["QuantizeLinear", "DequantizeLinear", "MatMulInteger", "QLinearMatMul", "QLinearConv", "ConvInteger", "DynamicQuantizeLinear"])
    every = lambda *s: dice.numbers(*s, kind=kind, low=info.min, high=info.max)
    if pick in ("QuantizeLinear", "DequantizeLinear"):
        shape = dice.shape(dice.randint(1, 4))
        axis = dice.randint(0, len(shape) - 1)
        own = [shape[axis]] if dice.maybe() else []
        x = dice.numbers(*shape, low=-5, high=5) if pick[0] == "Q" else every(*shape)
        return pick, {"x": x, "s": scale(*own), "z": zero(*own)}, {"axis": axis}, {"y": TYPES[kind] if pick[0] == "Q" else T.FLOAT}, 13
    if pick == "DynamicQuantizeLinear":
        return pick, {"x": dice.numbers(*dice.shape(2), low=dice.choice([-3, 1]))}, {}, {"y": T.UINT8, "s": T.FLOAT, "z": T.UINT8}, 11
    rows, terms, columns = dice.shape(3, 20)
    if pick == "MatMulInteger":
        return pick, {"x": every(rows, terms), "w": every(terms, columns), "a": zero() if dice.maybe() else None,
                      "b": zero(columns) if dice.maybe() else zero()}, {}, {"y": T.INT32}, 10
    if pick == "QLinearMatMul":
        return pick, {"x": every(rows, terms), "xs": scale(), "xz": zero(), "w": every(terms, columns), "ws": scale(), "wz": zero(),
                      "ys": scale(), "yz": zero()}, {}, {"y": TYPES[kind]}, 10
    attributes = {}
    kernel = windows(dice, 2, attributes)
    channels, outside = dice.choice([1, 3]), dice.choice([1, 4])
    x, w = every(dice.randint(1, 2), channels, *dice.shape(2, 9)), every(outside, channels, *kernel)
    if pick == "ConvInteger":
        return pick, {"x": x, "w": w, "a": zero() if dice.maybe() else None, "b": zero() if dice.maybe() else None}, attributes, {"y": T.INT32}, 10
    own = [outside] if dice.maybe() else []
    return pick, {"x": x, "xs": scale(), "xz": zero(), "w": w, "ws": scale(*own), "wz": np.zeros(own, kind) if own else zero(), "ys": scale(), "yz": zero(),
                  "b": dice.numbers(outside, kind=np.int32, low=-99, high=99) if dice.maybe() else None}, attributes, {"y": TYPES[kind]}, 10


@family
def moved(dice):
    x = dice.numbers(dice.randint(1, 2), 4 * dice.randint(1, 2), 2 * dice.randint(1, 3), 2 * dice.randint(1, 3))
    if dice.maybe():
        return "DepthToSpace", {"x": x}, {"blocksize": 2, "mode": dice.choice(["DCR", "CRD"])}, {"y": T.FLOAT}, 13
    return "SpaceToDepth", {"x": x}, {"blocksize": 2}, {"y": T.FLOAT}, 13


@family
def chosen(dice):
    rank = dice.randint(1, 3)
    x = dice.numbers(*dice.shape(rank), kind=np.int64, low=0, high=3)
    pick = dice.choice(["Unique", "Compress", "NonZero", "OneHot", "Tile", "Expand", "ReverseSequence"])
    if pick == "Unique":
        attributes = {"sorted": dice.choice([0, 1])} | ({"axis": dice.randint(0, rank - 1)} if dice.maybe() else {})
        return pick, {"x": x}, attributes, {"y": T.INT64, "i": T.INT64, "v": T.INT64, "c": T.INT64}, 11
    if pick == "Compress":
        axis = dice.randint(0, rank - 1)
        all_ = dice.maybe()
        n = x.size if all_ else x.shape[axis]
        return pick, {"x": x, "c": dice.numbers(dice.randint(1, n), low=-1, high=1) > 0}, {} if all_ else {"axis": axis}, {"y": T.INT64}, 11
    if pick == "NonZero":
        return pick, {"x": x}, {}, {"y": T.INT64}, 13
    if pick == "OneHot":
        return pick, {"x": x, "d": i64([dice.randint(2, 5)]), "v": f32([0.5, 2])}, {"axis": dice.randint(-rank - 1, rank)}, {"y": T.FLOAT}, 11
    if pick == "Tile":
        return pick, {"x": x, "n": i64([dice.randint(0, 3) for _ in range(rank)])}, {}, {"y": T.INT64}, 13
    if pick == "Expand":
        x = x[..., :1]
        return pick, {"x": x, "n": i64([dice.randint(1, 3), *x.shape[:-1], dice.randint(1, 4)])}, {}, {"y": T.INT64}, 13
    x = dice.numbers(dice.randint(1, 5), dice.randint(1, 5), dice.randint(1, 3))
    time = dice.choice([0, 1])
    lengths = dice.numbers(x.shape[1 - time], kind=np.int64, low=1, high=x.shape[time])
    return pick, {"x": x, "n": lengths}, {"time_axis": time, "batch_axis": 1 - time}, {"y": T.FLOAT}, 10


@family
def sampled(dice):
    x = dice.numbers(dice.randint(1, 2), dice.randint(1, 3), *dice.shape(2, 7))
    if dice.maybe():
        grid = dice.numbers(x.shape[0], *dice.shape(2, 5), 2, low=-1.3, high=1.3)
        attributes = {"mode": dice.choice(["linear", "nearest", "cubic"]), "padding_mode": dice.choice(["zeros", "border", "reflection"]), "align_corners": dice.choice([0, 1])}
        return "GridSample", {"x": x, "g": grid}, attributes, {"y": T.FLOAT}, 20
    boxes = np.sort(dice.numbers(dice.randint(1, 4), 2, 2, low=0, high=6), axis=1).reshape(-1, 4)
    attributes = {"mode": dice.choice(["avg", "max"]), "output_height": dice.randint(1, 3), "output_width": dice.randint(1, 3), "sampling_ratio": dice.choice([0, 1, 2]),
                  "spatial_scale": dice.choice([1.0, 0.5]), "coordinate_transformation_mode": dice.choice(["half_pixel", "output_half_pixel"])}
    return "RoiAlign", {"x": x, "b": boxes, "i": dice.numbers(len(boxes), kind=np.int64, low=0, high=x.shape[0] - 1)}, attributes, {"y": T.FLOAT}, 16


def main(folder, count, seed):
    made = refused = 0
    for number in range(count):
        dice = Dice(f"{seed}/{number}")
        draw = FAMILIES[number % len(FAMILIES)]
        operator, values, attributes, outputs, opset = draw(dice)
        while values and list(values.values())[-1] is None:
            values.popitem()
        names = [key if value is not None else "" for key, value in values.items()]
        values = {key: np.asarray(value) for key, value in values.items() if value is not None}
        # The first is what a request brings; the others are weights, or come with it.
        first = next(iter(values))
        given = {key: value for key, value in values.items() if key == first or dice.maybe(0.3)}
        held = {key: value for key, value in values.items() if key not in given}
        node = helper.make_node(operator, names, list(outputs), **attributes)
        name = f"{operator.lower()}_{seed}_{number}"
        if emit(folder, name, [node], given, list(outputs), held, opset, outputs, free=dice.maybe()):
            made += 1
        else:
            shutil.rmtree(folder / name)
            refused += 1
        if number % 1000 == 999:
            print(f"{number + 1} of {count}", file=sys.stderr)
    print(f"{made} cases in {folder}; onnxruntime refused {refused} others")


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 1)
