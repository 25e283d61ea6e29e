"""Single operators on 262,144 numbers, by several builds in turns: python3 crates/onnx/benches/operator_speed.py FOLDER PROGRAM [PROGRAM …]

A PROGRAM is a build of the bench `onnx`, copied aside, as `cargo bench --no-run --bench onnx` names it. Times are milliseconds of one
thread, the least of four rounds; the ratio is the last program's to the first one's, and the slowest come first. Models go to FOLDER.
Needs onnx. Burn's kernels optimised for size, for one:

    cargo bench --no-run --bench onnx --config 'profile.bench.package.burn-flex.opt-level="s"'
"""

import argparse
import pathlib
import subprocess

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

SHAPE = (64, 64, 64)
MAPS = (
    "Abs Ceil Cos Elu Erf Exp Floor Gelu HardSigmoid HardSwish LeakyRelu Log Mish Neg Reciprocal Relu Round Selu Sigmoid Sign Sin "
    "Softplus Softsign Sqrt Tanh ThresholdedRelu"
).split()
PAIRS = "Add Sub Mul Div Max Min Pow PRelu".split()
COMPARISONS = "Equal Greater GreaterOrEqual Less LessOrEqual".split()
REDUCTIONS = "ReduceL1 ReduceL2 ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare".split()
TYPES = "BOOL DOUBLE FLOAT16 INT32 INT64 INT8 UINT8".split()
RANDOM = numpy.random.default_rng(1)


def node(operator, *inputs, to="y", **attributes):
    return helper.make_node(operator, list(inputs), [to], **attributes)


def floats(*shape):
    return RANDOM.random(shape, dtype=numpy.float32) + numpy.float32(0.5)


def models():
    """Name: nodes from `x` to `y`, and constants."""
    channel, column, zero = floats(64, 1, 1), floats(64), numpy.float32(0)
    for operator in MAPS:
        yield operator, [node(operator, "x")], {}
    for operator in PAIRS:
        positive = node("Abs", "x", to="a")
        for name, other in (("channel", channel), ("column", column), ("number", floats(1))):
            yield f"{operator} by {name}", [positive, node(operator, "a", "k")], {"k": other}
        yield f"{operator} alike", [positive, node("Sqrt", "a", to="b"), node(operator, "a", "b")], {}
    back = node("Cast", "b", to="y")
    back.attribute.append(helper.make_attribute("to", TensorProto.FLOAT))
    for operator in COMPARISONS:
        for name, other in (("number", zero), ("channel", channel)):
            yield f"{operator} by {name}", [node(operator, "x", "k", to="b"), back], {"k": other}
    for name in TYPES:
        there = helper.make_node("Cast", ["x"], ["b"], to=getattr(TensorProto, name))
        yield f"Cast to {name} and back", [there, back], {}
    for operator in REDUCTIONS:
        for axes in ([1], [3], [1, 2, 3]):
            yield f"{operator} of {axes}", [node(operator, "x", "k", keepdims=1)], {"k": numpy.int64(axes)}
    for axis in (1, 3):
        for operator in ("ArgMax", "Softmax", "LogSoftmax"):
            yield f"{operator} along {axis}", [node(operator, "x", axis=axis)], {}
        yield f"Concat along {axis}", [node("Abs", "x", to="a"), node("Concat", "a", "x", "a", axis=axis)], {}
        yield f"Gather along {axis}", [node("Gather", "x", "k", axis=axis)], {"k": numpy.int64(RANDOM.integers(0, 64, 48))}
    for name, other in (("number", zero), ("channel", channel)):
        yield f"Where by {name}", [node("Greater", "x", "k", to="b"), node("Where", "b", "x", "k")], {"k": other}
    yield "Mean", [node("Abs", "x", to="a"), node("Neg", "x", to="b"), node("Mean", "a", "x", "b")], {}
    yield "LayerNormalization", [node("LayerNormalization", "x", "k", "k")], {"k": column}
    yield "InstanceNormalization", [node("InstanceNormalization", "x", "k", "k")], {"k": column}
    yield "LpNormalization", [node("LpNormalization", "x", axis=1)], {}


def write(path, nodes, constants):
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *SHAPE])
    is_index = nodes[-1].op_type == "ArgMax"
    result = helper.make_tensor_value_info("y", TensorProto.INT64 if is_index else TensorProto.FLOAT, None)
    initial = [numpy_helper.from_array(numpy.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "operator", [given], [result], initial)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)


def milliseconds(program, path):
    """The least of two rounds of one row; none if the model is refused."""
    run = subprocess.run([program, "speed", path, "1"], input="run 1 0.05\n" * 2, capture_output=True, text=True)
    rounds = [float(line.split()[0]) for line in run.stdout.splitlines() if line[:1].isdigit()]
    return min(rounds, default=float("nan"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("program", nargs="+")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for name, nodes, constants in models():
        path = (given.folder / f"{name.replace(' ', '-')}.onnx").resolve()
        write(path, nodes, constants)
        rounds = [[milliseconds(program, path) for program in given.program] for _ in range(2)]
        rows.append((name, [min(times) for times in zip(*rounds)]))
    for name, times in sorted(rows, key=lambda row: row[1][0] / row[1][-1]):
        print(f"{name:<30}" + "".join(f"{time:>10.3f}" for time in times) + f"{times[-1] / times[0]:>8.2f}")


if __name__ == "__main__":
    main()
