"""What the models beside the tests answer."""

import json
import pathlib

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXTS = "titanic_logistic"
DTYPES = {"FP16": np.float16, "FP32": np.float32, "INT64": np.int64, "BYTES": np.object_}


def case(name):
    """Inputs and outputs of a case beside a model, as arrays."""
    described = json.loads((ROOT / "tests/models" / f"{name}.json").read_text())
    return [{t["name"]: array(t) for t in described[side]} for side in ("inputs", "outputs")]


def array(tensor):
    data = tensor["data"]
    if tensor["datatype"] == "BYTES":
        data = [text.encode() for text in data]
    return np.array(data, dtype=DTYPES[tensor["datatype"]]).reshape(tensor["shape"])


def close(have, want):
    if want.dtype == np.object_:
        return have.shape == want.shape and all(a == b for a, b in zip(have.flatten(), want.flatten()))
    return have.shape == want.shape and np.allclose(have, want, rtol=1e-3, atol=1e-4)
