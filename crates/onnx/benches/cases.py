"""Writes ONNX's own node tests, as the package onnx holds them, to a folder: python3 crates/onnx/benches/cases.py FOLDER

A test becomes FOLDER/NAME with model.onnx, operators (one a line), tolerance (relative, absolute), and, for each of its
data sets, SET/input_N.pb and SET/output_N.pb (TensorProto). A sequence is a folder of such files; a value of any other kind leaves
a file named after it.
"""

import pathlib
import sys
import warnings

import numpy
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases

warnings.filterwarnings("ignore")


def operators(graph, into):
    for node in graph.node:
        domain = "" if node.domain in ("", "ai.onnx") else node.domain + "::"
        into.add(domain + node.op_type)
        for attribute in node.attribute:
            for body in [attribute.g, *attribute.graphs]:
                operators(body, into)
    return into


def write(value, path):
    if isinstance(value, onnx.TensorProto):
        path.with_suffix(".pb").write_bytes(value.SerializeToString())
    elif isinstance(value, (numpy.ndarray, numpy.generic)):
        path.with_suffix(".pb").write_bytes(numpy_helper.from_array(numpy.asarray(value)).SerializeToString())
    elif isinstance(value, list):
        folder = path.with_suffix(".sequence")
        folder.mkdir(exist_ok=True)
        for i, element in enumerate(value):
            write(element, folder / str(i))
    else:
        path.with_suffix("." + type(value).__name__).write_bytes(b"")


def main(folder):
    cases = collect_testcases(None)
    for case in cases:
        at = folder / case.name
        at.mkdir(parents=True, exist_ok=True)
        (at / "model.onnx").write_bytes(case.model.SerializeToString())
        (at / "operators").write_text("\n".join(sorted(operators(case.model.graph, set()))) + "\n")
        (at / "tolerance").write_text(f"{case.rtol} {case.atol}\n")
        for number, (inputs, outputs) in enumerate(case.data_sets):
            to = at / str(number)
            to.mkdir(exist_ok=True)
            for kind, values in [("input", inputs), ("output", outputs)]:
                for i, value in enumerate(values):
                    write(value, to / f"{kind}_{i}")
    print(f"{len(cases)} tests in {folder}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]))
