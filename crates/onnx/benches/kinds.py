"""Small networks of other kinds, with random weights: recurrent layers, and a transformer and convolutions in float32, in float16
and quantised by onnxruntime (statically, with QuantizeLinear and DequantizeLinear around each layer)."""

import numpy
import onnx
from large import Author
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT
TOKENS, WIDTH, SIZE = 128, 384, 112


def bert(path, layers=3, heads=12):
    g, x = Author(), "x"

    def linear(x, inputs, outputs):
        return g.node("Add", g.node("MatMul", x, g.weight(inputs, outputs, spread=0.05)), g.weight(outputs, spread=0.05))

    def norm(x):
        return g.node("LayerNormalization", x, g.weight(WIDTH, mean=1, spread=0.1), g.weight(WIDTH), axis=-1)

    for _ in range(layers):
        split = g.ints(0, TOKENS, heads, WIDTH // heads)
        orders = ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        parts = [g.node("Reshape", linear(x, WIDTH, WIDTH), split) for _ in orders]
        q, k, v = (g.node("Transpose", part, perm=order) for part, order in zip(parts, orders))
        scores = g.node("Div", g.node("MatMul", q, k), g.constant(numpy.float32(numpy.sqrt(WIDTH // heads))))
        seen = g.node("Transpose", g.node("MatMul", g.node("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        seen = g.node("Reshape", seen, g.ints(0, TOKENS, WIDTH))
        x = norm(g.node("Add", linear(seen, WIDTH, WIDTH), x))
        wide = g.node("Relu", linear(x, WIDTH, 4 * WIDTH))
        x = norm(g.node("Add", linear(wide, 4 * WIDTH, WIDTH), x))
    g.save(path, [("x", FLOAT, [TOKENS, WIDTH])], x)


def cnn(path):
    g, x, inputs = Author(), "x", 3
    for outputs, stride in ((32, 2), (64, 1), (64, 2), (128, 1), (128, 2), (256, 1)):
        weight, bias = g.weight(outputs, inputs, 3, 3), g.weight(outputs, spread=0.1)
        shape = dict(kernel_shape=[3, 3], strides=[stride] * 2, pads=[1] * 4)
        x = g.node("Relu", g.node("Conv", x, weight, bias, **shape))
        weight, bias = g.weight(outputs, outputs, 1, 1), g.weight(outputs, spread=0.1)
        x, inputs = g.node("Relu", g.node("Conv", x, weight, bias, kernel_shape=[1, 1])), outputs
    x = g.node("Flatten", g.node("GlobalAveragePool", x))
    x = g.node("Gemm", x, g.weight(100, inputs), g.weight(100), transB=1)
    g.save(path, [("x", FLOAT, [3, SIZE, SIZE])], x)


def recurrent(kind, gates, steps, inputs, size, **attributes):
    def make(path):
        g = Author()
        directions = 2 if attributes.get("direction") == "bidirectional" else 1
        weight = lambda *shape: g.weight(directions, *shape, spread=0.1)
        x = g.node("Transpose", "x", perm=[1, 0, 2])
        given = (x, weight(gates * size, inputs), weight(gates * size, size), weight(2 * gates * size))
        y = g.node(kind, *given, hidden_size=size, **attributes)
        g.save(path, [("x", FLOAT, [steps, inputs])], g.node("Transpose", y, perm=[2, 0, 1, 3]))

    return make


def quantised(make, *shape):
    def write(path):
        from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

        class Examples(CalibrationDataReader):
            def __init__(self):
                random = numpy.random.default_rng(1)
                self.left = [{"x": random.uniform(-1, 1, (1, *shape)).astype(numpy.float32)} for _ in range(4)]

            def get_next(self):
                return self.left.pop() if self.left else None

        plain = path.with_suffix(".plain.onnx")
        make(plain)
        quantize_static(plain, path, Examples(), quant_format=QuantFormat.QDQ, per_channel=True)
        plain.unlink()

    return write


def half(make):
    """The same in float16 between an input and an output of float32."""

    def write(path):
        make(path)
        model = onnx.load(path)
        graph = model.graph
        for weight in graph.initializer:
            array = numpy_helper.to_array(weight)
            if array.dtype == numpy.float32:
                weight.CopyFrom(numpy_helper.from_array(array.astype(numpy.float16), weight.name))
        graph.input[0].name, graph.node[-1].output[0] = "given", "found"
        graph.node.insert(0, helper.make_node("Cast", ["given"], ["x"], to=TensorProto.FLOAT16))
        graph.node.append(helper.make_node("Cast", ["found"], ["y"], to=FLOAT))
        onnx.save(model, path)

    return write


NETWORKS = {
    "bert": bert,
    "bert-fp16": half(bert),
    "bert-qdq": quantised(bert, TOKENS, WIDTH),
    "cnn": cnn,
    "cnn-fp16": half(cnn),
    "cnn-qdq": quantised(cnn, 3, SIZE, SIZE),
    "lstm": recurrent("LSTM", 4, 100, 64, 128),
    "bilstm": recurrent("LSTM", 4, 60, 256, 256, direction="bidirectional"),
    "gru": recurrent("GRU", 3, 100, 64, 128, linear_before_reset=1),
}


def write(name, folder):
    """Writes a network to the folder unless it is there; gives the file's path."""
    path = folder / f"{name}.onnx"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        NETWORKS[name](path)
    return path
