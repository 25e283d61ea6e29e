"""Writes the ONNX files of this folder, and for each that runs a JSON file with onnxruntime's answers.

    pip install -r examples/digits/requirements.txt
    python tests/models/make.py

Seeded: the same versions give the same files. `NAME.json` holds the tensors of one request and of its answer:
`{"inputs": [{"name", "datatype", "shape", "data"}], "outputs": [...]}`, data flat, row by row.
(`digits.json` is written by examples/digits/check.py.)
"""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

HERE = Path(__file__).resolve().parent
SEED = 7
ROWS = 5
OPSET = 17


def mlp():
    """64-256-256-10 with ReLU."""
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))


def lenet():
    """LeNet-5 on 28x28 images, with ReLU and max pooling: 1x28x28, 6x14x14, 16x5x5, 120, 84, 10."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * 5 * 5, 120), nn.ReLU(),
        nn.Linear(120, 84), nn.ReLU(),
        nn.Linear(84, 10),
    )  # fmt: skip


def export(name, model, shape, batch="batch"):
    """Exports a module with input x and output y; `batch=None` fixes the batch at the shape's."""
    torch.onnx.export(
        model.eval(),
        (torch.zeros(shape),),
        str(HERE / f"{name}.onnx"),
        input_names=["x"],
        output_names=["y"],
        dynamic_axes={"x": {0: batch}, "y": {0: batch}} if batch else None,
        opset_version=OPSET,
        dynamo=False,
    )


def build(name, nodes, inputs, outputs, constants=(), domains=()):
    """Writes a graph made by hand."""
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info(i, *(kind or [TensorProto.FLOAT]), shape) for i, shape, *kind in inputs],
        [helper.make_tensor_value_info(o, *(kind or [TensorProto.FLOAT]), shape) for o, shape, *kind in outputs],
        [numpy_helper.from_array(array, n) for n, array in constants],
    )
    opsets = [helper.make_opsetid("", OPSET), *(helper.make_opsetid(domain, 1) for domain in domains)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.checker.check_model(model, full_check=not domains)
    onnx.save(model, HERE / f"{name}.onnx")


NAMES = {"float32": "FP32", "float16": "FP16", "int64": "INT64"}


def tensor(name, array):
    """A tensor as in an Open Inference Protocol request; each float32 in its shortest exact decimal form."""
    data = [float(str(v)) if array.dtype.kind == "f" else int(v) for v in array.ravel()]
    return {"name": name, "datatype": NAMES[array.dtype.name], "shape": list(array.shape), "data": data}


def answer(name, inputs, folder=HERE):
    """Writes NAME.json: these inputs and what onnxruntime makes of them."""
    session = onnxruntime.InferenceSession(folder / f"{name}.onnx", providers=["CPUExecutionProvider"])
    outputs = zip([output.name for output in session.get_outputs()], session.run(None, inputs))
    reference = {
        "inputs": [tensor(n, array) for n, array in inputs.items()],
        "outputs": [tensor(n, array) for n, array in outputs],
    }
    (folder / f"{name}.json").write_text(json.dumps(reference) + "\n")


def stateful():
    """A state whose rows are along axis 1, and a rate that is one number for all rows, as detectors of speech have them."""
    build(
        "stateful",
        [
            helper.make_node("Cast", ["sr"], ["rate"], to=TensorProto.FLOAT),
            helper.make_node("Div", ["rate", "wide"], ["part"]),
            helper.make_node("Mul", ["x", "part"], ["heard"]),
            helper.make_node("Mul", ["state", "half"], ["faded"]),
            helper.make_node("Add", ["faded", "heard"], ["next"]),
            helper.make_node("ReduceMean", ["next"], ["y"], axes=[0, 2], keepdims=0),
        ],
        [("x", ["batch", 3]), ("state", [2, "batch", 3]), ("sr", [], TensorProto.INT64)],
        [("y", ["batch"]), ("next", [2, "batch", 3])],
        constants=[("wide", np.float32(16000)), ("half", np.float32(0.5))],
    )


def found():
    """The places of what is loud: as many as there are, and none in a quiet row, as detectors answer."""
    build(
        "found",
        [
            helper.make_node("Greater", ["x", "bound"], ["loud"]),
            helper.make_node("NonZero", ["loud"], ["by_axis"]),
            helper.make_node("Transpose", ["by_axis"], ["places"], perm=[1, 0]),
        ],
        [("x", [1, 6])],
        [("places", ["found", 2], TensorProto.INT64)],
        constants=[("bound", np.float32(100))],
    )


def plus(number):
    """Two versions of one model: the answer says which one gave it."""
    build(
        f"plus_{number}",
        [helper.make_node("Add", ["x", "number"], ["y"], name="add")],
        [("x", ["batch", 2])],
        [("y", ["batch", 2])],
        [("number", np.array([number], dtype=np.float32))],
    )


def wide(width):
    """An embedding that is always this wide, of rows of any length. Its width has a name of its own, as exporters leave it."""
    build(
        f"wide_{width}",
        [
            helper.make_node("Mul", ["x", "mask"], ["masked"]),
            helper.make_node("ReduceSum", ["masked", "axis"], ["sum"], keepdims=1),
            helper.make_node("MatMul", ["sum", "weights"], ["embedding"]),
        ],
        [("x", ["n", "t"]), ("mask", ["n", "t"])],
        [("embedding", ["n", "width"])],
        [
            ("weights", np.arange(1, width + 1, dtype=np.float32).reshape(1, width)),
            ("axis", np.array([1], dtype=np.int64)),
        ],
    )


def main():
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    draw = np.random.default_rng(SEED)

    def rows(*shape):
        return draw.standard_normal(shape).astype(np.float32)

    model = mlp()
    export("mlp", model, (2, 64))
    answer("mlp", {"x": rows(ROWS, 64)})

    # The same weights; only a batch of exactly one row runs.
    export("fixed_batch", model, (1, 64), batch=None)
    answer("fixed_batch", {"x": rows(1, 64)})

    # A file cut off in the middle, as by a broken download.
    whole = (HERE / "mlp.onnx").read_bytes()
    (HERE / "truncated.onnx").write_bytes(whole[: len(whole) // 2])

    export("lenet", lenet(), (2, 1, 28, 28))
    answer("lenet", {"x": rows(ROWS, 1, 28, 28)})

    build(
        "two_inputs",
        [
            helper.make_node("Add", ["a", "b"], ["sum"], name="add"),
            helper.make_node("Mul", ["a", "b"], ["product"], name="multiply"),
        ],
        [("a", ["batch", 3]), ("b", ["batch", 3])],
        [("sum", ["batch", 3]), ("product", ["batch", 3])],
    )
    answer("two_inputs", {"a": rows(ROWS, 3), "b": rows(ROWS, 3)})

    # A valid graph around an operator of somebody's own.
    build(
        "unsupported",
        [
            helper.make_node("Relu", ["x"], ["positive"], name="first_relu"),
            helper.make_node("Whiten", ["positive"], ["y"], name="odd_whiten", domain="com.example"),
        ],
        [("x", ["batch", 4])],
        [("y", ["batch", 4])],
        domains=["com.example"],
    )

    # Rows of any length.
    build(
        "free",
        [
            helper.make_node("Relu", ["x"], ["positive"], name="relu"),
            helper.make_node("Cast", ["mask"], ["kept"], name="cast", to=TensorProto.FLOAT),
            helper.make_node("Mul", ["positive", "kept"], ["y"], name="multiply"),
        ],
        [("x", ["batch", "sequence"]), ("mask", ["batch", "sequence"], TensorProto.INT64)],
        [("y", ["batch", "sequence"])],
    )
    answer("free", {"x": rows(ROWS, 3), "mask": np.ones((ROWS, 3), dtype=np.int64)})

    stateful()
    found()
    plus(1)
    plus(2)
    # The second is as wide as the rows with which such a file is tried are long.
    wide(24)
    wide(16)

    for path in sorted(HERE.glob("*.onnx")):
        try:
            operators = [node.op_type for node in onnx.load(path).graph.node]
        except Exception as error:  # the truncated one
            operators = type(error).__name__
        print(f"{path.name:18} {path.stat().st_size:7} bytes  {operators}")


if __name__ == "__main__":
    main()
