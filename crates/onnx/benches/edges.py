"""Writes nodes at the edges of what ONNX says, beside what onnxruntime answers: python3 crates/onnx/benches/edges.py FOLDER

Empty tensors, numbers that are none, ends out of range, sizes that do not divide: ONNX's own node tests have few of them. Each case is
written as cases.py writes those, and is run by cargo bench --bench onnx -- cases FOLDER. What onnxruntime refuses has a file named
`refused` in place of outputs, and must be refused here.

Where the two differ by intent, it is said beside the case, with what is answered here.
"""

import pathlib
import sys

import numpy as np
import onnx
import onnxruntime
from cases import operators, write
from onnx import TensorProto as T
from onnx import helper, numpy_helper

NAN, INF = np.nan, np.inf
f32 = lambda *numbers, **more: np.array(*numbers, np.float32, **more)
i64 = lambda *numbers: np.array(*numbers, np.int64)
# Ordinary, nothing, everything and both ends.
ODD = f32([[1, NAN, 3, -2], [NAN, NAN, NAN, NAN], [INF, -INF, 0, NAN], [5, 4, NAN, 7], [-0.0, 0.0, -3.5, 2.5]])

CASES = {}


def case(name, nodes, inputs, outputs="y", weights=None, opset=20, types=None, answer=None):
    """Outputs are names, whose types follow from what onnxruntime gives unless `types` says them; `answer` is what is right here."""
    nodes = [helper.make_node(*node[:3], **(node[3] if len(node) > 3 else {})) for node in nodes]
    CASES[name] = (nodes, inputs, outputs.split(), weights or {}, opset, types or {}, answer)


def single(operator, inputs, *, name=None, outputs="y", weights=None, opset=20, types=None, answer=None, **attributes):
    names = [*inputs, *(weights or {})]
    order = attributes.pop("order", names)
    name = name or operator.lower()
    case(name, [(operator, order, outputs.split(), attributes)], inputs, outputs, weights, opset, types, answer)


# What is no number, in every operator that could lose it.
for operator in [
    "Abs", "Ceil", "Celu", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "Neg", "Relu", "Round",
    "Selu", "Shrink", "Sigmoid", "Sign", "Softplus", "Sqrt", "Tanh", "ThresholdedRelu", "LogSoftmax", "Softmax", "LpNormalization",
]:
    single(operator, {"x": ODD}, name=f"odd_{operator.lower()}")
single("IsNaN", {"x": ODD}, name="odd_isnan", types={"y": T.BOOL})
single("IsInf", {"x": ODD}, name="odd_isinf", types={"y": T.BOOL})
single("Clip", {"x": ODD}, name="odd_clip", weights={"low": f32(-1), "high": f32(2)})
single("PRelu", {"x": ODD}, name="odd_prelu", weights={"slope": f32([0.5])})
for operator in ["ReduceSum", "ReduceMean", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceMax", "ReduceMin"]:
    # The largest of numbers and of what is none is none, as in numpy and in ONNX's own reference. onnxruntime leaves it out of some.
    numpys = {"ReduceMax": np.max, "ReduceMin": np.min, "ReduceLogSumExp": lambda x, **more: np.log(np.sum(np.exp(x), **more))}.get(operator)
    for kind, axes in [("rows", (1,)), ("columns", (0,)), ("all", (0, 1))]:
        answer = numpys and [numpys(ODD, axis=axes, keepdims=True)]
        single(operator, {"x": ODD}, name=f"odd_{operator.lower()}_of_{kind}", weights={"axes": i64(axes)}, answer=answer)
for operator in ["Max", "Min", "Mul", "Add", "Div", "Pow"]:
    single(operator, {"x": ODD}, name=f"odd_{operator.lower()}", weights={"one": f32(1)})
    single(operator, {"x": ODD, "z": ODD[::-1].copy()}, name=f"odd_{operator.lower()}_of_two")
for operator in ["Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal"]:
    single(operator, {"x": ODD}, name=f"odd_{operator.lower()}", weights={"one": f32(1)}, types={"y": T.BOOL})
single("Mod", {"x": ODD}, name="odd_mod", weights={"two": f32(2)}, fmod=1)
single("CumSum", {"x": ODD}, name="odd_cumsum", weights={"axis": i64(1)})
# The largest of a window leaves out what is none; in onnxruntime it hangs on the place.
for kind in ["AveragePool", "LpPool"]:
    single(kind, {"x": ODD[:4].reshape(1, 1, 4, 4)}, name=f"odd_{kind.lower()}", kernel_shape=[2, 2], strides=[1, 1])
    single(kind, {"x": ODD[:4].reshape(1, 1, 4, 4)}, name=f"odd_{kind.lower()}_apart", kernel_shape=[2, 2], strides=[2, 2])
single("GlobalAveragePool", {"x": ODD[:4].reshape(1, 1, 4, 4)}, name="odd_globalaveragepool")
single("Where", {"c": np.isnan(ODD), "x": ODD}, name="odd_where", weights={"zero": f32(0)}, order=["c", "zero", "x"])

# Nothing at all.
single("Conv", {"x": np.zeros((1, 3, 0, 64), np.float32)}, name="empty_conv", pads=[2, 2, 2, 2],
       weights={"w": np.ones((64, 3, 3, 3), np.float32), "b": np.arange(64, dtype=np.float32)})
single("Conv", {"x": np.zeros((1, 3, 0), np.float32)}, name="empty_conv_1d", pads=[1, 1],
       weights={"w": np.ones((4, 3, 2), np.float32), "b": f32([1, 2, 3, 4])})
for name, shape, window in [("conv_of_none", (0, 1, 8, 8), (3, 3)), ("conv_1d_of_none", (0, 4, 8), (3,))]:
    single("Conv", {"x": np.zeros(shape, np.float32)}, name=f"empty_{name}", weights={"w": np.ones((2, shape[1], *window), np.float32)})
for name, shape in [("of_none", (0, 3, 4)), ("of_images", (0, 3, 4, 4))]:
    scales = {"s": np.ones(3, np.float32), "b": np.ones(3, np.float32)}
    single("InstanceNormalization", {"x": np.zeros(shape, np.float32)}, name=f"empty_instancenormalization_{name}", weights=scales)
single("LRN", {"x": np.zeros((0, 3, 4, 4), np.float32)}, name="empty_lrn", size=3)
case("half_sliced", [("Cast", ["x"], ["h"], {"to": T.FLOAT16}), ("Slice", ["h", "s", "e"], ["r"]), ("Cast", ["r"], ["y"], {"to": T.FLOAT})],
     {"x": f32([-7e4, 2049, 1])}, weights={"s": i64([0]), "e": i64([2])})
single("Gemm", {"x": np.zeros((2, 0), np.float32)}, name="empty_gemm", weights={"w": np.zeros((0, 3), np.float32), "c": f32([1, 2, 3])})
case("empty_matmul", [("MatMul", ["x", "w"], ["m"]), ("Add", ["m", "c"], ["a"]), ("Tanh", ["a"], ["y"])],
     {"x": np.zeros((2, 0), np.float32)}, weights={"w": np.zeros((0, 3), np.float32), "c": f32([1, 2, 3])})
for kind, more in [("MaxPool", {}), ("AveragePool", {"count_include_pad": 1})]:
    single(kind, {"x": np.zeros((1, 2, 0, 8), np.float32)}, name=f"empty_{kind.lower()}", kernel_shape=[2, 2], pads=[1, 1, 1, 1], **more)
for operator in ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceProd"]:
    single(operator, {"x": np.zeros((2, 0), np.float32)}, name=f"empty_{operator.lower()}", weights={"axes": i64([0])}, keepdims=0)
single("Concat", {"x": np.zeros((0, 2), np.float32), "z": np.zeros((3, 2), np.float32)}, name="empty_concat", axis=0)
single("Softmax", {"x": np.zeros((0, 3), np.float32)}, name="empty_softmax")
single("Resize", {"x": np.zeros((1, 1, 0, 4), np.float32)}, name="empty_resize", weights={"s": i64([1, 1, 3, 4])}, order=["x", "", "", "s"])
single("DynamicQuantizeLinear", {"x": np.zeros(4, np.float32)}, name="zeros_dynamicquantizelinear", outputs="y s z",
       types={"y": T.UINT8, "z": T.UINT8})

# Ends, axes and sizes.
ends = lambda start, end, step: {"s": i64([start]), "e": i64([end]), "a": i64([0]), "t": i64([step])}
for start, end, step in [(-100, -1000, -1), (-100, 3, 1), (100, -100, -2), (3, -100, -1), (-1, -6, -1), (2, 2, 1), (5, 0, -5), (-6, 9, 2)]:
    single("Slice", {"x": np.arange(5, dtype=np.float32)}, name=f"slice_{start}_{end}_{step}", weights=ends(start, end, step))
single("Split", {"x": np.arange(5, dtype=np.float32)}, name="split_uneven", outputs="a b", opset=13)
single("Split", {"x": np.arange(5, dtype=np.float32)}, name="split_uneven_by_count", outputs="a b", num_outputs=2)
single("Split", {"x": np.arange(5, dtype=np.float32)}, name="split_into_too_many", outputs="a b c d", num_outputs=4)
single("Unsqueeze", {"x": np.ones((2, 3), np.float32)}, name="unsqueeze_twice", weights={"a": i64([0, 0])})
single("Unsqueeze", {"x": np.ones((2, 3), np.float32)}, name="unsqueeze_from_behind", weights={"a": i64([-1, 1])})
single("TopK", {"x": ODD[4:]}, name="topk_equal", outputs="y i", weights={"k": i64([3])}, types={"i": T.INT64})
single("TopK", {"x": ODD[4:]}, name="topk_none", outputs="y i", weights={"k": i64([0])}, types={"i": T.INT64})
single("OneHot", {"x": i64([-1, -3, -4, 3, 2])}, name="onehot_out_of_range", weights={"d": i64([3]), "v": f32([0, 1])})
single("Range", {"a": f32(0), "b": f32(0.7), "c": f32(0.1)}, name="range_of_floats")
single("Clip", {"x": f32([1, 5])}, name="clip_crossed", weights={"low": f32(4), "high": f32(2)})
single("Round", {"x": f32([0.5, 1.5, 2.5, -0.5, -2.5, 3.5])}, name="round_to_even")
for power in [3.0, 0.5, -1.0, 0.0, 2.0]:
    single("Pow", {"x": f32([-2, -8, 0, 4, -0.0, INF, -INF, NAN])}, name=f"pow_{power}", weights={"e": f32(power)})
for kind in [np.int32, np.int64, np.uint8, np.int8]:
    numbers = np.array([7, 250 if kind == np.uint8 else -7, 5, 6], kind)
    element = {np.int32: T.INT32, np.int64: T.INT64, np.uint8: T.UINT8, np.int8: T.INT8}[kind]
    for operator in ["Add", "Sub", "Mul", "Div", "Mod"]:
        single(operator, {"x": numbers}, name=f"{operator.lower()}_of_{kind.__name__}", weights={"n": np.array([3], kind)}, types={"y": element})
for old, new in [(5, 4), (7, 12), (49, 13), (7, 29), (11, 25), (7, 58)]:
    x = {"x": np.arange(old, dtype=np.float32).reshape(1, 1, 1, old)}
    sizes = {"s": i64([1, 1, 1, new])}
    single("Resize", x, name=f"resize_{old}_{new}_corners", weights=sizes, order=["x", "", "", "s"], mode="nearest",
           nearest_mode="floor", coordinate_transformation_mode="align_corners")
    for way in ["half_pixel", "asymmetric", "pytorch_half_pixel", "half_pixel_symmetric"]:
        for mode in ["nearest", "linear", "cubic"]:
            single("Resize", x, name=f"resize_{old}_{new}_{way}_{mode}", weights=sizes, order=["x", "", "", "s"], mode=mode,
                   coordinate_transformation_mode=way)
for old in (48, 49):
    for mode in ["linear", "nearest"]:
        single("Resize", {"x": np.arange(2 * old, dtype=np.float32).reshape(1, 1, 2, old)}, name=f"resize_crop_{mode}_{old}",
               weights={"r": f32([0, 0, 0, 0.2, 1, 1, 1, 0.8]), "s": i64([1, 1, 2, 1])}, order=["x", "r", "", "s"], mode=mode,
               coordinate_transformation_mode="tf_crop_and_resize")

# onnxruntime copies what keeps its shape, whatever scales and regions say.
for mode in ["linear", "nearest"]:
    x = {"x": np.arange(4, dtype=np.float32).reshape(1, 1, 1, 4)}
    single("Resize", x, name=f"resize_nowhere_{mode}", weights={"s": f32([1, 1, 1, 1.2])}, order=["x", "", "s"], mode=mode)
    single("Resize", x, name=f"resize_nowhere_old_{mode}", weights={"s": f32([1, 1, 1, 1.2])}, order=["x", "s"], mode=mode, opset=10)
    single("Resize", x, name=f"resize_nowhere_crop_{mode}", weights={"r": f32([0, 0, 0, 0.5, 1, 1, 1, 1]), "s": i64([1, 1, 1, 4])},
           order=["x", "r", "", "s"], mode=mode, coordinate_transformation_mode="tf_crop_and_resize")

# A scale that leaves a part of a place.
for mode in ["linear", "nearest", "cubic"]:
    for scale in [1.3, 0.6]:
        x = {"x": np.arange(10, dtype=np.float32).reshape(1, 1, 2, 5)}
        single("Resize", x, name=f"resize_part_{mode}_{scale}", weights={"s": f32([1, 1, 1, scale])}, order=["x", "", "s"], mode=mode,
               coordinate_transformation_mode="align_corners")
        single("Resize", x, name=f"resize_part_crop_{mode}_{scale}", weights={"r": f32([0, 0, 0, 0.25, 1, 1, 1, 1]), "s": f32([1, 1, 1, scale])},
               order=["x", "r", "s"], mode=mode, coordinate_transformation_mode="tf_crop_and_resize")

# A tree whose first node is its own child.
tree = {"nodes_treeids": [0, 0], "nodes_nodeids": [0, 1], "nodes_featureids": [0, 0], "nodes_values": [0.0, 0.0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF"], "nodes_truenodeids": [0, 0], "nodes_falsenodeids": [1, 0], "target_treeids": [0],
        "target_nodeids": [1], "target_ids": [0], "target_weights": [1.0], "n_targets": 1, "domain": "ai.onnx.ml"}
single("TreeEnsembleRegressor", {"x": f32([[1.0], [-1.0]])}, name="tree_without_a_root", **tree)

# Float16 in a graph of float32.
HALF, WIDE, WHOLE = {"to": T.FLOAT16}, {"to": T.FLOAT}, {"to": T.INT64}
large = {"x": f32([1e6, 7e4, 1, 2049, 0.1])}
case("half_overflow", [("Cast", ["x"], ["h"], HALF), ("Cast", ["h"], ["y"], WIDE)], large)
case("half_isinf", [("Cast", ["x"], ["h"], HALF), ("IsInf", ["h"], ["y"])], large, types={"y": T.BOOL})
case("half_underflow", [("Cast", ["x"], ["h"], HALF), ("Cast", ["h"], ["y"], {"to": T.BOOL})], {"x": f32([1e-9, 1, 0])}, types={"y": T.BOOL})
whole = {"x": f32([2049.0, 4097.0, 8193.0])}
case("half_to_int", [("Cast", ["x"], ["h"], HALF), ("Cast", ["h"], ["y"], WHOLE)], whole, types={"y": T.INT64})
case("half_sum", [("Cast", ["x"], ["h"], HALF), ("Add", ["h", "h"], ["q"]), ("Cast", ["q"], ["y"], WHOLE)], whole, types={"y": T.INT64})
case("half_shifted", [("Cast", ["x"], ["h"], HALF), ("Reshape", ["h", "two"], ["r"]), ("Cast", ["r"], ["y"], WIDE)], {"x": f32([1e6, 2049])},
     weights={"two": i64([2, 1])})


# Of integers a window that juts out counts as whole, and the last query in one direction sees all keys: only onnxruntime says what these are.
for counts in (0, 1):
    for kernel, pads in ((2, 0), (3, 1)):
        single("QLinearAveragePool", {"x": np.arange(20, 245, 9, np.uint8).reshape(1, 1, 5, 5)}, name=f"integers_jut_out_{counts}_{kernel}",
               weights={"s": f32(1), "z": np.uint8(0)}, order=["x", "s", "z", "s", "z"], types={"y": T.UINT8}, domain="com.microsoft",
               kernel_shape=[kernel] * 2, strides=[2, 2], pads=[pads] * 4, ceil_mode=1, count_include_pad=counts)
for queries in (1, 3, 5):
    single("MultiHeadAttention", {"q": np.zeros((1, queries, 1), np.float32), "k": np.zeros((1, 5, 1), np.float32), "v": f32([[[1], [2], [4], [8], [16]]])},
           name=f"last_of_{queries}_queries", domain="com.microsoft", num_heads=1, unidirectional=1)


def emit(folder, name, nodes, inputs, outputs, weights, opset, types, answer=None, free=False):
    """Writes a case; whether onnxruntime has an answer."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    value = lambda key, element, shape=None: helper.make_tensor_value_info(key, element, shape)
    dims = lambda key, x: [f"{key}{i}" for i in range(x.ndim)] if free else x.shape
    given = [value(key, helper.np_dtype_to_tensor_dtype(x.dtype), dims(key, x)) for key, x in inputs.items()]
    made = [value(key, types.get(key, T.FLOAT)) for key in outputs]
    held = [numpy_helper.from_array(np.asarray(x), key) for key, x in weights.items()]
    graph = helper.make_graph(nodes, name, given, made, held)
    sets = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 3), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=sets, ir_version=9)
    at = folder / name
    (at / "0").mkdir(parents=True, exist_ok=True)
    (at / "model.onnx").write_bytes(model.SerializeToString())
    (at / "operators").write_text("\n".join(sorted(operators(graph, set()))) + "\n")
    (at / "tolerance").write_text("1e-4 1e-4\n")
    for i, x in enumerate(inputs.values()):
        write(x, at / "0" / f"input_{i}")
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        found = session.run(None, inputs)
    except Exception as error:
        (at / "refused").write_text(str(error))
        return False
    for i, x in enumerate(found if answer is None else answer):
        write(x, at / "0" / f"output_{i}")
    return True


def main(folder):
    answered = sum(emit(folder, name, *parts) for name, parts in CASES.items())
    print(f"{len(CASES)} cases in {folder}, {len(CASES) - answered} of which onnxruntime refuses")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]))
