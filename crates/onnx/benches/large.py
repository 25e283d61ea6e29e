"""Large networks as ONNX files with random weights, written with onnx alone: GPT-2 (622 MiB), ResNet-50 and VGG-16.

The graphs are those that PyTorch exports. They show how long a large file takes to load, and how much memory.
"""

import numpy
from onnx import TensorProto, helper, numpy_helper, save

OPSET = 17


class Author:
    """A graph that is written node by node; every method gives the name of what it makes."""

    def __init__(self, seed=20):
        self.nodes, self.weights, self.random = [], [], numpy.random.default_rng(seed)

    def constant(self, array):
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(numpy.asarray(array), name))
        return name

    def weight(self, *shape, spread=None, mean=0.0):
        spread = 1 / numpy.sqrt(numpy.prod(shape[1:]) if len(shape) > 1 else 64) if spread is None else spread
        return self.constant(self.random.standard_normal(shape, numpy.float32) * numpy.float32(spread) + numpy.float32(mean))

    def ints(self, *numbers):
        return self.constant(numpy.array(numbers, numpy.int64))

    def node(self, operator, *inputs, outputs=1, **attributes):
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(operator, inputs, names, **attributes))
        return names[0] if outputs == 1 else names

    def save(self, path, inputs, output):
        self.nodes.append(helper.make_node("Identity", [output], ["y"]))
        given = [helper.make_tensor_value_info(name, kind, ["batch", *dims]) for name, kind, dims in inputs]
        result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, path.stem, given, [result], self.weights)
        save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8), path)


def gpt2(path, vocabulary=50257, width=768, layers=12, heads=12, places=1024):
    g = Author()
    words = g.random.standard_normal((vocabulary, width), numpy.float32) * numpy.float32(0.02)
    shape = g.node("Shape", "ids")
    length = g.node("Gather", shape, g.constant(numpy.int64(1)), axis=0)
    rows = g.node("Unsqueeze", g.node("Gather", shape, g.constant(numpy.int64(0)), axis=0), g.ints(0))
    long = g.node("Unsqueeze", length, g.ints(0))
    at = g.node("Range", g.constant(numpy.int64(0)), length, g.constant(numpy.int64(1)))
    x = g.node("Gather", g.constant(words), "ids")
    x = g.node("Add", x, g.node("Gather", g.weight(places, width, spread=0.01), g.node("Unsqueeze", at, g.ints(0))))
    # A query sees what is before it.
    causal = g.constant(numpy.tril(numpy.ones((1, 1, places, places), bool)))
    for axis in (2, 3):
        causal = g.node("Slice", causal, g.ints(0), long, g.ints(axis))
    join = lambda *parts: g.node("Concat", *parts, axis=0)
    flat, whole = g.ints(-1, width), join(rows, long, g.ints(width))
    split = join(rows, long, g.ints(heads), g.ints(width // heads))

    def linear(x, inputs, outputs):
        x = g.node("Reshape", x, g.ints(-1, inputs))
        y = g.node("Gemm", x, g.weight(inputs, outputs, spread=0.02), g.weight(outputs, spread=0.02))
        return g.node("Reshape", y, join(rows, long, g.ints(outputs)))

    def norm(x):
        scale, shift = g.weight(width, spread=0.1, mean=1.0), g.weight(width, spread=0.1)
        return g.node("LayerNormalization", x, scale, shift, axis=-1, epsilon=1e-5)

    for _ in range(layers):
        parts = g.node("Split", linear(norm(x), width, 3 * width), g.ints(width, width, width), outputs=3, axis=2)
        q, k, v = (g.node("Reshape", part, split) for part in parts)
        q, v = (g.node("Transpose", part, perm=[0, 2, 1, 3]) for part in (q, v))
        scores = g.node("MatMul", q, g.node("Transpose", k, perm=[0, 2, 3, 1]))
        scores = g.node("Div", scores, g.constant(numpy.float32(numpy.sqrt(width // heads))))
        scores = g.node("Where", causal, scores, g.constant(numpy.float32(-3.4028235e38)))
        seen = g.node("MatMul", g.node("Softmax", scores, axis=-1), v)
        seen = g.node("Reshape", g.node("Transpose", seen, perm=[0, 2, 1, 3]), whole)
        x = g.node("Add", linear(seen, width, width), x)
        h = linear(norm(x), width, 4 * width)
        # GELU by tanh, written out.
        cube = g.node("Mul", g.node("Pow", h, g.constant(numpy.float32(3))), g.constant(numpy.float32(0.044715)))
        bent = g.node("Mul", g.node("Add", h, cube), g.constant(numpy.float32(0.7978845608)))
        bent = g.node("Add", g.node("Tanh", bent), g.constant(numpy.float32(1)))
        h = g.node("Mul", g.node("Mul", h, g.constant(numpy.float32(0.5))), bent)
        x = g.node("Add", x, linear(h, 4 * width, width))
    g.save(path, [("ids", TensorProto.INT64, ["length"])], g.node("MatMul", norm(x), g.constant(words.T.copy())))


def resnet50(path):
    g = Author()

    def conv(x, inputs, outputs, kernel, stride=1):
        weight = g.weight(outputs, inputs, kernel, kernel)
        shape = dict(kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[kernel // 2] * 4)
        return g.node("Conv", x, weight, g.weight(outputs, spread=0.1), **shape)

    x = g.node("Relu", conv("x", 3, 64, 7, 2))
    x = g.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    inputs = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        inner = 64 << stage
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            y = g.node("Relu", conv(x, inputs, inner, 1))
            y = g.node("Relu", conv(y, inner, inner, 3, stride))
            y = conv(y, inner, 4 * inner, 1)
            if block == 0:
                x = conv(x, inputs, 4 * inner, 1, stride)
            x, inputs = g.node("Relu", g.node("Add", y, x)), 4 * inner
    x = g.node("Flatten", g.node("GlobalAveragePool", x), axis=1)
    x = g.node("Gemm", x, g.weight(1000, 2048), g.weight(1000), transB=1)
    g.save(path, [("x", TensorProto.FLOAT, [3, 224, 224])], x)


def vgg16(path):
    g, x, inputs = Author(), "x", 3
    for outputs, repeats in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(repeats):
            weight, bias = g.weight(outputs, inputs, 3, 3), g.weight(outputs, spread=0.1)
            x = g.node("Relu", g.node("Conv", x, weight, bias, kernel_shape=[3, 3], pads=[1] * 4))
            inputs = outputs
        x = g.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x, inputs = g.node("Flatten", x, axis=1), 25088
    for outputs in (4096, 4096, 1000):
        x = g.node("Gemm", x, g.weight(outputs, inputs), g.weight(outputs), transB=1)
        x, inputs = g.node("Relu", x) if outputs == 4096 else x, outputs
    g.save(path, [("x", TensorProto.FLOAT, [3, 224, 224])], x)


NETWORKS = {"gpt2": gpt2, "resnet50": resnet50, "vgg16": vgg16}


def write(name, folder):
    """Writes a network to the folder unless it is there; gives the file's path."""
    path = folder / f"{name}.onnx"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        NETWORKS[name](path)
    return path
