"""Measures digits.onnx on the held-out rows with onnxruntime, and writes tests/models/digits.json.

Exit code 0 at 98 % held-out accuracy or more, 1 below. Needs numpy and onnxruntime only.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime

import dataset

REFERENCE = dataset.HERE.parents[1] / "tests" / "models" / "digits.json"
REFERENCE_ROWS = 40
REQUIRED_ACCURACY = 0.98


def tensor(name, array):
    """A tensor as in an Open Inference Protocol request; each float32 in its shortest exact decimal form."""
    data = [float(str(value)) for value in array.astype(np.float32).ravel()]
    return {"name": name, "datatype": "FP32", "shape": list(array.shape), "data": data}


def main():
    _, _, pixels, digits = dataset.split()
    session = onnxruntime.InferenceSession(dataset.MODEL, providers=["CPUExecutionProvider"])
    (probabilities,) = session.run(["probabilities"], {"pixels": pixels})
    answers = probabilities.argmax(axis=1)
    right = int((answers == digits).sum())
    print(f"held out: {right} of {len(digits)} right, {100 * right / len(digits):.2f} %")

    confusion = np.zeros((10, 10), dtype=int)
    np.add.at(confusion, (digits, answers), 1)
    print("\n          answered")
    print("digit   " + "".join(f"{digit:4}" for digit in range(10)))
    for digit, row in enumerate(confusion):
        print(f"{digit:5}   " + "".join(f"{count or '.':>4}" for count in row))

    rows = pixels[:REFERENCE_ROWS]
    reference = {
        "inputs": [tensor("pixels", rows)],
        "outputs": [tensor("probabilities", probabilities[:REFERENCE_ROWS])],
    }
    Path(REFERENCE).write_text(json.dumps(reference) + "\n")
    print(f"\nwrote {REFERENCE_ROWS} rows to tests/models/{REFERENCE.name}")
    return 0 if right / len(digits) >= REQUIRED_ACCURACY else 1


if __name__ == "__main__":
    sys.exit(main())
