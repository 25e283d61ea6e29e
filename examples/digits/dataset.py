"""The digits data set: 1,797 images of 8x8 pixels, read from digits.csv, and its fixed split.

A line of digits.csv is 64 pixels (row by row, whole numbers from 0 to 16: the inked pixels of a 4x4 block of the
32x32 scan) and the digit. The file is scikit-learn's `load_digits()`, written by `train.py --dump-data`.
"""

from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
CSV = HERE / "digits.csv"
MODEL = HERE / "digits.onnx"

SPLIT_SEED = 20
HELD_OUT_SHARE = 0.2


def dump():
    """Writes digits.csv from scikit-learn's copy of the data set."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    header = ",".join([f"p{row}{column}" for row in range(8) for column in range(8)] + ["digit"])
    table = np.column_stack([digits.data, digits.target]).astype(int)
    np.savetxt(CSV, table, fmt="%d", delimiter=",", header=header, comments="")


def load():
    """All images as float32 [1797, 64], and their digits as int64 [1797]."""
    table = np.loadtxt(CSV, delimiter=",", skiprows=1, dtype=np.int64)
    return table[:, :64].astype(np.float32), table[:, 64]


def split():
    """(train images, train digits, held-out images, held-out digits), the same share of every digit held out."""
    pixels, digits = load()
    shuffle = np.random.default_rng(SPLIT_SEED)
    held_out = np.zeros(len(digits), dtype=bool)
    for digit in range(10):
        rows = shuffle.permutation(np.flatnonzero(digits == digit))
        held_out[rows[: round(HELD_OUT_SHARE * len(rows))]] = True
    return pixels[~held_out], digits[~held_out], pixels[held_out], digits[held_out]
