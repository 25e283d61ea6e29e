"""Writes files whose requests must be answered whole, and onnxruntime's answers: python3 tests/models/whole.py

Each is answered for the request as it is: rows influence each other, outputs have no row for each input row, values decide
how many axes an output has, inputs have different numbers of rows, or there is no row at all. `NAME.json` holds requests and
answers: `[{"inputs": [{"name", "datatype", "shape", "data"}], "outputs": [...]}]`. Needs onnx and onnxruntime.
"""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

HERE = Path(__file__).resolve().parent / "whole"
DATATYPES = {"float32": "FP32", "int64": "INT64", "bool": "BOOL"}
SEED = 51

# A graph in ONNX's text form, its opset, and the shapes (or, of integers, the values) of each request's inputs.
FILES = {
    "pooled_points": (
        "g (float[N, 2] x) => (float[1, 2] y) { y = ReduceMax <axes = [0], keepdims = 1> (x) }",
        17,
        [{"x": (1, 2)}, {"x": (4, 2)}],
    ),
    "similarity": (
        "g (float[batch, 3] q, float[batch, 3] d) => (float[batch, batch] y)"
        " { t = Transpose <perm = [1, 0]> (d) y = MatMul (q, t) }",
        17,
        [{"q": (1, 3), "d": (1, 3)}, {"q": (3, 3), "d": (3, 3)}, {"q": (2, 3), "d": (3, 3)}],
    ),
    "steps": (
        "g (float[n, 1, 2] x) => (float[n, 1, 1, 2] y) <"
        " float[1, 8, 2] w = {1, -1, 0.5, 2, -2, 1, 0.25, 1, 1, 1, -1, 0.5, 2, -1, 1, 1},"
        " float[1, 8, 2] r = {0.5, 1, -1, 1, 0.25, 1, -2, 1, 1, 0.5, 1, -1, 0.5, 0.25, 1, 1}>"
        " { y = LSTM <hidden_size = 2> (x, w, r) }",
        17,
        [{"x": (1, 1, 2)}, {"x": (5, 1, 2)}],
    ),
    "centred": (
        "g (float[batch, 2] x) => (float[batch, 2] y)"
        " { m = ReduceMean <axes = [0], keepdims = 1> (x) y = Sub (x, m) }",
        17,
        [{"x": (1, 2)}, {"x": (3, 2)}],
    ),
    "single_row": (
        "g (float[1, 2] x) => (float[1, 2] y) <int64[2] shape = {1, 2}, float[2] w = {2, 3}>"
        " { h = Reshape (x, shape) y = Mul (h, w) }",
        17,
        [{"x": (1, 2)}],
    ),
    "squeeze": (
        "g (float[1, 3, 1, 2] x, int64[1] a) => (float[] y) { y = Squeeze (x, a) }",
        13,
        [{"x": (1, 3, 1, 2), "a": [0]}, {"x": (1, 3, 1, 2), "a": [2]}],
    ),
    "unsqueeze": (
        "g (float[3, 2] x, int64[2] a) => (float[] y) { y = Unsqueeze (x, a) }",
        13,
        [{"x": (3, 2), "a": [0, 1]}, {"x": (3, 2), "a": [3, 0]}],
    ),
    "expand": (
        "g (float[3, 1] x, int64[3] a) => (float[] y) { y = Expand (x, a) }",
        13,
        [{"x": (3, 1), "a": [2, 1, 4]}, {"x": (3, 1), "a": [1, 3, 1]}],
    ),
    "branch": (
        "g (float[N, 2] x, bool c) => (float[] y) { y = If (c) <"
        " then_branch = one () => (float kept) { kept = Identity (x) },"
        " else_branch = two () => (float flat) { flat = Flatten <axis = 0> (x) }> }",
        17,
        [{"x": (2, 2), "c": True}, {"x": (2, 2), "c": False}, {"x": (3, 2), "c": True}, {"x": (3, 2), "c": False}],
    ),
    "broadcast": (
        "g (float[N, 3] a, float[N, 3] b) => (float[N, 3] sum, float[N, 3] twice)"
        " { sum = Add (a, b) twice = Add (a, a) }",
        17,
        [{"a": (2, 3), "b": (2, 3)}, {"a": (1, 3), "b": (2, 3)}, {"a": (2, 3), "b": (1, 3)}, {"a": (0, 3), "b": (0, 3)}],
    ),
}


def tensor(name, value):
    value = np.asarray(value)
    data = value.ravel().tolist()
    return {"name": name, "datatype": DATATYPES[str(value.dtype)], "shape": list(value.shape), "data": data}


def main():
    HERE.mkdir(exist_ok=True)
    for name, (text, opset, requests) in FILES.items():
        model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> {text}')
        onnx.save(model, HERE / f"{name}.onnx")
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # shapes that differ from the declared ones are the point
        session = onnxruntime.InferenceSession(HERE / f"{name}.onnx", options, providers=["CPUExecutionProvider"])
        chance = np.random.default_rng(SEED)
        cases = []
        for request in requests:
            given = {
                input_name: chance.normal(size=value).round(2).astype(np.float32)
                if isinstance(value, tuple)
                else np.array(value)
                for input_name, value in request.items()
            }
            outputs = session.run(None, given)
            cases.append({
                "inputs": [tensor(input_name, value) for input_name, value in given.items()],
                "outputs": [tensor(o.name, value) for o, value in zip(session.get_outputs(), outputs)],
            })
        (HERE / f"{name}.json").write_text(json.dumps(cases) + "\n")


if __name__ == "__main__":
    main()
