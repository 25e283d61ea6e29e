"""Writes nodes that draws.py leaves out, by chance, beside onnxruntime's answers: python3 crates/onnx/benches/draws_more.py FOLDER COUNT [SEED [FAMILY ...]]

Old opsets, casts between all types, integers of every width up to their ends, float16 and float64, texts, signals, attention and
normalisations of newer opsets, boxes, sequences, branches and loops, and operators of com.microsoft. Run them by
cargo bench --bench onnx -- cases FOLDER.
"""

import numpy as np
from chances import KINDS, NAN, SIGNED, UNSIGNED, Case, Dice, T, element, f32, helper, i64, main, numpy_helper, one

FAMILIES = []
MS = "com.microsoft"
HALF = {"tolerance": (2e-3, 2e-3)}
node = helper.make_node


def family(draw):
    FAMILIES.append(draw)
    return draw


def loose(kind):
    return HALF if kind == np.float16 else {}


# Types.


@family
def casts(dice):
    kinds = [*KINDS, np.bool_]
    # Through bfloat16, which no numpy array has, and back.
    if dice.maybe(0.2):
        x = dice.numbers(*dice.shape(2), kind=dice.choice([np.float32, np.float16, np.float64]), low=-1000, high=1000)
        nodes = [node("Cast", ["x"], ["b"], to=T.BFLOAT16), node("Cast", ["b"], ["y"], to=dice.choice([T.FLOAT, T.FLOAT16, T.DOUBLE, T.INT32]))]
        return Case(nodes, {"x": x}, ["y"], opset=dice.choice([13, 19]), tolerance=(0, 0))
    kind, to = dice.choice(kinds), dice.choice(kinds)
    if kind == np.bool_:
        x = dice.numbers(*dice.shape(2), low=-1, high=1) > 0
    elif np.issubdtype(kind, np.integer):
        x = dice.whole(*dice.shape(2), kind=kind)
    else:
        # What fits: beyond an integer's ends nothing is promised.
        most = 60000 if to == np.float16 or not np.issubdtype(to, np.integer) else min(np.iinfo(to).max, 60000)
        least = 0 if np.issubdtype(to, np.unsignedinteger) else -most
        x = dice.numbers(*dice.shape(2), kind=kind, low=least, high=most)
        if not np.issubdtype(to, np.integer) and dice.maybe():
            x.ravel()[0] = dice.choice([NAN, np.inf, -np.inf, 0, -0.0])
    if dice.maybe(0.1):
        return one(dice, "CastLike", {"x": x, "l": np.zeros(1, to)}, {}, "y", 15, tolerance=(0, 0))
    return one(dice, "Cast", {"x": x}, {"to": element(to)}, "y", dice.choice([9, 13, 19, 21]), tolerance=(0, 0))


@family
def texts_as_numbers(dice):
    if dice.maybe():
        to = dice.choice([np.float32, np.float64, np.int64, np.int32, np.uint8, np.int8, np.bool_])
        among = ["1", "-2", "0", "12", "+7"] if np.issubdtype(to, np.signedinteger) else ["1", "2", "0", "12"] if np.issubdtype(to, np.integer) else ["1.5", "-2e3", "1e-7", "0", "-0", "12", "inf", "-inf", "nan"]
        if to == np.bool_:
            among = ["1", "0"]
        return one(dice, "Cast", {"x": dice.words(*dice.shape(2), among=among)}, {"to": element(to)}, "y", dice.choice([9, 13, 19]))
    kind = dice.choice([np.float32, np.float64, np.float16, np.int64, np.int32, np.uint8, np.bool_])
    x = dice.numbers(*dice.shape(2), kind=np.float64, low=-9, high=9) * 10.0 ** dice.randint(-12, 12)
    if kind == np.float16 or np.issubdtype(kind, np.integer) or kind == np.bool_:
        x = dice.numbers(*dice.shape(2), kind=np.float64, low=0, high=99)
    return one(dice, "Cast", {"x": x.astype(kind)}, {"to": T.STRING}, "y", dice.choice([9, 13, 19]))


@family
def integers(dice):
    whole = dice.shape(dice.randint(1, 3), 5)
    operator = dice.choice(["Add", "Sub", "Mul", "Div", "Mod", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "Abs", "Neg", "Sign", "Max", "Min", "Equal", "Less",
                            "Greater", "LessOrEqual", "Clip", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "Where", "CumSum", "ArgMax", "TopK", "Relu", "Pow", "MatMul", "Gemm", "ReduceSumSquare", "ReduceL1", "Sum", "Mean"])
    kind = dice.choice(UNSIGNED if operator == "BitShift" else SIGNED if operator in ("Neg", "Relu") else SIGNED + UNSIGNED)
    x, z = dice.whole(*dice.part(whole), kind=kind), dice.whole(*dice.part(whole), kind=kind)
    exact = {"tolerance": (0, 0)}
    if dice.maybe(0.4):
        x, z = x // 16, z // 16
    if operator in ("BitwiseNot", "Abs", "Neg", "Sign", "Relu"):
        return one(dice, operator, {"x": x}, {}, "y", 18, **exact)
    if operator in ("Div", "Mod"):
        # onnxruntime takes fmod of large integers, and sums of them, by way of float64.
        z = np.where(z == 0, kind(3), z).astype(kind)
        if np.issubdtype(kind, np.signedinteger):
            x = np.where(x == np.iinfo(kind).min, kind(5), x).astype(kind)
        return one(dice, operator, {"x": x, "z": z}, {"fmod": dice.choice([0, 1]) if np.dtype(kind).itemsize < 8 else 0} if operator == "Mod" else {}, "y", 14, **exact)
    if operator == "BitShift":
        z = dice.numbers(*z.shape, kind=kind, low=0, high=8 * np.dtype(kind).itemsize - 1)
        return one(dice, operator, {"x": x, "z": z}, {"direction": dice.choice(["LEFT", "RIGHT"])}, "y", 11, **exact)
    if operator == "Clip":
        low, high = sorted([dice.whole(kind=kind), dice.whole(kind=kind)])
        return one(dice, operator, {"x": x, "l": low if dice.maybe(0.8) else None, "h": high if dice.maybe(0.8) else None}, {}, "y", 13, **exact)
    if operator.startswith("Reduce"):
        axes = i64(dice.sample(range(x.ndim), dice.randint(1, x.ndim))) if x.ndim else None
        if operator not in ("ReduceMax", "ReduceMin"):
            x = dice.numbers(*x.shape, kind=kind, low=0 if np.issubdtype(kind, np.unsignedinteger) else -99, high=99)
        return one(dice, operator, {"x": x, "a": axes}, {"keepdims": dice.choice([0, 1])}, "y", 18 if operator != "ReduceMax" else 20, **exact)
    if operator == "Where":
        return one(dice, operator, {"c": dice.numbers(*dice.part(whole), low=-1, high=1) > 0, "x": x, "z": z}, {}, "y", 16, **exact)
    if operator == "CumSum":
        x = dice.whole(*whole, kind=kind)
        return one(dice, operator, {"x": x, "a": i64(dice.randint(-x.ndim, x.ndim - 1))}, {"exclusive": dice.choice([0, 1]), "reverse": dice.choice([0, 1])}, "y", 14, **exact)
    x = dice.whole(*whole, kind=kind)
    if operator == "ArgMax":
        return one(dice, operator, {"x": x}, {"axis": dice.randint(-x.ndim, x.ndim - 1), "keepdims": dice.choice([0, 1])}, "y", 13, **exact)
    if operator == "TopK":
        return one(dice, operator, {"x": x, "k": i64([dice.randint(1, whole[-1])])}, {"largest": dice.choice([0, 1])}, "y i", 11, **exact)
    if operator == "Pow":
        x, z = dice.numbers(*x.shape, kind=kind, low=0, high=4), dice.numbers(*x.shape, kind=kind, low=0, high=3)
        return one(dice, operator, {"x": x, "z": z if dice.maybe() else z.astype(np.float32)}, {}, "y", 15, **exact)
    if operator in ("MatMul", "Gemm"):
        rows, terms, columns = dice.shape(3, 6)
        return one(dice, operator, {"x": dice.whole(rows, terms, kind=kind), "w": dice.whole(terms, columns, kind=kind)}, {}, "y", 13, **exact)
    if operator in ("Sum", "Mean"):
        return one(dice, operator, {"x": x, "z": z}, {}, "y", 13, **exact)
    return one(dice, operator, {"x": x, "z": z}, {}, "y", 18, **exact)


@family
def floats(dice):
    """Float16 and float64 in common operators."""
    kind = dice.choice([np.float64, np.float64, np.float16])
    shape = dice.shape(dice.randint(2, 4), 6)
    x = dice.numbers(*shape, kind=kind)
    more = lambda *s, low=-2, high=3: dice.numbers(*s, kind=kind, low=low, high=high)
    rank = len(shape)
    operator = dice.choice(["Add", "Mul", "Sub", "Div", "Pow", "MatMul", "Gemm", "Conv", "Relu", "Sigmoid", "Tanh", "Exp", "Log", "Sqrt", "Erf", "Softmax", "LogSoftmax", "ReduceMean", "ReduceSum", "ReduceMax",
                            "ReduceLogSumExp", "ReduceL2", "LayerNormalization", "BatchNormalization", "Clip", "Where", "Concat", "Transpose", "Slice", "Pad", "Gather", "MaxPool", "AveragePool",
                            "GlobalAveragePool", "ArgMax", "TopK", "CumSum", "Floor", "Round", "Sign", "Abs", "LeakyRelu", "Elu", "Selu", "HardSigmoid", "Gelu", "Softplus", "Resize", "Einsum",
                            "ScatterElements", "GatherElements", "Equal", "Less", "IsNaN", "Mod", "Max", "Min", "Mean", "Sin", "Cos", "Tan", "Atan", "Asinh", "Reciprocal", "Neg", "Ceil", "PRelu", "Range", "Trilu", "OneHot",
                            "InstanceNormalization", "ConvTranspose", "LSTM", "GRU", "Expand", "Tile", "Split", "Shrink", "ThresholdedRelu", "Celu", "Mish", "HardSwish", "LRN", "Hardmax", "EyeLike", "ConstantOfShape", "DepthToSpace"])
    opset, tol = 20, loose(kind)
    make = lambda values, attributes=None, outputs="y", opset=opset: one(dice, operator, values, attributes or {}, outputs, opset, **tol)
    if operator in ("Add", "Mul", "Sub", "Div", "Max", "Min", "Mean", "Equal", "Less"):
        z = more(*dice.part(shape), low=0.5) if operator == "Div" else more(*dice.part(shape))
        return make({"x": np.round(x), "z": np.round(z)} if operator in ("Equal", "Less") else {"x": x, "z": z})
    if operator == "Pow":
        return make({"x": np.abs(x), "z": more(*dice.part(shape))})
    if operator == "Mod":
        return make({"x": x, "z": more(*dice.part(shape), low=0.5)}, {"fmod": 1})
    if operator in ("MatMul", "Gemm", "Einsum"):
        rows, terms, columns = dice.shape(3, 9)
        if operator == "Einsum":
            return make({"x": more(rows, terms), "w": more(terms, columns)}, {"equation": "ij,jk->ik"})
        return make({"x": more(rows, terms), "w": more(terms, columns), "c": more(columns) if operator == "Gemm" and dice.maybe() else None})
    if operator in ("Conv", "ConvTranspose"):
        channels = dice.randint(1, 3)
        return make({"x": more(dice.randint(1, 2), channels, 5, 6), "w": more(channels, channels, 3, 2), "b": more(channels) if dice.maybe() else None}, {"pads": [1, 0, 1, 1]})
    if operator in ("MaxPool", "AveragePool"):
        return make({"x": more(1, 2, 5, 6)}, {"kernel_shape": [2, 3], "strides": [2, 1], "pads": [0, 1, 1, 1]})
    if operator in ("GlobalAveragePool", "InstanceNormalization", "BatchNormalization", "LRN", "DepthToSpace"):
        x, own = more(2, 4, 3, 2), lambda: more(4, low=0.2)
        if operator == "InstanceNormalization":
            return make({"x": x, "s": own(), "b": own()})
        if operator == "BatchNormalization":
            return make({"x": x, "s": own(), "b": own(), "m": own(), "v": own()})
        return make({"x": x}, {"size": 3} if operator == "LRN" else {"blocksize": 2} if operator == "DepthToSpace" else {})
    if operator.startswith("Reduce"):
        return make({"x": x, "a": i64(dice.sample(range(rank), dice.randint(1, rank)))}, {"keepdims": dice.choice([0, 1])})
    if operator in ("Softmax", "LogSoftmax", "ArgMax", "Hardmax"):
        return make({"x": x}, {"axis": dice.randint(-rank, rank - 1)}, opset=13)
    if operator == "LayerNormalization":
        return make({"x": x, "s": more(shape[-1]), "b": more(shape[-1]) if dice.maybe() else None}, {"axis": -1})
    if operator == "Clip":
        return make({"x": x, "l": np.array(-1, kind), "h": np.array(1.5, kind)})
    if operator == "Where":
        return make({"c": dice.numbers(*shape) > 0, "x": x, "z": more(*dice.part(shape))})
    if operator == "Concat":
        return make({"x": x, "z": more(*shape)}, {"axis": dice.randint(-rank, rank - 1)})
    if operator == "Slice":
        return make({"x": x, "s": i64([dice.randint(-3, 2)]), "e": i64([dice.randint(0, 9)]), "a": i64([0]), "t": i64([dice.choice([1, 2])])})
    if operator == "Pad":
        return make({"x": x, "p": i64([dice.randint(0, 2) for _ in range(2 * rank)]), "v": np.array(0.5, kind)})
    if operator in ("Gather", "GatherElements"):
        index = dice.numbers(3, kind=np.int64, low=0, high=shape[0] - 1) if operator == "Gather" else dice.numbers(*shape, kind=np.int64, low=0, high=shape[0] - 1)
        return make({"x": x, "i": index}, {"axis": 0})
    if operator == "ScatterElements":
        return make({"x": x, "i": np.zeros((1, *shape[1:]), np.int64), "u": more(1, *shape[1:])}, {"axis": 0, "reduction": dice.choice(["none", "add", "mul"])})
    if operator == "TopK":
        return make({"x": x, "k": i64([dice.randint(1, shape[-1])])}, {}, "y i")
    if operator == "CumSum":
        return make({"x": x, "a": i64(0)})
    if operator == "Resize":
        return make({"x": more(1, 1, 4, 5), "r": None, "s": f32([1, 1, 2, 1.5])}, {"mode": dice.choice(["nearest", "linear"])})
    if operator == "PRelu":
        return make({"x": x, "s": more(shape[-1])})
    if operator == "Range":
        return make({"x": np.array(0.5, kind), "e": np.array(7, kind), "d": np.array(1.5, kind)})
    if operator == "OneHot":
        return make({"x": dice.numbers(4, kind=np.int64, low=0, high=3), "d": i64(4), "v": np.array([0.25, 2], kind)})
    if operator in ("LSTM", "GRU"):
        gates, size = 4 if operator == "LSTM" else 3, 3
        return make({"x": more(4, 2, 3), "w": more(1, gates * size, 3), "r": more(1, gates * size, size), "b": more(1, 2 * gates * size) if dice.maybe() else None}, {"hidden_size": size}, "y h", 14)
    if operator == "Expand":
        return make({"x": x, "n": i64([2, *shape])})
    if operator == "Tile":
        return make({"x": x, "n": i64([dice.randint(1, 3) for _ in shape])})
    if operator == "Split":
        return make({"x": more(4, 3)}, {"num_outputs": 2}, "y z")
    if operator in ("Log", "Sqrt", "Reciprocal"):
        return make({"x": np.abs(x) + kind(0.5)})
    if operator == "EyeLike":
        return make({"x": more(3, 4)}, {"k": dice.randint(-2, 2)})
    if operator == "ConstantOfShape":
        return make({"x": i64([2, 3])}, {"value": numpy_helper.from_array(np.array([1.5], kind), "v")})
    return make({"x": x})


# Old opsets.


@family
def old(dice):
    rank = dice.randint(2, 4)
    x = dice.numbers(*dice.shape(rank, 5))
    operator = dice.choice(["BatchNormalization", "Clip", "Dropout", "Pad", "Reduce", "Softmax", "Squeeze", "Unsqueeze", "Resize", "Slice", "TopK", "Cast", "Upsample", "Split", "Gemm", "Flatten", "ArgMax", "PRelu",
                            "AveragePool", "MaxPool", "OneHot", "Scatter", "Add", "Hardmax", "LpPool", "Sum", "Reshape", "ConvTranspose", "Equal", "Pow", "CumSum", "Gather", "Concat", "Max", "ThresholdedRelu", "Upsample7", "TopK1", "LogSoftmax", "ReduceAxes", "HardSigmoid", "RNN"])
    make = lambda operator, values, attributes, outputs="y", opset=9, **more: one(dice, operator, values, attributes, outputs, opset, **more)
    if operator == "BatchNormalization":
        channels = x.shape[1]
        own = lambda: dice.numbers(channels, low=0.3)
        return make(operator, {"x": x, "s": own(), "b": own(), "m": own(), "v": own()}, {"epsilon": 0.01, "momentum": 0.8}, opset=dice.choice([7, 8, 9, 12, 14]))
    if operator == "Clip":
        attributes = {key: value for key, value in [("min", -1.0), ("max", 1.25)] if dice.maybe(0.7)}
        return make(operator, {"x": x}, attributes, opset=dice.choice([7, 8, 9, 10]))
    if operator == "Dropout":
        opset = dice.choice([7, 10, 12, 13])
        # Before opset 12 nobody says what the mask of a Dropout that drops nothing is.
        outputs = "y m" if opset >= 12 and dice.maybe() else "y"
        return make(operator, {"x": x, "r": f32(0.4) if opset >= 12 and dice.maybe() else None}, {"ratio": 0.3} if opset < 12 else {}, outputs, opset)
    if operator == "Pad":
        mode = dice.choice(["constant", "reflect", "edge"])
        pads = [dice.randint(0, n - 1) for n in x.shape * 2]
        return make(operator, {"x": x}, {"pads": pads, "mode": mode, "value": 0.75}, opset=dice.choice([7, 9, 10]))
    if operator in ("Reduce", "ReduceAxes"):
        kind = dice.choice(["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSumExp", "SumSquare"])
        attributes = {"keepdims": dice.choice([0, 1])} if dice.maybe(0.8) else {}
        if dice.maybe(0.8):
            attributes["axes"] = [dice.signed(a, rank) for a in dice.sample(range(rank), dice.randint(1, rank))]
        return make(f"Reduce{kind}", {"x": x}, attributes, opset=dice.choice([11, 12] if any(a < 0 for a in attributes.get("axes", [])) else [7, 9, 11, 12]))
    if operator in ("Softmax", "Hardmax", "LogSoftmax"):
        axis = dice.randint(0, rank - 1)
        return make(operator, {"x": x}, {"axis": axis} if dice.maybe(0.8) else {}, opset=dice.choice([7, 9, 11, 12]))
    if operator == "Squeeze":
        at = dice.randint(0, rank)
        x = np.expand_dims(x, at)
        return make(operator, {"x": x}, {"axes": [at]} if dice.maybe(0.8) else {}, opset=dice.choice([7, 9, 11, 12]))
    if operator == "Unsqueeze":
        return make(operator, {"x": x}, {"axes": dice.sample(range(rank + 2), 2)}, opset=dice.choice([7, 9, 11, 12]))
    if operator in ("Resize", "Upsample", "Upsample7"):
        x = dice.numbers(1, 2, *dice.shape(2, 6))
        mode = dice.choice(["nearest", "linear"])
        scales = f32([1, 1, dice.choice([1, 2, 3, 1.5, 2.5]), dice.choice([1, 2, 3])])
        if operator == "Resize":
            scales[2:] = [dice.choice([0.5, 0.6, 1.3, 2, 2.5, 3]) for _ in range(2)]
            return make(operator, {"x": x, "s": scales}, {"mode": mode}, opset=10)
        if operator == "Upsample7":
            return make("Upsample", {"x": x}, {"mode": mode, "scales": [float(s) for s in scales]}, opset=dice.choice([7, 8]))
        return make(operator, {"x": x, "s": scales}, {"mode": mode}, opset=9)
    if operator == "Slice":
        axes = dice.sample(range(rank), dice.randint(1, rank))
        starts, ends = [dice.randint(-5, 3) for _ in axes], [dice.choice([dice.randint(-3, 6), 2**40]) for _ in axes]
        attributes = {"starts": starts, "ends": ends}
        if axes != list(range(len(axes))) or dice.maybe():
            attributes["axes"] = axes
        return make(operator, {"x": x}, attributes, opset=dice.choice([7, 9]))
    if operator == "TopK":
        axis = dice.randint(0, rank - 1)
        return make(operator, {"x": x, "k": i64([dice.randint(1, x.shape[axis])])}, {"axis": axis}, "y i", 10)
    if operator == "TopK1":
        axis = dice.randint(0, rank - 1)
        return make("TopK", {"x": x}, {"axis": axis, "k": dice.randint(1, x.shape[axis])}, "y i", dice.choice([7, 9]))
    if operator == "Cast":
        return make(operator, {"x": x}, {"to": dice.choice([T.INT32, T.INT64, T.DOUBLE, T.BOOL, T.FLOAT16, T.INT8])}, opset=dice.choice([7, 8, 9]))
    if operator == "Split":
        axis = dice.randint(0, rank - 1)
        x = np.concatenate([x, x], axis)
        sizes = [1, x.shape[axis] - 1] if dice.maybe() else None
        return make(operator, {"x": x}, {"axis": axis} | ({"split": sizes} if sizes else {}), "y z", dice.choice([7, 9, 11, 12]))
    if operator == "Gemm":
        rows, terms, columns = dice.shape(3, 6)
        c = dice.choice([[columns], [rows, 1], [1, columns], [1]])
        return make(operator, {"x": dice.numbers(rows, terms), "w": dice.numbers(terms, columns), "c": dice.numbers(*c)}, {"alpha": 0.5, "beta": 2.0}, opset=dice.choice([7, 9, 10]))
    if operator == "Flatten":
        return make(operator, {"x": x}, {"axis": dice.randint(0, rank)}, opset=dice.choice([7, 9, 11]))
    if operator == "ArgMax":
        return make(dice.choice(["ArgMax", "ArgMin"]), {"x": np.round(x)}, {"axis": dice.randint(0, rank - 1), "keepdims": dice.choice([0, 1])}, opset=dice.choice([7, 11, 12]))
    if operator == "PRelu":
        return make(operator, {"x": x, "s": dice.numbers(*dice.choice([[1], [x.shape[-1]], [x.shape[1], *[1] * (rank - 2)]]))}, {}, opset=dice.choice([7, 9]))
    if operator in ("AveragePool", "MaxPool", "LpPool"):
        x = dice.numbers(1, 2, *(dice.randint(3, 9) for _ in range(2)))
        attributes = {"kernel_shape": [dice.randint(1, 3), dice.randint(1, 3)], "strides": [dice.randint(1, 2), dice.randint(1, 2)]}
        opset = dice.choice([7, 8, 10, 11])
        if opset >= 10 and operator != "LpPool":
            attributes["ceil_mode"] = dice.choice([0, 1])
        if operator == "AveragePool":
            attributes["count_include_pad"] = dice.choice([0, 1])
        if dice.maybe():
            attributes["pads"] = [dice.randint(0, k - 1) for k in attributes["kernel_shape"] * 2]
        return make(operator, {"x": x}, attributes, "y i" if operator == "MaxPool" and opset >= 8 and dice.maybe() else "y", opset)
    if operator == "OneHot":
        return make(operator, {"x": dice.numbers(*dice.shape(2), kind=np.int64, low=0, high=4), "d": i64([5]), "v": f32([-1, 3])}, {"axis": dice.choice([-1, 0, 1])}, opset=9)
    if operator == "Scatter":
        return make(operator, {"x": dice.numbers(4, 5), "i": i64([[0, 2], [3, 1]]), "u": dice.numbers(2, 2)}, {"axis": dice.choice([0, 1])}, opset=dice.choice([9, 10]))
    if operator in ("Add", "Equal", "Pow", "Max", "Sum"):
        z = dice.numbers(*dice.part(x.shape, 1))
        if operator == "Equal":
            x, z = np.round(x).astype(np.int64), np.round(z).astype(np.int64)
        return make(operator, {"x": np.abs(x) if operator == "Pow" else x, "z": z}, {}, opset=dice.choice([7, 9, 11, 12] if operator != "Max" else [8, 11, 12]))
    if operator == "Reshape":
        return make(operator, {"x": x, "s": i64([0, -1])}, {}, opset=dice.choice([7, 9, 12]))
    if operator == "ConvTranspose":
        return make(operator, {"x": dice.numbers(1, 2, 4, 5), "w": dice.numbers(2, 3, 3, 2)}, {"strides": [2, 1], "pads": [1, 0, 0, 1]}, opset=dice.choice([7, 9, 10]))
    if operator == "CumSum":
        return make(operator, {"x": x, "a": i64(0)}, {}, opset=11)
    if operator == "Gather":
        return make(operator, {"x": x, "i": dice.numbers(2, kind=np.int64, low=0, high=x.shape[0] - 1)}, {}, opset=dice.choice([7, 9, 11]))
    if operator == "Concat":
        return make(operator, {"x": x, "z": x[::-1].copy()}, {"axis": dice.randint(0, rank - 1)}, opset=dice.choice([7, 9]))
    if operator == "RNN":
        return make("LSTM", {"x": dice.numbers(3, 2, 4), "w": dice.numbers(1, 12, 4), "r": dice.numbers(1, 12, 3)}, {"hidden_size": 3, "activations": [dice.choice(["Sigmoid", "HardSigmoid"]), dice.choice(["Tanh", "Relu", "Softsign"]), "Tanh"]}, "y h c", 7)
    if operator == "HardSigmoid":
        return make(operator, {"x": x}, {"alpha": 0.3, "beta": 0.4}, opset=7)
    return make("ThresholdedRelu", {"x": x}, {"alpha": 0.5}, opset=10)


# Newer layers.


@family
def attention(dice):
    q_heads = dice.choice([1, 2, 4])
    kv_heads = dice.choice([n for n in (1, 2, 4) if q_heads % n == 0])
    batch, size, v_size = dice.randint(1, 3), dice.choice([2, 4, 8]), dice.choice([2, 4])
    queries, keys, past = dice.randint(1, 5), dice.randint(1, 5), dice.choice([0, 0, 2])
    flat = dice.maybe()
    lay = lambda heads, n, width: dice.numbers(batch, n, heads * width) if flat else dice.numbers(batch, heads, n, width)
    total = keys + past
    attributes = {"is_causal": dice.choice([0, 0, 1])}
    if attributes["is_causal"] and past:
        # How many keys a query sees that has not one of its own is another thing in ONNX's own reference.
        keys, total = queries, queries + past
    if flat:
        attributes |= {"q_num_heads": q_heads, "kv_num_heads": kv_heads}
    if dice.maybe(0.4):
        attributes["scale"] = 0.3
    if dice.maybe(0.3):
        attributes["softcap"] = 2.0
    mask = None
    if dice.maybe():
        shape = dice.choice([[queries, total], [1, 1, queries, total], [batch, 1, queries, total], [batch, q_heads, queries, total], [batch, 1, 1, total], [q_heads, queries, total]])
        mask = dice.numbers(*shape) if dice.maybe() else dice.numbers(*shape, low=-1, high=2) > 0
        if mask.dtype == np.bool_:
            # A row without any key is another thing in every version.
            mask[..., 0] = True
    values = {"q": lay(q_heads, queries, size), "k": lay(kv_heads, keys, size), "v": lay(kv_heads, keys, v_size), "m": mask}
    outputs = "y"
    if past:
        values |= {"pk": dice.numbers(batch, kv_heads, past, size), "pv": dice.numbers(batch, kv_heads, past, v_size)}
        outputs = "y ok ov"
    if dice.maybe(0.2):
        # A score that is hidden is minus infinity, and the lowest number in onnxruntime.
        attributes["qk_matmul_output_mode"] = dice.choice([0, 3]) if attributes["is_causal"] or (mask is not None and mask.dtype == np.bool_) else dice.choice([0, 1, 2, 3])
        outputs = "y ok ov s" if past else "y"
        if not past:
            case = one(dice, "Attention", values, attributes, "y", 23, chance=0.7)
            case.nodes[0].output.extend(["", "", "s"])
            case.outputs.append("s")
            return case
    return one(dice, "Attention", values, attributes, outputs, dice.choice([23, 24]), chance=0.7)


@family
def layers(dice):
    operator = dice.choice(["RMSNormalization", "LayerNormalization", "GroupNormalization", "GroupNormalization18", "RotaryEmbedding", "Gelu", "Swish", "SimplifiedLayerNormalization", "LayerNormalization3"])
    rank = dice.randint(2, 4)
    x = dice.numbers(*dice.shape(rank, 6))
    axis = dice.randint(0, rank - 1)
    own = lambda: dice.numbers(*x.shape[axis:])
    if operator in ("RMSNormalization", "SimplifiedLayerNormalization"):
        scale = dice.numbers(*dice.part(x.shape[axis:], 1)) if operator == "RMSNormalization" and dice.maybe(0.3) else own()
        return one(dice, operator, {"x": x, "s": scale}, {"axis": dice.signed(axis, rank), "epsilon": 1e-3}, "y", 23 if operator == "RMSNormalization" else 17)
    if operator == "LayerNormalization":
        return one(dice, operator, {"x": x, "s": own(), "b": own() if dice.maybe() else None}, {"axis": dice.signed(axis, rank), "epsilon": 1e-3}, "y", dice.choice([17, 20, 22]))
    if operator == "LayerNormalization3":
        return one(dice, "LayerNormalization", {"x": x, "s": own()}, {"axis": dice.signed(axis, rank)}, "y m i", 17)
    if operator.startswith("GroupNormalization"):
        groups, each = dice.choice([1, 2, 3]), dice.choice([1, 2, 4])
        x = dice.numbers(dice.randint(1, 3), groups * each, *dice.shape(dice.randint(1, 3), 4))
        count = groups if operator.endswith("18") else groups * each
        return one(dice, "GroupNormalization", {"x": x, "s": dice.numbers(count), "b": dice.numbers(count)}, {"num_groups": groups, "epsilon": 1e-2}, "y", 18 if operator.endswith("18") else 21)
    if operator == "Gelu":
        return one(dice, operator, {"x": x}, {"approximate": dice.choice(["none", "tanh"])}, "y", 20)
    if operator == "Swish":
        return one(dice, operator, {"x": x}, {"alpha": dice.choice([1.0, 1.7])}, "y", 24)
    batch, heads, steps, size, most = dice.randint(1, 3), dice.choice([1, 2, 3]), dice.randint(1, 4), dice.choice([4, 8]), 7
    part = dice.choice([0, 0, size // 2])
    half = (part or size) // 2
    attributes = {"interleaved": dice.choice([0, 1])} | ({"rotary_embedding_dim": part} if part else {})
    flat = dice.maybe()
    if flat:
        attributes["num_heads"] = heads
    x = dice.numbers(batch, steps, heads * size) if flat else dice.numbers(batch, heads, steps, size)
    if dice.maybe():
        return one(dice, operator, {"x": x, "c": dice.numbers(batch, steps, half), "s": dice.numbers(batch, steps, half)}, attributes, "y", 23)
    places = dice.numbers(batch, steps, kind=np.int64, low=0, high=most - 1)
    return one(dice, operator, {"x": x, "c": dice.numbers(most, half), "s": dice.numbers(most, half), "p": places}, attributes, "y", 23)


# Signals and images.


@family
def signals(dice):
    operator = dice.choice(["DFT", "DFT17", "STFT", "MelWeightMatrix", "HannWindow", "HammingWindow", "BlackmanWindow"])
    if operator.endswith("Window"):
        # A window of one number is 0 / 0 in onnxruntime.
        attributes = {"periodic": dice.choice([0, 1])}
        if dice.maybe(0.3):
            attributes["output_datatype"] = T.DOUBLE
        return one(dice, operator, {"n": np.array(dice.randint(2, 12), dice.choice([np.int64, np.int32]))}, attributes, "y", 17)
    if operator == "MelWeightMatrix":
        rate = dice.choice([8000, 16000])
        return one(dice, operator, {"b": i64(dice.randint(1, 12)), "n": i64(dice.choice([16, 64, 100])), "r": i64(rate), "l": f32(dice.choice([0, 20, 300])), "h": f32(dice.choice([rate / 2, 3000]))}, {}, "y", 17, chance=0)
    if operator == "STFT":
        n, frame = dice.randint(8, 40), dice.choice([4, 5, 8])
        x = dice.numbers(dice.randint(1, 3), n, 1)
        window = dice.numbers(frame, low=0.1, high=1) if dice.maybe(0.7) else None
        onesided = dice.choice([0, 1])
        return one(dice, operator, {"x": x, "s": i64(dice.randint(1, 5)), "w": window, "f": i64(frame) if window is None or dice.maybe() else None}, {"onesided": onesided}, "y", 17, chance=0)
    rank = dice.randint(1, 3)
    shape = [dice.randint(1, 3), *dice.shape(rank, 9)]
    kind = dice.choice([np.float32, np.float64])
    both = dice.maybe()
    x = dice.numbers(*shape, 2 if both else 1, kind=kind)
    axis = dice.randint(1, rank)
    inverse = dice.choice([0, 0, 1])
    onesided = 0 if inverse or both else dice.choice([0, 1])
    length = i64(dice.randint(1, 12)) if dice.maybe() else None
    attributes = {"inverse": inverse, "onesided": onesided}
    if operator == "DFT17":
        return one(dice, "DFT", {"x": x, "l": length}, attributes | {"axis": axis}, "y", 17, chance=0)
    return one(dice, "DFT", {"x": x, "l": length, "a": i64(dice.signed(axis, x.ndim))}, attributes, "y", 20, chance=0)


@family
def images(dice):
    operator = dice.choice(["Col2Im", "CenterCropPad", "GridSample3", "GridSample", "RoiAlign", "MaxRoiPool", "MaxUnpool", "NonMaxSuppression", "AffineGrid", "DeformConv", "GlobalLpPool", "Resize3", "ResizeAxes", "CropAndResize"])
    if operator == "Col2Im":
        block = [dice.randint(1, 3), dice.randint(1, 3)]
        strides, dilations, pads = [dice.randint(1, 2), dice.randint(1, 2)], [dice.randint(1, 2), dice.randint(1, 2)], [dice.randint(0, 1) for _ in range(4)]
        size = [dice.randint(5, 8), dice.randint(5, 8)]
        counts = [(size[i] + pads[i] + pads[i + 2] - dilations[i] * (block[i] - 1) - 1) // strides[i] + 1 for i in range(2)]
        x = dice.numbers(dice.randint(1, 2), 2 * block[0] * block[1], counts[0] * counts[1])
        return one(dice, operator, {"x": x, "s": i64(size), "b": i64(block)}, {"strides": strides, "dilations": dilations, "pads": pads}, "y", 18, chance=0)
    if operator == "CenterCropPad":
        rank = dice.randint(1, 4)
        x = dice.numbers(*dice.shape(rank, 7))
        axes = dice.sample(range(rank), dice.randint(1, rank))
        attributes = {} if len(axes) == rank and dice.maybe() else {"axes": [dice.signed(a, rank) for a in axes]}
        return one(dice, operator, {"x": x, "s": i64([dice.randint(1, 9) for _ in axes])}, attributes, "y", 18, chance=0)
    if operator.startswith("GridSample"):
        rank = 3 if operator.endswith("3") else 2
        x = dice.numbers(2, dice.randint(1, 2), *dice.shape(rank, 5))
        grid = dice.numbers(2, *dice.shape(rank, 4), rank, low=-1.4, high=1.4)
        old = rank == 2 and dice.maybe()
        modes = ["bilinear", "nearest", "bicubic"] if old else ["linear", "nearest"] + (["cubic"] if rank == 2 else [])
        return one(dice, "GridSample", {"x": x, "g": grid}, {"mode": dice.choice(modes), "padding_mode": dice.choice(["zeros", "border", "reflection"]), "align_corners": dice.choice([0, 1])}, "y", 16 if old else 20)
    if operator == "MaxRoiPool":
        x = dice.numbers(2, 2, 7, 8)
        boxes = np.array([[dice.randint(0, 1), dice.randint(0, 3), dice.randint(0, 3), dice.randint(3, 7), dice.randint(3, 6)] for _ in range(3)], np.float32)
        return one(dice, operator, {"x": x, "r": boxes}, {"pooled_shape": [dice.randint(1, 3), dice.randint(1, 3)], "spatial_scale": dice.choice([1.0, 0.5])}, "y", 11)
    if operator == "RoiAlign":
        x = dice.numbers(2, 2, 7, 8)
        start = dice.numbers(3, 2, low=-1, high=4)
        boxes = np.concatenate([start, start + dice.numbers(3, 2, low=-1, high=4)], 1)
        attributes = {"mode": dice.choice(["avg", "max"]), "output_height": dice.randint(1, 3), "output_width": dice.randint(1, 3), "sampling_ratio": dice.choice([0, 1, 2]), "spatial_scale": dice.choice([1.0, 0.5])}
        opset = dice.choice([10, 16, 22])
        if opset > 10:
            attributes["coordinate_transformation_mode"] = dice.choice(["half_pixel", "output_half_pixel"])
        return one(dice, operator, {"x": x, "b": boxes, "i": dice.numbers(3, kind=np.int64, low=0, high=1)}, attributes, "y", opset)
    if operator == "MaxUnpool":
        x = dice.numbers(1, 2, 6, 6)
        nodes = [node("MaxPool", ["x"], ["p", "i"], kernel_shape=[2, 2], strides=[2, 2]), node("MaxUnpool", ["p", "i"], ["y"], kernel_shape=[2, 2], strides=[2, 2])]
        return Case(nodes, {"x": x}, ["y"], opset=11)
    if operator == "NonMaxSuppression":
        batch, classes, count = dice.randint(1, 2), dice.randint(1, 3), dice.randint(1, 12)
        corner = dice.numbers(batch, count, 2, low=0, high=5)
        boxes = np.concatenate([corner, corner + dice.numbers(batch, count, 2, low=0.5, high=4)], 2)
        centred = dice.choice([0, 1])
        if not centred and dice.maybe(0.3):
            boxes = boxes[..., [2, 3, 0, 1]]
        scores = dice.numbers(batch, classes, count, low=0, high=1)
        if dice.maybe(0.3):
            scores = np.round(scores, 1)
        return one(dice, operator, {"b": boxes, "s": scores, "m": i64([dice.randint(0, 5)]), "i": f32([dice.choice([0.0, 0.3, 0.5, 1.0])]), "t": f32([dice.choice([0.0, 0.3])]) if dice.maybe() else None}, {"center_point_box": centred}, "y", dice.choice([10, 11]), chance=0.5)
    if operator == "AffineGrid":
        # Where one place lies between its corners, ONNX's own reference and onnxruntime differ.
        rank = dice.choice([2, 3])
        return one(dice, operator, {"t": dice.numbers(2, rank, rank + 1), "s": i64([2, 3, *(n + 1 for n in dice.shape(rank, 4))])}, {"align_corners": dice.choice([0, 1])}, "y", 20)
    if operator == "DeformConv":
        group, offsets = dice.choice([1, 2]), dice.choice([1, 2])
        x, w = dice.numbers(1, 4, 5, 6), dice.numbers(4, 4 // group, 2, 3)
        return one(dice, operator, {"x": x, "w": w, "o": dice.numbers(1, offsets * 12, 4, 4, low=-1, high=1), "b": dice.numbers(4) if dice.maybe() else None,
                                    "m": dice.numbers(1, offsets * 6, 4, 4) if dice.maybe() else None}, {"group": group, "offset_group": offsets, "kernel_shape": [2, 3]}, "y", 19)
    if operator == "GlobalLpPool":
        return one(dice, operator, {"x": dice.numbers(*dice.shape(dice.randint(3, 5), 4))}, {"p": dice.choice([1, 2, 3])}, "y", 11)
    if operator == "Resize3":
        x = dice.numbers(1, 1, *dice.shape(3, 4))
        return one(dice, "Resize", {"x": x, "r": None, "s": None, "z": i64([1, 1, *dice.shape(3, 7)])}, {"mode": dice.choice(["nearest", "linear"]), "coordinate_transformation_mode": dice.choice(["half_pixel", "asymmetric", "align_corners"])}, "y", dice.choice([11, 13, 18]))
    if operator == "ResizeAxes":
        x = dice.numbers(*dice.shape(4, 6))
        axes = dice.choice([[2, 3], [1, 2], [3, 2]])
        attributes = {"mode": dice.choice(["nearest", "linear"]), "axes": axes}
        if dice.maybe():
            attributes["keep_aspect_ratio_policy"] = dice.choice(["not_larger", "not_smaller"])
            return one(dice, "Resize", {"x": x, "r": None, "s": None, "z": i64(dice.shape(2, 9))}, attributes, "y", 18)
        if attributes["mode"] == "linear" and dice.maybe():
            attributes["antialias"] = 1
            attributes["axes"] = [2, 3]
        return one(dice, "Resize", {"x": x, "r": None, "s": f32([dice.choice([0.5, 1, 1.5, 2]), dice.choice([0.4, 1, 2])])}, attributes, "y", 18)
    start = dice.numbers(3, 2, low=0, high=0.6)
    boxes = np.concatenate([start, start + dice.numbers(3, 2, low=0, high=0.6)], 1)
    return one(dice, operator, {"x": dice.numbers(2, 2, 5, 6), "b": boxes, "i": dice.numbers(3, kind=np.int32, low=0, high=1), "s": i64([dice.randint(1, 3), dice.randint(1, 4)]).astype(np.int32)},
               {"mode": dice.choice(["bilinear", "nearest"]), "extrapolation_value": 0.5}, "y", 17, MS)


# Texts.


@family
def texts(dice):
    operator = dice.choice(["StringNormalizer", "StringConcat", "StringSplit", "RegexFullMatch", "TfIdfVectorizer", "Equal", "Where", "Gather", "Concat", "Reshape", "Tokenizer", "Slice", "Expand", "Tile", "Pad", "Identity", "GatherND", "Compress", "Squeeze", "Transpose", "GatherElements", "Split"])
    among = ["a", "b", "Cat", "DOG", "", "é", "a b", "the", "The", "x,y,,z", " pad ", "ÄÖ", "ab12"]
    shape = dice.shape(2, 4)
    x = dice.words(*shape, among=among)
    if operator == "StringNormalizer":
        x = dice.words(dice.randint(1, 6), among=among) if dice.maybe() else dice.words(1, dice.randint(1, 6), among=among)
        attributes = {"case_change_action": dice.choice(["NONE", "UPPER", "LOWER"]), "is_case_sensitive": dice.choice([0, 1]), "locale": "C.UTF-8"}
        if dice.maybe():
            attributes["stopwords"] = dice.sample(["the", "a", "cat", "DOG"], 2)
        return one(dice, operator, {"x": x}, attributes, "y", 10)
    if operator == "StringConcat":
        return one(dice, operator, {"x": x, "z": dice.words(*dice.part(shape), among=among)}, {}, "y", 20)
    if operator == "StringSplit":
        attributes = {"delimiter": dice.choice([",", " ", "", "a", ",,"])} if dice.maybe(0.7) else {}
        if dice.maybe():
            attributes["maxsplit"] = dice.randint(0, 3)
        return one(dice, operator, {"x": x}, attributes, "y n", 20)
    if operator == "RegexFullMatch":
        return one(dice, operator, {"x": x}, {"pattern": dice.choice([r"[a-z]+", r".*", r"\w+\d{2}", "(?i)the", r"\S*", "a|b", r"[^a]*", r"\p{Lu}+"])}, "y", 20)
    if operator == "TfIdfVectorizer":
        n = dice.randint(1, 3)
        words = ["a", "b", "c", "d"]
        counts, pool, indexes = [], [], []
        for length in range(1, n + 1):
            counts.append(len(pool))
            grams = {tuple(dice.choice(words) for _ in range(length)) for _ in range(dice.randint(1, 3))}
            for gram in sorted(grams):
                pool.extend(gram)
                indexes.append(len(indexes))
        dice.shuffle(indexes)
        least = dice.randint(1, n)
        attributes = {"mode": dice.choice(["TF", "IDF", "TFIDF"]), "min_gram_length": least, "max_gram_length": n, "max_skip_count": dice.randint(0, 3), "ngram_counts": counts, "ngram_indexes": indexes}
        if dice.maybe(0.7):
            attributes["weights"] = [round(dice.uniform(0.1, 3), 2) for _ in indexes]
        shape = dice.shape(dice.randint(1, 2), 9)
        if dice.maybe():
            return one(dice, operator, {"x": dice.words(*shape, among=words)}, attributes | {"pool_strings": pool}, "y", 9)
        return one(dice, operator, {"x": dice.numbers(*shape, kind=dice.choice([np.int64, np.int32]), low=0, high=4)}, attributes | {"pool_int64s": [words.index(w) for w in pool]}, "y", 9)
    if operator == "Tokenizer":
        attributes = {"mark": dice.choice([0, 1]), "pad_value": "#", "mincharnum": dice.randint(1, 2)}
        attributes |= {"separators": dice.choice([[" "], [",", " "], [""]])} if dice.maybe(0.7) else {"tokenexp": "[a-z]+"}
        return one(dice, operator, {"x": x}, attributes, "y", 17, MS)
    if operator == "Equal":
        return one(dice, operator, {"x": x, "z": dice.words(*dice.part(shape), among=among[:3])}, {}, "y", 19)
    if operator == "Where":
        return one(dice, operator, {"c": dice.numbers(*dice.part(shape)) > 0, "x": x, "z": dice.words(*dice.part(shape))}, {}, "y", 16)
    if operator == "Gather":
        return one(dice, operator, {"x": x, "i": dice.numbers(2, kind=np.int64, low=-shape[1], high=shape[1] - 1)}, {"axis": 1}, "y", 13)
    if operator == "GatherElements":
        return one(dice, operator, {"x": x, "i": dice.numbers(*shape, kind=np.int64, low=-shape[1], high=shape[1] - 1)}, {"axis": 1}, "y", 13)
    if operator == "GatherND":
        return one(dice, operator, {"x": x, "i": dice.numbers(2, 1, kind=np.int64, low=-shape[0], high=shape[0] - 1)}, {}, "y", 13)
    if operator == "ScatterND":
        return one(dice, operator, {"x": x, "i": i64([[0]]), "u": dice.words(1, shape[1])}, {}, "y", 13)
    if operator == "Compress":
        return one(dice, operator, {"x": x, "c": dice.numbers(shape[0]) > 0}, {"axis": 0}, "y", 11)
    if operator == "Squeeze":
        return one(dice, operator, {"x": x[None], "a": i64([0])}, {}, "y", 13)
    if operator == "Transpose":
        return one(dice, operator, {"x": x}, {"perm": [1, 0]}, "y", 13)
    if operator == "Split":
        return one(dice, operator, {"x": np.concatenate([x, x])}, {"num_outputs": 2}, "y z", 18)
    if operator == "Concat":
        return one(dice, operator, {"x": x, "z": dice.words(*shape)}, {"axis": dice.choice([0, 1, -1])}, "y", 13)
    if operator == "Unique":
        return one(dice, operator, {"x": x}, {"sorted": dice.choice([0, 1])}, "y i v c", 11)
    if operator == "Reshape":
        return one(dice, operator, {"x": x, "s": i64([-1])}, {}, "y", 14)
    if operator == "Slice":
        return one(dice, operator, {"x": x, "s": i64([-1]), "e": i64([-9]), "a": i64([1]), "t": i64([-1])}, {}, "y", 13)
    if operator == "Expand":
        return one(dice, operator, {"x": x[:1], "n": i64([3, shape[1]])}, {}, "y", 13)
    if operator == "Tile":
        return one(dice, operator, {"x": x, "n": i64([2, 1])}, {}, "y", 13)
    if operator == "Pad":
        return one(dice, operator, {"x": x, "p": i64([0, 1, 1, 0]), "v": np.array("p", object)}, {}, "y", 19)
    if operator == "SequenceAt":
        nodes = [node("SplitToSequence", ["x"], ["s"], axis=0, keepdims=dice.choice([0, 1])), node("SequenceAt", ["s", "i"], ["y"])]
        return Case(nodes, {"x": x}, ["y"], {"i": i64(-1)})
    return one(dice, "Identity", {"x": x}, {}, "y", 16)


# Sequences, branches and loops.


def graph(name, nodes, inputs, outputs, held=()):
    info = lambda key, kind: helper.make_tensor_value_info(key, kind, None)
    return helper.make_graph(nodes, name, [info(*i) for i in inputs], [info(*o) for o in outputs], [numpy_helper.from_array(np.asarray(v), k) for k, v in held])


@family
def control(dice):
    way = dice.choice(["if", "loop", "while", "scan", "scan_back", "sequence", "split", "if_outer", "loop_of_loop", "concat_from", "loop_sequence"])
    x = dice.numbers(*dice.shape(2, 5))
    if way in ("if", "if_outer"):
        then = graph("then", [node("Mul", ["x", "two"], ["a"])], [], [("a", T.FLOAT)], [("two", f32(2))])
        other = graph("other", [node("Concat", ["x", "x"], ["b"], axis=0)], [], [("b", T.FLOAT)]) if dice.maybe() else graph("other", [node("ReduceSum", ["x"], ["b"], keepdims=0)], [], [("b", T.FLOAT)])
        if way == "if":
            return Case([node("If", ["c"], ["y"], then_branch=then, else_branch=other)], {"x": x, "c": np.array(dice.maybe())}, ["y"])
        nodes = [node("ReduceSum", ["x"], ["t"], keepdims=0), node("Greater", ["t", "zero"], ["c"]), node("If", ["c"], ["z"], then_branch=then, else_branch=other), node("Relu", ["z"], ["y"])]
        return Case(nodes, {"x": x}, ["y"], {"zero": f32(0)})
    if way in ("loop", "while", "loop_of_loop"):
        body = [node("Add", ["v", "x"], ["w"]), node("Cast", ["i"], ["f"], to=T.FLOAT), node("Mul", ["w", "f"], ["s"])]
        if way == "while":
            body += [node("ReduceMax", ["w"], ["m"], keepdims=0), node("Less", ["m", "limit"], ["d"])]
        elif way == "loop_of_loop":
            inner = graph("inner", [node("Mul", ["p", "half"], ["q"]), node("Identity", ["e"], ["g"])], [("j", T.INT64), ("e", T.BOOL), ("p", T.FLOAT)], [("g", T.BOOL), ("q", T.FLOAT)])
            body = [node("Loop", ["i", "", "v"], ["o"], body=inner), node("Add", ["o", "x"], ["w"]), node("Identity", ["c"], ["d"]), node("ReduceSum", ["w"], ["s"], keepdims=0)]
        else:
            body += [node("Identity", ["c"], ["d"])]
        body = graph("body", body, [("i", T.INT64), ("c", T.BOOL), ("v", T.FLOAT)], [("d", T.BOOL), ("w", T.FLOAT), ("s", T.FLOAT)])
        return Case([node("Loop", ["n", "go", "v0"], ["y", "all"], body=body)], {"x": x, "n": i64(dice.randint(0, 6))}, ["y", "all"], {"v0": np.zeros_like(x), "limit": f32(3), "half": f32(0.5), "go": np.array(dice.maybe(0.9))})
    if way in ("scan", "scan_back"):
        steps = dice.numbers(dice.randint(1, 5), 3)
        body = graph("body", [node("Add", ["s", "e"], ["t"]), node("Mul", ["t", "e"], ["o"])], [("s", T.FLOAT), ("e", T.FLOAT)], [("t", T.FLOAT), ("o", T.FLOAT)])
        attributes = {"num_scan_inputs": 1}
        if way == "scan_back":
            attributes |= {"scan_input_directions": [dice.choice([0, 1])], "scan_output_directions": [dice.choice([0, 1])], "scan_input_axes": [dice.choice([0, -2])], "scan_output_axes": [dice.choice([0, 1, -1])]}
        return Case([node("Scan", ["s0", "x"], ["last", "y"], body=body, **attributes)], {"x": steps, "s0": dice.numbers(3)}, ["last", "y"], opset=dice.choice([9, 11, 16]))
    if way == "loop_sequence":
        body = [node("SequenceInsert", ["q", "x"], ["r"]), node("Identity", ["c"], ["d"])]
        info = helper.make_tensor_sequence_value_info
        body = helper.make_graph(body, "body", [helper.make_tensor_value_info("i", T.INT64, []), helper.make_tensor_value_info("c", T.BOOL, []), info("q", T.FLOAT, None)], [helper.make_tensor_value_info("d", T.BOOL, []), info("r", T.FLOAT, None)])
        nodes = [node("SequenceEmpty", [], ["e"]), node("Loop", ["n", "", "e"], ["z"], body=body), node("ConcatFromSequence", ["z"], ["y"], axis=0, new_axis=dice.choice([0, 1]))]
        return Case(nodes, {"x": x, "n": i64(dice.randint(1, 4))}, ["y"])
    if way == "split":
        axis = dice.choice([0, 1])
        n = x.shape[axis]
        held = {}
        # With lengths, axes are kept whatever is asked for; onnxruntime does not where each is one.
        if dice.maybe(0.7):
            held["p"] = i64(dice.randint(1, n)) if dice.maybe() else i64([1, n - 1] if n > 1 else [n])
        return Case([node("SplitToSequence", ["x", *held], ["y"], axis=axis - 2 if dice.maybe() else axis, keepdims=1 if held else dice.choice([0, 1]))], {"x": x}, ["y"], held)
    nodes = [node("SequenceConstruct", ["x", "x"], ["s"]), node("Neg", ["x"], ["n"]), node("SequenceInsert", ["s", "n", "i"], ["t"]), node("SequenceErase", ["t", "j"], ["u"]), node("SequenceLength", ["u"], ["l"])]
    held = {"i": i64(dice.randint(-2, 2)), "j": i64(dice.randint(-3, 2))}
    if way == "concat_from":
        nodes.append(node("ConcatFromSequence", ["u"], ["y"], axis=dice.choice([0, 1, -1]), new_axis=dice.choice([0, 1])))
        return Case(nodes, {"x": x}, ["y", "l"], held)
    return Case(nodes, {"x": x}, ["u", "l"], held)


# Of com.microsoft.


@family
def microsoft(dice):
    operator = dice.choice(["BiasGelu", "FastGelu", "Gelu", "QuickGelu", "FusedMatMul", "FusedGemm", "FusedConv", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "EmbedLayerNormalization", "MultiHeadAttention",
                            "Attention", "RotaryEmbedding", "MatMulNBits", "DynamicQuantizeMatMul", "MatMulIntegerToFloat", "QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu", "QLinearConcat", "QLinearGlobalAveragePool",
                            "QLinearAveragePool", "QLinearSoftmax", "QGemm", "CDist", "Inverse", "ExpandDims", "Trilu", "Unique", "BiasAdd", "BiasSplitGelu", "TransposeMatMul", "GatherND", "Pad", "Range", "QuantizeLinear", "DequantizeLinear", "QLinearWhere", "GatherBlockQuantized", "NhwcMaxPool", "DynamicQuantizeLSTM"])
    make = lambda values, attributes=None, outputs="y", **more: one(dice, operator, values, attributes or {}, outputs, 17, MS, **more)
    batch, steps, width = dice.randint(1, 3), dice.randint(1, 5), 8
    x = dice.numbers(batch, steps, width)
    own = lambda *s: dice.numbers(*(s or (width,)))
    kind = dice.choice([np.uint8, np.int8])
    every = lambda *s, kind=kind: dice.whole(*s, kind=kind)
    scale = lambda *s: dice.numbers(*s, low=0.02, high=0.1)
    zero = lambda *s, kind=kind: dice.numbers(*s, kind=kind, low=0, high=9)
    step = {"tolerance": (0, 1.01)}
    if operator in ("BiasGelu", "FastGelu"):
        return make({"x": x, "b": own() if operator == "BiasGelu" or dice.maybe() else None})
    if operator == "Gelu":
        return make({"x": x})
    if operator == "QuickGelu":
        return make({"x": x}, {"alpha": dice.choice([1.702, 1.0])})
    if operator in ("FusedMatMul", "TransposeMatMul"):
        rows, terms, columns = dice.shape(3, 6)
        a, b, deep = dice.choice([0, 1]), dice.choice([0, 1]), dice.choice([[], [2], [2, 3]])
        turn = lambda s, t: s[::-1] if t else s
        attributes = {"transA": a, "transB": b, "alpha": dice.choice([1.0, 0.25])}
        if operator == "FusedMatMul" and deep and dice.maybe(0.3):
            attributes |= {"transBatchA": 1, "transBatchB": 1}
            # The batch's lengths stand between the matrix' two.
            move = lambda m, t: np.ascontiguousarray(np.moveaxis(m, -1 if t else -2, 0) if t else np.moveaxis(m, -2, 0))
            return make({"x": move(dice.numbers(*deep, *turn([rows, terms], a)), 0), "w": move(dice.numbers(*deep, *turn([terms, columns], b)), 0)}, attributes)
        return make({"x": dice.numbers(*deep, *turn([rows, terms], a)), "w": dice.numbers(*deep, *turn([terms, columns], b))}, attributes)
    if operator == "FusedGemm":
        return make({"x": own(3, 4), "w": own(4, 5), "c": own(5)}, {"activation": dice.choice(["Relu", "Tanh", "Sigmoid", "LeakyRelu"]), "activation_alpha": 0.2, "alpha": 0.5, "beta": 2.0})
    if operator == "FusedConv":
        x = dice.numbers(2, 3, 6, 7)
        add = dice.maybe(0.4)
        return make({"x": x, "w": own(4, 3, 3, 3), "b": own(4) if dice.maybe() else None, "z": own(2, 4, 6, 7) if add else None}, {"pads": [1] * 4, "kernel_shape": [3, 3], "activation": dice.choice(["Relu", "Tanh", "Sigmoid"])})
    if operator == "SkipLayerNormalization":
        skip = own(*x.shape) if dice.maybe(0.7) else own(1, steps, width) if dice.maybe() else own(steps, width)
        return make({"x": x, "s": skip, "g": own(), "b": own() if dice.maybe() else None, "o": own() if dice.maybe() else None}, {"epsilon": 1e-3})
    if operator == "SkipSimplifiedLayerNormalization":
        return make({"x": x, "s": own(*x.shape), "g": own(), "o": own() if dice.maybe() else None}, {"epsilon": 1e-3})
    if operator == "EmbedLayerNormalization":
        ids = dice.numbers(batch, steps, kind=np.int32, low=0, high=8)
        segments = dice.maybe()
        mask = np.array([[1] * n + [0] * (steps - n) for n in [dice.randint(1, steps) for _ in range(batch)]], np.int32)
        return make({"i": ids, "s": dice.numbers(batch, steps, kind=np.int32, low=0, high=1) if segments else None, "w": own(9, width), "p": own(6, width), "t": own(2, width) if segments else None, "g": own(), "b": own(),
                     "m": mask if dice.maybe() else None}, {"epsilon": 1e-3}, "y m_i")
    if operator == "MultiHeadAttention":
        heads, keys = dice.choice([1, 2]), dice.randint(1, 5)
        mask = None
        way = dice.choice([0, 0, 1, 2])
        if way == 1:
            mask = dice.numbers(batch, kind=np.int32, low=1, high=keys)
        elif way == 2:
            mask = dice.numbers(batch, keys, kind=np.int32, low=0, high=1)
            mask[:, 0] = 1
        attributes = {"num_heads": heads} | ({"scale": 0.4} if dice.maybe(0.3) else {}) | ({"unidirectional": 1} if keys == steps and dice.maybe(0.3) else {})
        bias = own(3 * width) if dice.maybe() else None
        return make({"q": x, "k": own(batch, keys, width), "v": own(batch, keys, width), "b": bias, "m": mask, "r": own(dice.choice([1, batch]), dice.choice([1, heads]), steps, keys) if dice.maybe(0.4) else None}, attributes)
    if operator == "Attention":
        heads = dice.choice([1, 2])
        mask = None
        way = dice.choice([0, 0, 1, 2, 3])
        if way == 1:
            mask = dice.numbers(batch, kind=np.int32, low=1, high=steps)
        elif way == 2:
            mask = dice.numbers(batch, steps, kind=np.int32, low=0, high=1)
            mask[:, 0] = 1
        elif way == 3:
            mask = dice.numbers(batch, steps, steps, kind=np.int32, low=0, high=1)
            mask[..., 0] = 1
        return make({"x": x, "w": own(width, 3 * width), "b": own(3 * width), "m": mask}, {"num_heads": heads, "unidirectional": dice.choice([0, 0, 1])})
    if operator == "RotaryEmbedding":
        heads, size = 2, 4
        flat = dice.maybe()
        x = dice.numbers(batch, steps, heads * size) if flat else dice.numbers(batch, heads, steps, size)
        places = i64([dice.randint(0, 2)]) if dice.maybe() else dice.numbers(batch, steps, kind=np.int64, low=0, high=6)
        return make({"x": x, "p": places, "c": own(9, size // 2), "s": own(9, size // 2)}, {"interleaved": dice.choice([0, 1])} | ({"scale": 1.0}))
    if operator == "MatMulNBits":
        rows, columns, block, bits = dice.choice([16, 32, 40]), dice.randint(1, 9), dice.choice([16, 32]), dice.choice([4, 4, 8])
        blocks = -(-rows // block)
        bytes_ = block * bits // 8
        w = dice.whole(columns, blocks, bytes_, kind=np.uint8)
        zeros = dice.choice([None, dice.whole(columns, -(-blocks * bits // 8), kind=np.uint8)])
        return make({"x": own(3, rows), "w": w, "s": dice.numbers(columns * blocks, low=0.02, high=0.1), "z": zeros}, {"K": rows, "N": columns, "bits": bits, "block_size": block}, chance=0, tolerance=(2e-2, 2e-2))
    if operator in ("DynamicQuantizeMatMul", "MatMulIntegerToFloat"):
        w, per = every(width, 5, kind=np.int8), dice.choice([[], [5]])
        b = own(5) if dice.maybe() else None
        if operator == "DynamicQuantizeMatMul":
            return make({"x": x, "w": w, "s": scale(*per), "z": dice.numbers(*per, kind=np.int8) if dice.maybe() else None, "b": b}, chance=0)
        return make({"x": every(3, width, kind=np.uint8), "w": w, "xs": scale(), "ws": scale(*per), "xz": zero(kind=np.uint8) if dice.maybe() else None, "wz": dice.numbers(*per, kind=np.int8) if dice.maybe() else None, "b": b}, chance=0)
    if operator in ("QLinearAdd", "QLinearMul"):
        return make({"a": every(*x.shape), "as": scale(), "az": zero(), "b": every(*dice.part(x.shape)), "bs": scale(), "bz": zero(), "ys": scale(), "yz": zero()}, chance=0, **step)
    if operator in ("QLinearSigmoid", "QLinearLeakyRelu"):
        return make({"x": every(*x.shape), "s": scale(), "z": zero(), "ys": scale(), "yz": zero()}, {"alpha": 0.2} if operator != "QLinearSigmoid" else {}, chance=0, **step)
    if operator == "QLinearConcat":
        return make({"ys": scale(), "yz": zero(), "a": every(2, 3), "as": scale(), "az": zero(), "b": every(2, 4), "bs": scale(), "bz": zero()}, {"axis": 1}, chance=0, **step)
    if operator == "QLinearGlobalAveragePool":
        last = dice.choice([0, 1])
        return make({"x": every(2, 3, 4, 5), "xs": scale(), "xz": zero(), "ys": scale(), "yz": zero()}, {"channels_last": last}, chance=0, **step)
    if operator == "QLinearAveragePool":
        return make({"x": every(2, 3, 6, 5), "xs": scale(), "xz": zero(), "ys": scale(), "yz": zero()}, {"kernel_shape": [2, 3], "strides": [2, 1], "pads": [1, 1, 0, 1], "count_include_pad": dice.choice([0, 1]), "ceil_mode": 0}, chance=0, **step)
    if operator == "QLinearSoftmax":
        return make({"x": every(2, 3, 4), "xs": scale(), "xz": zero(), "ys": f32(1 / 256), "yz": np.array(0 if kind == np.uint8 else -128, kind)}, {"axis": dice.choice([-1, 1, 2]), "opset": 13}, chance=0, **step)
    if operator == "QGemm":
        t = dice.choice([0, 1])
        per = dice.choice([[], [5]])
        has = dice.maybe()
        return make({"a": every(3, 4, kind=np.uint8), "as": scale(), "az": zero(kind=np.uint8), "b": every(*([5, 4] if t else [4, 5]), kind=np.int8), "bs": scale(*per), "bz": np.zeros(per, np.int8),
                     "c": dice.numbers(5, kind=np.int32, low=-999, high=999) if dice.maybe() else None, "ys": scale() if has else None, "yz": zero(kind=np.uint8) if has else None}, {"transB": t, "alpha": dice.choice([1.0, 0.5])}, chance=0, **(step if has else {}))
    if operator == "CDist":
        return make({"x": own(3, 4), "z": own(5, 4)}, {"metric": dice.choice(["euclidean", "sqeuclidean"])})
    if operator == "Inverse":
        return make({"x": own(2, 3, 3) + 4 * np.eye(3, dtype=np.float32)}, tolerance=(1e-3, 1e-3))
    if operator == "ExpandDims":
        return make({"x": x, "a": np.array(dice.randint(-4, 3), np.int32)}, chance=0)
    if operator == "Trilu":
        return make({"x": x, "k": i64(dice.randint(-3, 3))}, {"upper": dice.choice([0, 1])})
    if operator == "Unique":
        return make({"x": np.round(own(9))}, {}, "y i c")
    if operator == "BiasAdd":
        return make({"x": x, "b": own(), "s": own(*x.shape)})
    if operator == "BiasSplitGelu":
        return make({"x": x, "b": own()})
    if operator == "GatherND":
        return make({"x": x, "i": np.zeros((2, 2), np.int64)})
    if operator == "Pad":
        return make({"x": own(3, 4), "p": i64([1, 0, 2, 1]), "v": f32([0.5])}, {"mode": dice.choice(["constant", "reflect", "edge"])}, chance=0)
    if operator == "Range":
        return make({"a": f32(1), "b": f32(8.5), "c": f32(1.5) if dice.maybe() else None})
    if operator in ("QuantizeLinear", "DequantizeLinear"):
        kind = dice.choice([np.uint8, np.int8, np.uint16, np.int16])
        x = dice.numbers(3, 4, low=-5, high=5) if operator[0] == "Q" else dice.whole(3, 4, kind=kind)
        own_axis = dice.maybe()
        return make({"x": x, "s": scale(*([4] if own_axis else [])), "z": dice.numbers(*([4] if own_axis else []), kind=kind, low=0, high=9)}, {"axis": 1}, chance=0, **(step if operator[0] == "Q" else {}))
    if operator == "QLinearWhere":
        return make({"c": dice.numbers(3, 4) > 0, "x": every(3, 4), "xs": scale(), "xz": zero(), "z": every(1, 4), "zs": scale(), "zz": zero(), "ys": scale(), "yz": zero()}, chance=0, **step)
    if operator == "GatherBlockQuantized":
        w = dice.whole(5, 16, kind=np.uint8)
        return make({"w": w, "i": dice.numbers(2, 3, kind=np.int64, low=0, high=4), "s": dice.numbers(5, 2, low=0.02, high=0.1)}, {"block_size": 16, "bits": 4, "gather_axis": 0, "quantize_axis": 1}, chance=0)
    if operator == "NhwcMaxPool":
        return make({"x": every(2, 6, 5, 3)}, {"kernel_shape": [2, 3], "strides": [2, 1], "pads": [1, 1, 0, 1], "ceil_mode": dice.choice([0, 1])}, chance=0)
    size = 3
    return make({"x": own(4, 2, 5), "w": dice.whole(1, 5, 4 * size, kind=np.int8), "r": dice.whole(1, size, 4 * size, kind=np.int8), "b": own(1, 8 * size), "n": None, "h": None, "c": None, "p": None, "ws": scale(1) / 8, "wz": np.zeros(1, np.int8), "rs": scale(1) / 8, "rz": np.zeros(1, np.int8)},
                {"hidden_size": size}, "y h c", chance=0, tolerance=(2e-2, 2e-2))


@family
def quantized(dice):
    """Newer forms of QuantizeLinear and DequantizeLinear: blocks, 16 bits, float16."""
    kind = dice.choice([np.uint8, np.int8, np.uint16, np.int16])
    rows, columns = dice.choice([2, 4, 6]), dice.choice([4, 8, 12])
    way = dice.choice(["one", "axis", "block"])
    shape = {"one": [], "axis": [columns], "block": [rows, columns // 4]}[way]
    attributes = {"axis": dice.choice([1, -1])} | ({"block_size": 4} if way == "block" else {})
    info = np.iinfo(kind)
    scale, zero = dice.numbers(*shape, low=0.02, high=0.1), dice.whole(*shape, kind=kind) if dice.maybe(0.7) else None
    float_kind = dice.choice([np.float32, np.float32, np.float16])
    if dice.maybe():
        x = dice.whole(rows, columns, kind=kind)
        return one(dice, "DequantizeLinear", {"x": x, "s": scale.astype(float_kind), "z": zero}, attributes, "y", dice.choice([21, 23]), **loose(float_kind))
    if zero is None:
        zero = np.zeros(shape, kind)
    x = dice.numbers(rows, columns, kind=float_kind, low=-9, high=9) * float_kind(dice.choice([1, 0.2]))
    return one(dice, "QuantizeLinear", {"x": x, "s": scale.astype(float_kind), "z": zero}, attributes, "y", dice.choice([21, 23]), tolerance=(0, 1.01 if float_kind == np.float16 else 0))


@family
def others(dice):
    operator = dice.choice(["Acos", "Acosh", "Asin", "Atanh", "Cosh", "Sinh", "Softsign", "And", "Or", "Xor", "BitCast", "GlobalMaxPool", "GreaterOrEqual", "IsInf", "ReduceLogSum", "Shape", "Size", "TensorScatter", "NegativeLogLikelihoodLoss",
                            "SoftmaxCrossEntropyLoss", "SwiGLU", "CumProd", "Optional", "NonZero", "SpaceToDepth", "MeanVarianceNormalization", "Celu", "LpNormalization", "Slice10", "ScatterND", "ReverseSequence", "Pad18", "SequenceOfSequences", "Where64", "Gemm16", "Scan8"])
    x = dice.numbers(*dice.shape(dice.randint(2, 4), 5))
    rank = x.ndim
    if operator in ("And", "Or", "Xor"):
        return one(dice, operator, {"x": x > 0, "z": dice.numbers(*dice.part(x.shape)) > 0}, {}, "y", 13)
    if operator in ("Acos", "Asin", "Atanh"):
        return one(dice, operator, {"x": x / 3.1}, {}, "y", dice.choice([9, 22]))
    if operator == "Acosh":
        return one(dice, operator, {"x": np.abs(x) + 1}, {}, "y", 9)
    if operator == "BitCast":
        return one(dice, operator, {"x": x}, {"to": T.INT32}, "y", 26)
    if operator == "GreaterOrEqual":
        return one(dice, operator, {"x": np.round(x), "z": np.round(x[:1])}, {}, "y", 16)
    if operator == "IsInf":
        x.ravel()[:2] = [np.inf, -np.inf][: x.size]
        return one(dice, operator, {"x": x}, {"detect_negative": dice.choice([0, 1]), "detect_positive": dice.choice([0, 1])}, "y", 10)
    if operator == "ReduceLogSum":
        return one(dice, operator, {"x": np.abs(x) + 1, "a": i64(dice.sample(range(rank), dice.randint(1, rank)))}, {"keepdims": dice.choice([0, 1])}, "y", 18)
    if operator == "Shape":
        return one(dice, operator, {"x": x}, {"start": dice.randint(-5, 3), "end": dice.randint(-5, 6)}, "y", 15)
    if operator == "TensorScatter":
        batch, most, steps = dice.randint(1, 3), dice.randint(4, 6), dice.randint(1, 3)
        mode = dice.choice(["linear", "circular"])
        at = dice.numbers(batch, kind=np.int64, low=0, high=most - (steps if mode == "linear" else 1))
        deep = dice.choice([[], [2]])
        return one(dice, operator, {"x": dice.numbers(batch, *deep, most, 3), "u": dice.numbers(batch, *deep, steps, 3), "i": at}, {"mode": mode}, "y", 24)
    if operator in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"):
        classes, more = dice.randint(2, 5), dice.choice([[], [3], [2, 3]])
        x = dice.numbers(4, classes, *more)
        labels = dice.numbers(4, *more, kind=np.int64, low=0, high=classes - 1)
        attributes = {"reduction": dice.choice(["none", "mean", "sum"])}
        if dice.maybe():
            attributes["ignore_index"] = dice.choice([-1, 1])
            labels[0] = attributes["ignore_index"]
        outputs = "y l" if operator[0] == "S" and dice.maybe() else "y"
        return one(dice, operator, {"x": x, "l0": labels, "w": dice.numbers(classes, low=0.2) if dice.maybe() else None}, attributes, outputs, 13)
    if operator == "CumProd":
        return one(dice, operator, {"x": x, "a": i64(dice.randint(-rank, rank - 1))}, {"exclusive": dice.choice([0, 1]), "reverse": dice.choice([0, 1])}, "y", 26)
    if operator == "Optional":
        nodes = [node("Optional", ["x"], ["o"]), node("OptionalHasElement", ["o"], ["h"]), node("OptionalGetElement", ["o"], ["y"])]
        return Case(nodes, {"x": x}, ["y", "h"], opset=18)
    if operator == "SpaceToDepth":
        return one(dice, operator, {"x": dice.numbers(2, 3, 4, 6)}, {"blocksize": 2}, "y", 13)
    if operator == "Celu":
        return one(dice, operator, {"x": x}, {"alpha": dice.choice([0.5, 2.0])}, "y", 12)
    if operator == "LpNormalization":
        x[0] = 0
        return one(dice, operator, {"x": x}, {"axis": dice.randint(-rank, rank - 1), "p": dice.choice([1, 2])}, "y", dice.choice([1, 22]) if dice.maybe(0) else 13)
    if operator == "MeanVarianceNormalization":
        return one(dice, operator, {"x": dice.numbers(2, 3, 4, 2)}, {}, "y", dice.choice([9, 13]))
    if operator == "Slice10":
        return one(dice, "Slice", {"x": x, "s": i64([dice.randint(-4, 3)]), "e": i64([dice.randint(-4, 9)])}, {}, "y", 10)
    if operator == "ScatterND":
        return one(dice, "ScatterND", {"x": dice.whole(4, 3, kind=np.int32), "i": i64([[0], [2], [0]]), "u": dice.whole(3, 3, kind=np.int32) // 8}, {"reduction": dice.choice(["add", "max", "min"])}, "y", 18)
    if operator == "ReverseSequence":
        x = dice.numbers(4, 3, 2)
        axis = dice.choice([0, 1])
        return one(dice, operator, {"x": x, "n": dice.numbers(x.shape[1 - axis], kind=np.int64, low=1, high=x.shape[axis])}, {"batch_axis": 1 - axis, "time_axis": axis}, "y", 10)
    if operator == "Pad18":
        axes = dice.sample(range(rank), dice.randint(1, rank))
        return one(dice, "Pad", {"x": x, "p": i64([dice.randint(-0, 2) for _ in range(2 * len(axes))]), "v": f32(1.5), "a": i64([dice.signed(a, rank) for a in axes])}, {}, "y", 18)
    if operator == "Where64":
        return one(dice, "Where", {"c": x > 0, "x": dice.whole(*x.shape), "z": dice.whole(1)}, {}, "y", 9)
    if operator == "Gemm16":
        return one(dice, "Gemm", {"x": dice.numbers(3, 4, kind=np.float16), "w": dice.numbers(4, 5, kind=np.float16), "c": dice.numbers(5, kind=np.float16)}, {"alpha": 0.5}, "y", 13, **HALF)
    if operator == "SequenceOfSequences":
        nodes = [node("SplitToSequence", ["x"], ["s"], axis=-1, keepdims=1), node("SequenceAt", ["s", "i"], ["a"]), node("SequenceInsert", ["s", "a"], ["t"]), node("SequenceLength", ["t"], ["l"]), node("ConcatFromSequence", ["t"], ["y"], axis=-1)]
        return Case(nodes, {"x": x}, ["y", "l"], {"i": i64(dice.randint(-x.shape[-1], x.shape[-1] - 1))}, opset=dice.choice([11, 13, 17]))
    if operator == "Scan8":
        steps = dice.numbers(2, dice.randint(1, 5), 3)
        body = graph("body", [node("Add", ["s", "e"], ["t"]), node("Mul", ["t", "e"], ["o"])], [("s", T.FLOAT), ("e", T.FLOAT)], [("t", T.FLOAT), ("o", T.FLOAT)])
        return Case([node("Scan", ["", "s0", "x"], ["last", "y"], body=body, num_scan_inputs=1)], {"x": steps, "s0": dice.numbers(2, 3)}, ["last", "y"], opset=8)
    if operator == "SwiGLU":
        return one(dice, operator, {"x": dice.numbers(2, 8)}, {}, "y", 26)
    return one(dice, operator, {"x": x}, {}, "y", 13)


@family
def microsoft_more(dice):
    operator = dice.choice(["GridSample", "MulInteger", "NhwcConv", "NhwcFusedConv", "QAttention", "QLinearConv", "QLinearReduceMean", "ReduceSumInteger", "FusedMatMulActivation", "AttentionPast", "MultiHeadAttentionPast", "MultiHeadAttentionPacked", "MultiHeadAttentionCross", "RotaryPart",
                            "SkipOutputs", "MatMulNBitsMore", "FusedConv1", "QGemmMore", "QLinearMatMulBatch", "FusedGemmTurned", "FusedMatMulBroadcast", "BiasGeluHalf", "GatherBlock8", "EmbedPlaces", "QuantizeBlock"])
    make = lambda operator, values, attributes=None, outputs="y", **more: one(dice, operator, values, attributes or {}, outputs, 17, MS, **more)
    own = lambda *s: dice.numbers(*s)
    kind = dice.choice([np.uint8, np.int8])
    every = lambda *s, kind=kind: dice.whole(*s, kind=kind)
    scale = lambda *s: dice.numbers(*s, low=0.02, high=0.1)
    zero = lambda *s, kind=kind: dice.numbers(*s, kind=kind, low=0, high=9)
    step = {"tolerance": (0, 1.01), "chance": 0}
    batch, steps, width = dice.randint(1, 3), dice.randint(1, 4), 8
    if operator == "GridSample":
        return make(operator, {"x": own(2, 2, 4, 5), "g": dice.numbers(2, 3, 3, 2, low=-1.3, high=1.3)}, {"mode": dice.choice(["bilinear", "nearest", "bicubic"]), "padding_mode": dice.choice(["zeros", "border", "reflection"]), "align_corners": dice.choice([0, 1])})
    if operator == "MulInteger":
        return make(operator, {"a": every(3, 4), "az": zero(), "b": every(4), "bz": zero()}, chance=0)
    if operator == "ReduceSumInteger":
        return make(operator, {"x": every(3, 4, 2)}, {"axes": [1], "keepdims": dice.choice([0, 1])})
    if operator in ("NhwcConv", "NhwcFusedConv"):
        return make(operator, {"x": own(2, 5, 6, 3), "w": own(4, 3, 3, 2), "b": own(4) if dice.maybe() else None}, {"pads": [1, 0, 1, 1], "kernel_shape": [3, 2]} | ({"activation": "Relu"} if operator == "NhwcFusedConv" else {}))
    if operator == "QLinearConv":
        last, group = dice.choice([0, 1]), dice.choice([1, 1, 4])
        inside = 4
        x = every(2, 5, 6, inside) if last else every(2, inside, 5, 6)
        per = dice.choice([[], [8]])
        return make(operator, {"x": x, "xs": scale(), "xz": zero(), "w": every(8, inside // group, 3, 3, kind=np.int8), "ws": scale(*per), "wz": np.zeros(per, np.int8), "ys": scale() * 20, "yz": zero(), "b": dice.numbers(8, kind=np.int32, low=-999, high=999) if dice.maybe() else None},
                    {"channels_last": last, "group": group, "pads": [1] * 4, "strides": [dice.randint(1, 2)] * 2}, **step)
    if operator == "QLinearReduceMean":
        return make(operator, {"x": every(2, 3, 4), "xs": scale(), "xz": zero(), "ys": scale(), "yz": zero()}, {"axes": dice.choice([[1], [-1], [1, 2], [0]]), "keepdims": dice.choice([0, 1])}, **step)
    if operator == "FusedMatMulActivation":
        return make(operator, {"x": own(2, 3, 4), "w": own(4, 5)}, {"activation": dice.choice(["Relu", "Tanh"])})
    if operator == "QAttention":
        heads = dice.choice([1, 2])
        mask = dice.choice([None, dice.numbers(batch, kind=np.int32, low=1, high=steps)])
        return make(operator, {"x": every(batch, steps, width, kind=np.uint8), "w": every(width, 3 * width, kind=np.int8), "b": own(3 * width), "xs": f32(0.02), "ws": f32(0.01), "m": mask, "xz": np.array(120, np.uint8), "wz": np.array(0, np.int8)}, {"num_heads": heads, "unidirectional": dice.choice([0, 1])}, chance=0)
    heads = dice.choice([1, 2])
    size, before = width // heads, dice.randint(1, 3)
    if operator == "AttentionPast":
        return make("Attention", {"x": own(batch, steps, width), "w": own(width, 3 * width), "b": own(3 * width), "m": None, "p": own(2, batch, heads, before, size)}, {"num_heads": heads, "unidirectional": dice.choice([0, 1])}, "y n")
    if operator == "MultiHeadAttentionPast":
        past = lambda: own(batch, heads, before, size)
        mask = dice.numbers(batch, before + steps, kind=np.int32, low=0, high=1) if dice.maybe(0.4) else None
        if mask is not None:
            mask[:, 0] = 1
        return make("MultiHeadAttention", {"q": own(batch, steps, width), "k": own(batch, steps, width), "v": own(batch, steps, width), "b": own(3 * width) if dice.maybe() else None, "m": mask, "r": own(1, heads, steps, before + steps) if dice.maybe(0.3) else None, "pk": past(), "pv": past()},
                    {"num_heads": heads, "unidirectional": dice.choice([0, 1])}, "y nk nv")
    if operator == "MultiHeadAttentionPacked":
        if dice.maybe():
            return make("MultiHeadAttention", {"q": own(batch, steps, heads, 3, size)}, {"num_heads": heads})
        return make("MultiHeadAttention", {"q": own(batch, steps, width), "k": own(batch, 5, heads, 2, size)}, {"num_heads": heads})
    if operator == "MultiHeadAttentionCross":
        return make("MultiHeadAttention", {"q": own(batch, steps, width), "k": own(batch, heads, 5, size), "v": own(batch, heads, 5, size)}, {"num_heads": heads})
    if operator == "RotaryPart":
        x = own(batch, steps, 2 * 8)
        return make("RotaryEmbedding", {"x": x, "p": dice.numbers(batch, steps, kind=np.int64, low=0, high=6), "c": own(9, 2), "s": own(9, 2)}, {"interleaved": dice.choice([0, 1]), "num_heads": 2, "rotary_embedding_dim": 4})
    if operator == "SkipOutputs":
        case = make("SkipLayerNormalization", {"x": own(batch, steps, width), "s": own(batch, steps, width), "g": own(width), "b": own(width), "o": own(width) if dice.maybe() else None}, {"epsilon": 1e-3})
        case.nodes[0].output.extend(["", "", "t"])
        case.outputs.append("t")
        return case
    if operator == "MatMulNBitsMore":
        rows, columns, block, bits = dice.choice([32, 64, 70]), dice.randint(1, 9), 32, dice.choice([2, 4, 8])
        blocks = -(-rows // block)
        float_zeros = dice.maybe(0.3)
        return make("MatMulNBits", {"x": own(2, 3, rows), "w": dice.whole(columns, blocks, block * bits // 8, kind=np.uint8), "s": dice.numbers(columns, blocks, low=0.02, high=0.1), "z": dice.numbers(columns, blocks, low=0, high=9) if float_zeros and bits == 4 else None, "g": None, "b": own(columns) if dice.maybe() else None},
                    {"K": rows, "N": columns, "bits": bits, "block_size": block}, chance=0, tolerance=(2e-2, 2e-2))
    if operator == "FusedConv1":
        return make("FusedConv", {"x": own(2, 3, 7), "w": own(4, 3, 3), "b": own(4)}, {"activation": dice.choice(["Clip", "LeakyRelu", "HardSigmoid"]), "activation_params": dice.choice([[0.1, 0.6]]), "strides": [2]})
    if operator == "QGemmMore":
        return make("QGemm", {"a": every(4, 3), "as": scale(), "az": zero(), "b": every(4, 5), "bs": scale(), "bz": zero(), "c": dice.numbers(5, kind=np.int32, low=-999, high=999), "ys": scale() * 20, "yz": zero()}, {"transA": 1}, **step)
    if operator == "QLinearMatMulBatch":
        per = dice.choice([[], [5]])
        return one(dice, "QLinearMatMul", {"a": every(2, 3, 4), "as": scale(), "az": zero(), "b": every(4, 5, kind=np.int8), "bs": scale(*per), "bz": np.zeros(per, np.int8), "ys": scale() * 10, "yz": zero()}, {}, "y", 17, **step)
    if operator == "FusedGemmTurned":
        return make("FusedGemm", {"x": own(4, 3), "w": own(5, 4), "c": own(3, 1)}, {"transA": 1, "transB": 1, "activation": dice.choice(["Relu", "Elu", "HardSigmoid"]), "activation_alpha": 0.3, "activation_beta": 0.4, "beta": 0.5})
    if operator == "FusedMatMulBroadcast":
        return make("FusedMatMul", {"x": own(2, 1, 4, 3), "w": own(3, 5, 4)}, {"transA": 1, "transB": 1, "alpha": 2.0})
    if operator == "BiasGeluHalf":
        return make("FastGelu", {"x": dice.numbers(2, 3, kind=np.float16), "b": dice.numbers(3, kind=np.float16)}, **HALF)
    if operator == "GatherBlock8":
        rows, columns, block = 5, dice.choice([32, 64]), dice.choice([16, 32])
        return make("GatherBlockQuantized", {"w": dice.whole(rows, columns // 2, kind=np.uint8), "i": dice.numbers(2, 3, kind=dice.choice([np.int64, np.int32]), low=0, high=rows - 1), "s": scale(rows, columns // block), "z": dice.whole(rows, -(-columns // block // 2), kind=np.uint8) if dice.maybe() else None}, {"block_size": block, "bits": 4, "gather_axis": 0, "quantize_axis": 1}, chance=0)
    if operator == "EmbedPlaces":
        ids = dice.numbers(batch, steps, kind=np.int32, low=0, high=8)
        return make("EmbedLayerNormalization", {"i": ids, "s": None, "w": own(9, width), "p": own(6, width), "t": None, "g": own(width), "b": own(width), "m": None, "q": dice.numbers(batch, steps, kind=np.int32, low=0, high=5)}, {"epsilon": 1e-3}, "y m_i", chance=0)
    return one(dice, "DequantizeLinear", {"x": every(6, 4), "s": scale(3, 4), "z": every(3, 4)}, {"axis": 0, "block_size": 2}, "y", 21)


if __name__ == "__main__":
    main(FAMILIES, __doc__)
