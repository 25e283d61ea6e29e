"""Writes small graphs by chance, beside onnxruntime's answers: python3 crates/onnx/benches/draws_graphs.py FOLDER COUNT [SEED [FAMILY ...]]

Blocks of convolutional networks, transformers written out in single operators, and quantised forms of both, in which joining nodes could
go wrong: values that are read twice or given to the caller, terms that are broadcast to or by what they meet, constants that are shared or
have more axes than they need, forms that differ a little from the one that is joined, float64 and float16. Run them by
cargo bench --bench onnx -- cases FOLDER, and, in batches, by cargo bench --bench onnx -- pipelines FOLDER/batches.
"""

import numpy as np
from chances import Case, element, helper, main

FAMILIES = []


def family(draw):
    FAMILIES.append(draw)
    return draw


class Graph:
    """A graph that grows; values by name with their shapes, of `rows` rows."""

    def __init__(self, dice, kind=None):
        self.dice = dice
        self.kind = kind or dice.choice([np.float32] * 6 + [np.float64, np.float16])
        self.opset = dice.choice([11, 12, 13, 15, 17, 18, 20])
        self.rows = dice.choice([1, 2, 3, 5])
        self.nodes, self.given, self.held, self.shapes, self.outputs, self.count = [], {}, {}, {}, [], 0
        self.batch = True

    def name(self, stem):
        self.count += 1
        return f"{stem}{self.count}"

    def input(self, *shape):
        name = self.name("x")
        self.given[name] = self.dice.numbers(self.rows, *shape, kind=self.kind, low=-2, high=2)
        self.shapes[name] = (self.rows, *shape)
        return name

    def hold(self, x, kind=None):
        """A constant; at times one that is there already, or a node."""
        x = np.asarray(x, kind or self.kind)
        for key, value in self.held.items():
            if value.dtype == x.dtype and value.shape == x.shape and np.array_equal(value, x) and self.dice.maybe(0.7):
                return key
        name = self.name("w")
        if self.dice.maybe(0.15):
            self.nodes.append(helper.make_node("Constant", [], [name], value=helper.make_tensor(name, element(x.dtype), x.shape, x.tobytes(), raw=True)))
        else:
            self.held[name] = x
        self.shapes[name] = x.shape
        return name

    def number(self, x):
        """A single number, with or without an axis, and rarely with more than its place needs."""
        return self.hold(np.full(self.dice.choice([(), (), (), (1,), (1,), (1, 1)]), x))

    def weight(self, *shape, low=-1, high=1):
        return self.hold(self.dice.numbers(*shape, kind=self.kind, low=low, high=high))

    def node(self, operator, inputs, shape, count=1, domain="", **attributes):
        names = [self.name("v") for _ in range(count)]
        self.nodes.append(helper.make_node(operator, inputs, names, domain=domain, **attributes))
        for name in names:
            self.shapes[name] = tuple(shape)
            # What the caller gets cannot be joined away.
            if self.dice.maybe(0.04):
                self.outputs.append(name)
        return names[0] if count == 1 else names

    def both(self, operator, a, b):
        """Of two in either order, broadcast."""
        shape = np.broadcast_shapes(self.shapes[a], self.shapes[b])
        pair = [a, b] if operator in ("Sub", "Div", "Pow") or self.dice.maybe() else [b, a]
        return self.node(operator, pair, shape)

    def reduce(self, operator, x, axes, keep=1):
        rank = len(self.shapes[x])
        axes = [a % rank for a in axes] if self.dice.maybe() else list(axes)
        shape = [1 if i in [a % rank for a in axes] else n for i, n in enumerate(self.shapes[x]) if keep or i not in [a % rank for a in axes]]
        more = {"keepdims": keep} if not keep or self.dice.maybe() else {}
        as_input = self.opset >= 18 or (operator == "ReduceSum" and self.opset >= 13)
        if as_input:
            return self.node(operator, [x, self.hold(axes, np.int64)], shape, **more)
        return self.node(operator, [x], shape, axes=axes, **more)

    def reshape(self, x, *shape):
        known = [n for n in shape[1:]]
        to = [0 if self.dice.maybe() else -1, *known]
        return self.node("Reshape", [x, self.hold(to, np.int64)], (self.rows, *known))

    def transpose(self, x, *perm):
        return self.node("Transpose", [x], [self.shapes[x][p] for p in perm], perm=list(perm))

    def clip(self, x, low, high):
        bounds = ["" if b is None else self.hold(np.array(b)) for b in (low, high)]
        return self.node("Clip", [x, *bounds], self.shapes[x])

    def case(self, last, tolerance=None, **more):
        if last in self.given or last in self.held:
            last = self.node("Relu", [last], self.shapes[last])
        self.outputs = list(dict.fromkeys([*self.outputs, last]))
        self.dice.shuffle(self.outputs)
        tolerance = tolerance or {np.float16: (3e-2, 3e-2), np.float32: (1e-3, 1e-3), np.float64: (1e-5, 1e-6)}[self.kind]
        free = self.dice.choice(["rows", "rows", True, False])
        return Case(self.nodes, self.given, self.outputs, self.held, self.opset, tolerance=tolerance, free=free, twin=None if self.kind == np.float32 else self.kind, batch=self.batch, **more)


# What bends numbers.


def bent(g, x):
    dice, shape = g.dice, g.shapes[x]
    way = dice.choice(["Relu", "Relu", "Tanh", "Sigmoid", "LeakyRelu", "Clip", "Clip6", "HardSigmoid", "silu", "silu_of_other", "hard_swish", "hard_swish", "gelu", "gelu", "gelu_tanh", "Elu", "Softplus", "PRelu", "mish", "HardSwish", "Gelu", "sqrelu", "quick"])
    mul = lambda a, b: g.both("Mul", a, b)
    if way == "Clip":
        low, high = dice.choice([(-0.5, 0.75), (0, None), (None, 0.5), (0, 6), (1, -1)])
        return g.clip(x, low, high)
    if way == "Clip6":
        return g.clip(x, 0, 6)
    if way == "LeakyRelu":
        return g.node(way, [x], shape, **({"alpha": 0.2} if dice.maybe() else {}))
    if way == "PRelu":
        return g.node(way, [x, g.weight(1)], shape)
    if way == "silu":
        return mul(x, g.node("Sigmoid", [x], shape))
    if way == "silu_of_other":
        return mul(x, g.node("Sigmoid", [g.node("Neg", [x], shape)], shape))
    if way == "quick":
        return mul(x, g.node("Sigmoid", [mul(x, g.number(1.702))], shape))
    if way == "hard_swish":
        line = g.clip(g.both("Add", x, g.number(dice.choice([3, 3, 3, 2.5]))), 0, dice.choice([6, 6, 6, 5]))
        sixth = lambda v: g.both("Div", v, g.number(6)) if dice.maybe() else mul(v, g.number(1 / 6))
        other = x if dice.maybe(0.9) else g.node("Neg", [x], shape)
        return sixth(mul(other, line)) if dice.maybe() else mul(other, sixth(line))
    if way in ("gelu", "gelu_tanh"):
        if way == "gelu":
            part = g.both("Div", x, g.number(2**0.5)) if dice.maybe() else mul(x, g.number(dice.choice([0.5**0.5, 0.5**0.5, 0.6])))
            curve = g.node("Erf", [part], shape)
        else:
            cube = g.both("Pow", x, g.number(3)) if dice.maybe() else mul(mul(x, x), x)
            curve = g.node("Tanh", [mul(g.both("Add", x, mul(cube, g.number(0.044715))), g.number(0.7978845608))], shape)
        total = g.both("Add", curve, g.number(1))
        order = dice.randrange(3)
        half = g.number(0.5)
        if order == 0:
            return mul(mul(x, total), half)
        return mul(mul(x, half), total) if order == 1 else mul(x, mul(total, half))
    if way == "mish":
        return mul(x, g.node("Tanh", [g.node("Softplus", [x], shape)], shape))
    if way == "HardSwish" and g.opset >= 14 or way == "Gelu" and g.opset >= 20:
        return g.node(way, [x], shape, **({"approximate": dice.choice(["none", "tanh"])} if way == "Gelu" and dice.maybe() else {}))
    if way == "sqrelu":
        r = g.node("Relu", [x], shape)
        return mul(r, r)
    if way in ("HardSwish", "Gelu"):
        way = "Relu"
    return g.node(way, [x], shape)


# Images.


def convolution(g, x, outside=None, kernel=None, stride=None):
    dice, (n, c, h, w) = g.dice, g.shapes[x]
    k = kernel or dice.choice([1, 1, 3, 3, 5])
    s = stride or dice.choice([1, 1, 1, 2])
    group = dice.choice([1, 1, 1, c])
    outside = outside or dice.choice([c, c, 2 * c, 3])
    if group == c and outside % c:
        group = 1
    inputs = [x, g.weight(outside, c // group, k, k, low=-1 / k, high=1 / k)]
    if dice.maybe():
        inputs.append(g.weight(outside))
    attributes = {"group": group} if group > 1 or dice.maybe() else {}
    if dice.maybe(0.7):
        attributes |= {"kernel_shape": [k, k]}
    if dice.maybe(0.2):
        attributes |= {"auto_pad": dice.choice(["SAME_UPPER", "SAME_LOWER"])}
    else:
        attributes |= {"pads": [k // 2] * 4}
    size = lambda length: -(-length // s)
    return g.node("Conv", inputs, (n, outside, size(h), size(w)), strides=[s, s], **attributes)


def normalised(g, x):
    dice, c = g.dice, g.shapes[x][1]
    own = lambda low=0.3: g.weight(c, low=low, high=1.5)
    more = {"epsilon": dice.choice([1e-5, 1e-3])} if dice.maybe() else {}
    return g.node("BatchNormalization", [x, own(-1), own(-1), own(-1), own()], g.shapes[x], **more)


def term(g, x, values):
    """Something that may be added to x: alike, broadcast to it, or what it is broadcast to."""
    dice, shape = g.dice, g.shapes[x]
    alike = [v for v in values if g.shapes[v] == shape]
    way = dice.choice(["alike"] * 4 + ["channels", "short", "last", "number", "itself", "pooled", "wide", "constant", "fits"])
    if way == "alike" and alike:
        return dice.choice(alike)
    if way == "fits":
        fits = [v for v in values if can(g.shapes[v], shape)] or [x]
        return dice.choice(fits)
    if way == "channels":
        return g.weight(1, shape[1], *[1] * (len(shape) - 2))
    if way == "short" and len(shape) > 2:
        return g.weight(shape[1], *[1] * (len(shape) - 2))
    if way == "last":
        return g.weight(shape[-1])
    if way == "itself":
        return x
    if way == "pooled" and len(shape) == 4:
        return g.node("GlobalAveragePool", [x], (*shape[:2], 1, 1))
    if way == "wide" and dice.maybe(0.3):
        # One that is larger than what it meets.
        wide = [dice.randint(2, 3) if n == 1 and i else n for i, n in enumerate(shape)]
        return g.weight(*([1, *wide[1:]] if dice.maybe() else [1, 1, *wide[1:]]))
    if way == "constant":
        return g.weight(*shape[1:]) if dice.maybe() else g.weight(1, *shape[1:])
    return g.number(0.5)


def can(a, b):
    try:
        np.broadcast_shapes(a, b)
        return True
    except ValueError:
        return False


@family
def images(dice):
    g = Graph(dice)
    x = g.input(dice.randint(1, 5), dice.randint(1, 9), dice.randint(1, 9))
    values = [x]
    for _ in range(dice.randint(1, 5)):
        x = dice.choice(values) if dice.maybe(0.25) else x
        if len(g.shapes[x]) != 4:
            break
        n, c, h, w = g.shapes[x]
        block = dice.choice(["conv"] * 7 + ["squeeze", "pool", "concat", "resize", "nhwc", "split", "norm", "deconv", "pad", "shuffle", "focus", "twins", "instance"])
        if block == "conv":
            x = convolution(g, x)
            if dice.maybe(0.4):
                x = normalised(g, x)
            if dice.maybe(0.2):
                x = bent(g, x)
            if dice.maybe(0.6):
                values.append(x) if dice.maybe(0.3) else None
                x = g.both(dice.choice(["Add", "Add", "Add", "Mul", "Sub"]), x, term(g, x, values))
            if dice.maybe(0.7) and len(g.shapes[x]) == 4:
                x = bent(g, x)
        elif block == "squeeze":
            p = g.node("GlobalAveragePool", [x], (n, c, 1, 1)) if dice.maybe() else g.reduce("ReduceMean", x, [2, 3])
            inner = dice.randint(1, 4)
            p = bent(g, convolution(g, p, inner, 1, 1))
            p = convolution(g, p, c, 1, 1)
            if len(g.shapes[p]) == 4 and g.shapes[p][1] == c:
                x = g.both("Mul", x, g.node(dice.choice(["Sigmoid", "HardSigmoid"]), [p], g.shapes[p]))
        elif block == "pool" and min(h, w) > 2:
            size = ((h - 2) // 2 + 1, (w - 2) // 2 + 1)
            x = g.node(dice.choice(["MaxPool", "AveragePool"]), [x], (n, c, *size), kernel_shape=[2, 2], strides=[2, 2])
        elif block == "concat":
            others = [v for v in values if len(g.shapes[v]) == 4 and g.shapes[v][2:] == (h, w) and g.shapes[v][0] == n] + [x]
            other = dice.choice(others)
            x = g.node("Concat", [x, other], (n, c + g.shapes[other][1], h, w), axis=dice.choice([1, -3]))
        elif block == "resize":
            x = g.node("Resize", [x, g.hold(np.zeros(0), np.float32) if g.opset < 13 else "", g.hold([1, 1, 2, 2], np.float32)], (n, c, 2 * h, 2 * w), mode=dice.choice(["nearest", "linear"]),
                       coordinate_transformation_mode=dice.choice(["asymmetric", "half_pixel"]), nearest_mode="floor")
        elif block == "nhwc":
            t = g.transpose(x, 0, 2, 3, 1)
            t = bent(g, g.both("Add", g.node("MatMul", [t, g.weight(c, c)], (n, h, w, c)), g.weight(c)))
            x = g.transpose(t, 0, 3, 1, 2) if len(g.shapes[t]) == 4 else t
        elif block == "split" and c % 2 == 0:
            if g.opset >= 18:
                a, b = g.node("Split", [x], (n, c // 2, h, w), 2, axis=1, num_outputs=2)
            else:
                a, b = g.node("Split", [x], (n, c // 2, h, w), 2, axis=1)
            x = g.both("Mul", a, g.node("Sigmoid", [b], g.shapes[b])) if dice.maybe() else g.node("Concat", [b, bent(g, a)], (n, c, h, w), axis=1)
            if len(g.shapes[x]) != 4:
                break
        elif block == "norm":
            x = normalised(g, x)
            x = bent(g, x) if dice.maybe() else normalised(g, convolution(g, x))
        elif block == "deconv":
            o = dice.randint(1, 3)
            x = g.node("ConvTranspose", [x, g.weight(c, o, 2, 2)] + ([g.weight(o)] if dice.maybe() else []), (n, o, 2 * h, 2 * w), strides=[2, 2])
            x = normalised(g, x) if dice.maybe() else bent(g, x)
        elif block == "pad":
            pads = [0, 0, 1, 1, 0, 0, 1, 1]
            x = g.node("Pad", [x, g.hold(pads, np.int64)] + ([g.hold(np.array(dice.choice([0, 0.5])))] if dice.maybe() else []), (n, c, h + 2, w + 2))
            x = g.node("Conv", [x, g.weight(c, c, 3, 3, low=-0.4, high=0.4)], (n, c, h, w))
        elif block == "shuffle" and c % 2 == 0:
            x = g.reshape(x, n, 2, c // 2, h, w)
            x = g.transpose(x, 0, 2, 1, 3, 4)
            x = g.reshape(x, n, c, h, w)
        elif block == "focus" and h > 1:
            cut = lambda start: g.node("Slice", [x, g.hold([start], np.int64), g.hold([2**40], np.int64), g.hold([2], np.int64), g.hold([2], np.int64)], (n, c, (h + 1 - start) // 2, w))
            a, b = cut(0), cut(1)
            x = g.node("Concat", [a, b], (n, 2 * c, h // 2, w), axis=1) if h % 2 == 0 else a
        elif block == "twins":
            # Two that share their weights, their input or both.
            a = convolution(g, x, c, 3, 1)
            b = g.node("Conv", [dice.choice([x, a]), g.nodes[-1].input[1] if g.nodes[-1].op_type == "Conv" and g.shapes[g.nodes[-1].input[1]][1] == c else g.weight(c, c, 3, 3)], (n, c, h, w), pads=[1] * 4)
            x = g.both("Add", normalised(g, a) if dice.maybe() else a, bent(g, b) if dice.maybe() else b)
        elif block == "instance" and h * w > 1:
            x = g.node("InstanceNormalization", [x, g.weight(c), g.weight(c)], (n, c, h, w), epsilon=1e-2)
            x = bent(g, x)
        values.append(x)
    if dice.maybe(0.4) and len(g.shapes[x]) == 4:
        n, c = g.shapes[x][:2]
        x = g.node("Flatten", [g.node("GlobalAveragePool", [x], (n, c, 1, 1))], (n, c)) if dice.maybe() else g.reduce("ReduceMean", x, [2, 3], 0)
        x = dense(g, x)
    return g.case(x)


def dense(g, x):
    """A product with a matrix, a bias of any shape, a sum, an activation."""
    dice, shape = g.dice, g.shapes[x]
    terms, columns = shape[-1], dice.choice([shape[-1], shape[-1], 1, 2, 7])
    limit = 1.5 / terms**0.5
    out = (*shape[:-1], columns)
    if len(shape) == 2 and dice.maybe():
        turned = dice.choice([0, 1])
        w = g.weight(*([columns, terms] if turned else [terms, columns]), low=-limit, high=limit)
        c = dice.choice([None, [columns], [1, columns], [1], []])
        attributes = dice.choice([{}, {}, {"alpha": 0.5}, {"beta": 2.0}])
        y = g.node("Gemm", [x, w] + ([] if c is None else [g.weight(*c)]), out, transB=turned, **attributes)
    else:
        y = g.node("MatMul", [x, g.weight(terms, columns, low=-limit, high=limit)], out)
        if dice.maybe(0.7):
            bias = dice.choice([[columns], [columns], [1], [], [1, columns], [1, 1, columns], [2, 1, columns] if len(shape) == 2 else [columns]])
            y = g.both("Add", y, g.weight(*bias))
    if dice.maybe(0.3):
        y = g.both("Add", y, x if can(g.shapes[x], g.shapes[y]) else g.number(0.25))
    if dice.maybe(0.6):
        y = bent(g, y)
    return y


def layer_norm(g, x):
    """Written out, in one of its forms or one that is nearly so."""
    dice, shape = g.dice, g.shapes[x]
    axis = dice.choice([-1, -1, -1, -1, len(shape) - 1, 1])
    mean = lambda v: g.node("ReduceMean", [v, g.hold([axis], np.int64)], average, keepdims=1) if g.opset >= 18 else g.node("ReduceMean", [v], average, axes=[axis], **({"keepdims": 1} if dice.maybe() else {}))
    average = [1 if i == axis % len(shape) else n for i, n in enumerate(shape)]
    m = mean(x)
    centred = g.node("Sub", [x, m], shape) if dice.maybe(0.93) else g.node("Sub", [m, x], shape)
    again = g.node("Sub", [x, m], shape) if dice.maybe(0.2) else centred
    square = g.both("Pow", centred, g.number(2)) if dice.maybe() else g.both("Mul", centred, again)
    root = g.node("Sqrt", [g.both("Add", mean(square), g.number(dice.choice([1e-5, 1e-2])))], average)
    y = g.both("Div", again, root)
    last = shape[-1]
    own = lambda: g.weight(*dice.choice([[last], [last], [last], [1], [1, last], []]))
    if dice.maybe(0.85):
        y = g.both("Mul", y, own())
        if dice.maybe(0.85):
            y = g.both("Add", y, own())
    return y


@family
def sequences(dice):
    g = Graph(dice)
    steps, width = dice.randint(1, 5), dice.choice([1, 2, 4, 8, 6])
    x = g.input(steps, width) if dice.maybe(0.8) else g.input(width)
    values = [x]
    for _ in range(dice.randint(1, 5)):
        x = dice.choice(values) if dice.maybe(0.25) else x
        block = dice.choice(["dense"] * 4 + ["norm"] * 3 + ["attention"] * 2 + ["rms", "add", "softmax", "mask", "feed", "rotary", "LayerNormalization", "einsum", "gate", "position", "bent"])
        shape = g.shapes[x]
        width = shape[-1]
        if block == "dense":
            x = dense(g, x)
        elif block == "norm":
            x = layer_norm(g, x)
        elif block == "bent":
            x = bent(g, x)
        elif block == "rms":
            square = g.both("Pow", x, g.number(2)) if dice.maybe() else g.both("Mul", x, x)
            root = g.node("Sqrt", [g.both("Add", g.reduce("ReduceMean", square, [-1]), g.number(1e-3))], (*shape[:-1], 1))
            y = g.both("Div", x, root) if dice.maybe() else g.both("Mul", x, g.node("Reciprocal", [root], g.shapes[root]))
            x = g.both("Mul", y, g.weight(width))
        elif block == "attention" and len(shape) == 3 and shape[0] == g.rows:
            x = attend(g, x)
        elif block == "add":
            x = g.both("Add", x, term(g, x, values))
        elif block == "softmax":
            x = g.node(dice.choice(["Softmax", "LogSoftmax"]), [x], shape, axis=-1)
        elif block == "mask":
            c = g.both("Less", x, g.number(0)) if g.kind != np.float16 else None
            if c:
                c = g.node("Not", [c], g.shapes[c]) if dice.maybe(0.3) else c
                x = g.node("Where", [c, x, g.both("Mul", x, g.number(-0.5))], np.broadcast_shapes(g.shapes[c], shape))
        elif block == "feed":
            y = dense(g, x)
            y = dense(g, y)
            x = g.both("Add", x, y) if can(g.shapes[x], g.shapes[y]) else y
        elif block == "rotary" and width % 2 == 0:
            cut = lambda a, b: g.node("Slice", [x, g.hold([a], np.int64), g.hold([b], np.int64), g.hold([-1], np.int64)], (*shape[:-1], width // 2))
            half = width // 2
            a, b = cut(0, half), cut(half, 2**40)
            turned = g.node("Concat", [g.node("Neg", [b], g.shapes[b]), a], shape, axis=-1)
            x = g.both("Add", g.both("Mul", x, g.weight(width)), g.both("Mul", turned, g.weight(width)))
        elif block == "LayerNormalization" and g.opset >= 17:
            x = g.node("LayerNormalization", [x, g.weight(width)] + ([g.weight(width)] if dice.maybe() else []), shape, axis=-1)
        elif block == "einsum" and len(shape) == 3:
            x = g.node("Einsum", [x, g.weight(width, width)], shape, equation=dice.choice(["bij,jk->bik", "...j,jk->...k"]))
        elif block == "gate":
            a = g.node("MatMul", [x, g.weight(width, 4)], (*shape[:-1], 4))
            b = g.node("MatMul", [x, g.weight(width, 4)], (*shape[:-1], 4))
            x = g.both("Mul", bent(g, a), b)
        elif block == "position" and len(shape) == 3:
            x = g.both("Add", x, g.weight(1, shape[1], width) if dice.maybe() else g.weight(shape[1], width))
        if len(g.shapes[x]) < 2 or np.prod(g.shapes[x]) > 20000:
            break
        values.append(x)
    return g.case(x)


def attend(g, x):
    dice, (n, steps, width) = g.dice, g.shapes[x]
    heads = dice.choice([h for h in (1, 2, 4) if width % h == 0])
    size = width // heads
    limit = 1.5 / width**0.5
    w = lambda: g.weight(width, width, low=-limit, high=limit)

    def projected():
        y = g.node("MatMul", [x, w()], (n, steps, width))
        return g.both("Add", y, g.weight(width)) if dice.maybe() else y

    def split(y, *perm):
        y = g.reshape(y, n, steps, heads, size)
        return g.transpose(y, *perm)

    q, k, v = split(projected(), 0, 2, 1, 3), split(projected(), 0, 2, 3, 1), split(projected(), 0, 2, 1, 3)
    if dice.maybe(0.3):
        q = g.both("Mul", q, g.number(size**-0.25))
    s = g.node("MatMul", [q, k], (n, heads, steps, steps))
    s = g.both("Div", s, g.number(size**0.5)) if dice.maybe() else g.both("Mul", s, g.number(size**-0.5))
    if dice.maybe():
        mask = np.triu(np.full((steps, steps), -1e4), 1)
        s = g.both("Add", s, g.hold(mask.reshape(dice.choice([(steps, steps), (1, 1, steps, steps)]))))
    p = g.node("Softmax", [s], (n, heads, steps, steps), axis=dice.choice([-1, 3]))
    o = g.transpose(g.node("MatMul", [p, v], (n, heads, steps, size)), 0, 2, 1, 3)
    o = g.reshape(o, n, steps, width)
    o = g.node("MatMul", [o, w()], (n, steps, width))
    if dice.maybe():
        o = g.both("Add", g.weight(width), o)
    return g.both("Add", o, x)


# Quantised forms.


class Steps(Graph):
    """A graph of values that stand for small integers: each is counted in steps of its own."""

    def __init__(self, dice):
        super().__init__(dice, np.float32)
        self.opset = dice.choice([13, 17, 20])
        # A step more or less is no difference here, and one there.
        self.batch = False
        self.byte = dice.choice([np.uint8, np.uint8, np.int8])

    def point(self, kind, *shape):
        return self.hold(self.dice.numbers(*shape, kind=kind, low=0 if kind == np.uint8 else -9, high=200 if kind == np.uint8 and self.dice.maybe(0.3) else 9), kind)

    def counted(self, x):
        """Quantised, by constants."""
        kind = self.byte if self.dice.maybe(0.9) else np.int8
        zero = self.dice.choice([0, 128, 120, 3]) if kind == np.uint8 else self.dice.choice([0, -128, 5])
        pair = [self.hold(np.array(self.dice.choice([0.02, 0.05, 0.03]), np.float32), np.float32), self.hold(np.array(zero, kind), kind)]
        q = self.node("QuantizeLinear", [x, *pair], self.shapes[x])
        self.pairs = getattr(self, "pairs", {})
        self.pairs[q] = pair
        return q

    def real(self, q):
        return self.node("DequantizeLinear", [q, *self.pairs[q]], self.shapes[q])

    def weights(self, shape, axis, channels):
        kind = self.dice.choice([np.int8, np.int8, np.uint8])
        own = [channels] if self.dice.maybe() else []
        scale = self.dice.numbers(*own, low=0.004, high=0.02)
        zero = np.zeros(own, kind) if self.dice.maybe(0.7) else self.dice.numbers(*own, kind=kind, low=0, high=9)
        integers = self.hold(self.dice.whole(*shape, kind=kind), kind)
        more = {"axis": axis} if own else {}
        return self.node("DequantizeLinear", [integers, self.hold(scale, np.float32), self.hold(zero, kind)], shape, **more), scale


@family
def quantized(dice):
    g = Steps(dice)
    image = dice.maybe(0.6)
    x = g.input(dice.randint(1, 4), dice.randint(2, 7), dice.randint(2, 7)) if image else g.input(dice.choice([4, 8])) if dice.maybe() else g.input(3, dice.choice([4, 8]))
    q = g.counted(x)
    values = [q]
    for _ in range(dice.randint(1, 4)):
        q = dice.choice(values) if dice.maybe(0.25) else q
        shape = g.shapes[q]
        x = g.real(q)
        if dice.maybe(0.1):
            g.node("Relu", [x], shape)
            g.outputs.append(g.nodes[-1].output[0])
        block = dice.choice(["product"] * 4 + ["add", "concat", "pool", "bent", "twice", "mean"])
        if block == "product" and len(shape) == 4:
            c = shape[1]
            outside, k, group = dice.choice([c, 3, 2 * c]), dice.choice([1, 3]), dice.choice([1, 1, c])
            if outside % group:
                group = 1
            w, scale = g.weights((outside, c // group, k, k), 0, outside)
            inputs = [x, w]
            if dice.maybe():
                by = np.float32(g.held.get(g.pairs[q][0], np.float32(0.05))) * scale * np.float32(dice.choice([1, 1, 1, 2]))
                bias = g.hold(dice.numbers(outside, kind=np.int32, low=-500, high=500), np.int32)
                by = np.broadcast_to(by, by.shape)
                zero = [g.hold(np.zeros(by.shape), np.int32)] if dice.maybe() else []
                inputs.append(g.node("DequantizeLinear", [bias, g.hold(by, np.float32), *zero], (outside,), **({"axis": 0} if by.ndim else {})))
            y = g.node("Conv", inputs, (shape[0], outside, *shape[2:]), pads=[k // 2] * 4, group=group)
        elif block == "product":
            columns = dice.choice([shape[-1], 5])
            w, _ = g.weights((shape[-1], columns), dice.choice([1, -1]), columns)
            if len(shape) == 2 and dice.maybe(0.3):
                y = g.node("Gemm", [x, w] + ([g.weight(columns)] if dice.maybe() else []), (shape[0], columns))
            else:
                y = g.node("MatMul", [x, w], (*shape[:-1], columns))
                if dice.maybe(0.3):
                    y = g.both("Add", y, g.weight(columns))
        elif block in ("add", "twice", "concat"):
            others = [v for v in values if g.shapes[v] == shape]
            other = g.real(dice.choice(others)) if others else x
            if block == "concat":
                y = g.node("Concat", [x, other], (*shape[:-1], 2 * shape[-1]), axis=-1)
            else:
                y = g.both("Add" if block == "add" else "Mul", x, other)
        elif block == "pool" and len(shape) == 4 and min(shape[2:]) > 1:
            y = g.node(dice.choice(["MaxPool", "AveragePool"]), [x], (*shape[:2], shape[2] - 1, shape[3] - 1), kernel_shape=[2, 2])
        elif block == "mean" and len(shape) == 4:
            y = g.node("GlobalAveragePool", [x], (*shape[:2], 1, 1))
        else:
            y = g.node(dice.choice(["Sigmoid", "LeakyRelu", "Relu", "Tanh"]), [x], shape)
        if dice.maybe(0.4):
            y = g.node("Relu", [y], g.shapes[y])
        if dice.maybe(0.85):
            q = g.counted(y)
        else:
            q = g.counted(bent(g, y))
        values.append(q)
        if dice.maybe(0.08):
            g.outputs.append(q)
    x = g.real(q) if dice.maybe(0.7) else q
    return g.case(x, tolerance=(0, 0.2501 if x != q else 5.01))


@family
def lines(dice):
    """Convolutions of one and of three axes, with all that may follow them."""
    g = Graph(dice)
    rank = dice.choice([1, 1, 3])
    sizes = [dice.randint(1, 12 if rank == 1 else 5) for _ in range(rank)]
    x = g.input(dice.randint(1, 4), *sizes)
    values = [x]
    for _ in range(dice.randint(1, 4)):
        shape = g.shapes[x]
        n, c = shape[:2]
        k, group, outside = dice.choice([1, 3, 5]), dice.choice([1, 1, c]), dice.choice([c, 2 * c, 3])
        if outside % group:
            group = 1
        more = {"dilations": [2] * rank, "pads": [k - 1] * (2 * rank)} if dice.maybe(0.3) else {"pads": [k // 2] * (2 * rank)}
        if dice.maybe(0.3):
            # Padding on one side alone, as of causal convolutions.
            more["pads"] = [p * 2 for p in more["pads"][:rank]] + [0] * rank
        x = g.node("Conv", [x, g.weight(outside, c // group, *[k] * rank, low=-0.5, high=0.5)] + ([g.weight(outside)] if dice.maybe() else []), (n, outside, *shape[2:]), group=group, kernel_shape=[k] * rank, **more)
        if dice.maybe(0.4):
            x = normalised(g, x)
        if dice.maybe(0.5):
            x = g.both(dice.choice(["Add", "Add", "Mul"]), x, term(g, x, values))
        if dice.maybe(0.7):
            x = bent(g, x)
        if len(g.shapes[x]) != rank + 2:
            break
        values.append(x)
    return g.case(x)


@family
def large(dice):
    """Sizes at which whole tiles are computed, and what is left over."""
    g = Graph(dice, np.float32)
    if dice.maybe(0.65):
        x = g.input(dice.choice([3, 8, 16, 24, 33]), dice.randint(7, 34), dice.randint(7, 34))
        values = [x]
        for _ in range(dice.randint(1, 3)):
            n, c, h, w = g.shapes[x]
            outside = dice.choice([c, 8, 16, 32, 40])
            x = convolution(g, x, outside, dice.choice([1, 3, 3, 3, 5, 7]), dice.choice([1, 1, 1, 2]))
            if dice.maybe():
                x = normalised(g, x)
            alike = [v for v in values if g.shapes[v] == g.shapes[x]]
            if dice.maybe(0.6):
                x = g.both("Add", x, dice.choice(alike) if alike and dice.maybe(0.8) else term(g, x, values))
            if dice.maybe(0.8):
                x = bent(g, x)
            if len(g.shapes[x]) != 4 or np.prod(g.shapes[x]) > 200000:
                break
            values.append(x)
        return g.case(x, tolerance=(2e-3, 2e-3))
    width = dice.choice([16, 31, 64, 100])
    x = g.input(width) if dice.maybe() else g.input(dice.choice([7, 33, 64]), width)
    values = [x]
    for _ in range(dice.randint(1, 4)):
        terms, columns = g.shapes[x][-1], dice.choice([16, 17, 64, 100, 130])
        x = g.node("MatMul", [x, g.weight(terms, columns, low=-1 / terms**0.5, high=1 / terms**0.5)], (*g.shapes[x][:-1], columns))
        if dice.maybe(0.7):
            x = g.both("Add", x, g.weight(columns))
        alike = [v for v in values if g.shapes[v] == g.shapes[x]]
        if dice.maybe():
            x = g.both("Add", x, dice.choice(alike) if alike else term(g, x, values))
        x = bent(g, x) if dice.maybe(0.7) else layer_norm(g, x)
        if len(g.shapes[x]) > 3 or np.prod(g.shapes[x]) > 200000:
            break
        values.append(x)
    return g.case(x, tolerance=(2e-3, 2e-3))


@family
def bodies(dice):
    """Branches and loops whose bodies read values that could be joined away."""
    g = Graph(dice, np.float32)
    image = dice.maybe()
    x = g.input(3, 5, 4) if image else g.input(4)
    y = convolution(g, x, 3, 3, 1) if image else g.node("MatMul", [x, g.weight(4, 4)], g.shapes[x])
    before = y
    z = bent(g, y)
    if dice.maybe():
        z = g.both("Add", z, g.weight(g.shapes[x][-1]))
    seen = dice.choice([before, y, z, x])
    total = g.node("ReduceMax", [x], (), keepdims=0)
    limit = g.node("Less", [total, g.hold(np.array(dice.choice([1.9, 1.5, 0.5])))], ())
    inner = lambda name, nodes, out: helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(out, element(np.float32), None)])
    if dice.maybe():
        # A body with a chain of its own, which reads from outside.
        then = inner("then", [helper.make_node("Sigmoid", [seen], ["s_in"]), helper.make_node("Mul", [seen, "s_in"], ["then_out"])], "then_out")
        other = inner("other", [helper.make_node("Relu", [z], ["other_out"])], "other_out")
        out = g.name("v")
        g.nodes.append(helper.make_node("If", [limit], [out], then_branch=then, else_branch=other))
        g.shapes[out] = g.shapes[x]
    else:
        info = helper.make_tensor_value_info
        body = [helper.make_node("Add", ["state", seen], ["sum_in"]), helper.make_node("Tanh", ["sum_in"], ["next"]), helper.make_node("Identity", ["go"], ["on"])]
        if image:
            weight = g.weight(3, 3, 1, 1)
            body[1] = helper.make_node("Conv", ["sum_in", weight], ["c_in"])
            body.append(helper.make_node("Relu", ["c_in"], ["next"]))
            body = [body[0], body[1], body[3], body[2]]
        body = helper.make_graph(body, "body", [info("i", element(np.int64), []), info("go", element(np.bool_), []), info("state", element(np.float32), None)], [info("on", element(np.bool_), []), info("next", element(np.float32), None)])
        out = g.name("v")
        g.nodes.append(helper.make_node("Loop", [g.hold(np.array(dice.randint(0, 3)), np.int64), "", z], [out], body=body))
        g.shapes[out] = g.shapes[x]
    # What follows may be joined with what was before.
    g.batch = False
    last = bent(g, g.both("Add", out, before))
    return g.case(last)


@family
def large_quantized(dice):
    """Integers at sizes at which whole tiles are computed."""
    g = Steps(dice)
    image = dice.maybe(0.6)
    x = g.input(dice.choice([3, 8, 16, 24]), dice.randint(5, 20), dice.randint(5, 20)) if image else g.input(dice.choice([5, 33]), dice.choice([16, 64, 100]))
    q = g.counted(x)
    for _ in range(dice.randint(1, 3)):
        shape = g.shapes[q]
        x = g.real(q)
        if image:
            c = shape[1]
            outside, k, group, s = dice.choice([c, 8, 24, 32]), dice.choice([1, 3, 5]), dice.choice([1, 1, c]), dice.choice([1, 1, 2])
            if outside % group:
                group = 1
            w, _ = g.weights((outside, c // group, k, k), 0, outside)
            size = lambda n: -(-n // s)
            y = g.node("Conv", [x, w], (shape[0], outside, size(shape[2]), size(shape[3])), pads=[k // 2] * 4, group=group, strides=[s, s])
        else:
            columns = dice.choice([16, 33, 100])
            w, _ = g.weights((shape[-1], columns), 1, columns)
            y = g.node("MatMul", [x, w], (*shape[:-1], columns))
        if dice.maybe(0.4):
            y = g.node("Relu", [y], g.shapes[y])
        q = g.counted(y)
    x = g.real(q)
    return g.case(x, tolerance=(0, 0.2501))


@family
def dynamic(dice):
    """Shapes that are computed from those of the request, as exporters of PyTorch and TensorFlow write them."""
    g = Graph(dice, np.float32)
    g.rows = dice.choice([1, 2, 3, 4])
    steps, width = dice.randint(1, 5), dice.choice([2, 4, 6])
    x = g.input(steps, width)
    ints = lambda *n: g.hold(list(n), np.int64)
    for _ in range(dice.randint(1, 3)):
        n, t, d = g.shapes[x]
        shape = g.node("Shape", [x], (3,))
        # One length as a vector of one, or as a number.
        way = dice.randrange(4)
        def length(i, as_vector=True):
            if way == 0:
                v = g.node("Slice", [shape, ints(i), ints(i + 1)], (1,))
            elif way == 1:
                v = g.node("Gather", [shape, ints(i)], (1,), axis=0)
            elif way == 2 and g.opset >= 15:
                v = g.node("Shape", [x], (1,), start=i, end=i + 1)
            else:
                v = unsqueeze(g, g.node("Gather", [shape, g.hold(np.array(i - 3 if dice.maybe() else i), np.int64)], ()), 0, (1,))
            return v if as_vector else squeeze(g, v)
        block = dice.choice(["reshape", "flat", "heads", "expand", "position", "mask", "slice", "fill", "tile", "where", "pad", "size", "range_gather", "one_hot", "resize"])
        if block == "reshape":
            to = g.node("Concat", [length(0), g.node("Mul", [length(1), length(2)], (1,))], (2,), axis=0)
            y = g.node("Reshape", [x, to], (n, t * d))
            y = g.node("MatMul", [y, g.weight(t * d, 3)], (n, 3)) if dice.maybe() else y
            to = g.node("Concat", [length(0), ints(-1, g.shapes[y][1])], (3,), axis=0)
            x = g.node("Reshape", [y, to], (n, 1, g.shapes[y][1]))
        elif block == "flat":
            y = g.node("Reshape", [x, ints(-1, d)], (n * t, d))
            y = bent(g, g.node("Gemm", [y, g.weight(d, d), g.weight(d)], (n * t, d)))
            x = g.node("Reshape", [y, shape], (n, t, d))
        elif block == "heads":
            half = g.node("Div", [length(2), ints(2)], (1,))
            y = g.node("Reshape", [x, g.node("Concat", [length(0), length(1), ints(2), half], (4,), axis=0)], (n, t, 2, d // 2))
            y = g.transpose(y, 0, 2, 1, 3)
            s = g.node("Softmax", [g.node("MatMul", [y, g.transpose(y, 0, 1, 3, 2)], (n, 2, t, t))], (n, 2, t, t), axis=-1)
            y = g.transpose(g.node("MatMul", [s, y], (n, 2, t, d // 2)), 0, 2, 1, 3)
            x = g.node("Reshape", [y, g.node("Concat", [length(0), length(1), ints(-1)], (3,), axis=0)], (n, t, d))
        elif block == "expand":
            y = g.node("Expand", [g.weight(1, 1, d), g.node("Concat", [length(0), ints(1, 1)], (3,), axis=0)], (n, 1, d))
            x = g.node("Concat", [y, x], (n, t + 1, d), axis=1)
        elif block == "position":
            table = g.weight(12, d)
            y = g.node("Slice", [table, ints(0), length(1), ints(0)], (t, d)) if t <= 12 else table
            x = g.both("Add", x, y) if t <= 12 else x
        elif block == "mask":
            r = g.node("Range", [g.hold(np.array(0), np.int64), length(1, False), g.hold(np.array(1), np.int64)], (t,))
            seen = g.node("Less", [unsqueeze(g, r, 0, (1, t)), unsqueeze(g, g.node("Add", [r, ints(1)], (t,)), 1, (t, 1))], (t, t))
            m = g.node("Where", [seen, g.number(0.5), g.number(-0.25)], (t, t))
            x = g.node("MatMul", [m, x], (n, t, d)) if g.shapes[m] == (t, t) else x
        elif block == "slice":
            end = g.node("Sub", [length(1), ints(dice.choice([0, 1]) if t > 1 else 0)], (1,))
            k = t - 1 if g.nodes[-1].input[1] and np.array_equal(g.held.get(g.nodes[-1].input[1], [1 if t > 1 else 0]), [1]) else t
            x = g.node("Slice", [x, ints(0), end, ints(1)], (n, k, d)) if g.nodes[-1].input[1] in g.held else x
        elif block == "fill":
            to = g.node("Concat", [length(0), length(1), ints(2)], (3,), axis=0)
            fill = g.node("ConstantOfShape", [to], (n, t, 2), value=helper.make_tensor("v", 1, [1], [dice.choice([0.0, 1.5])]))
            x = g.node("Concat", [x, fill], (n, t, d + 2), axis=2)
        elif block == "tile":
            y = g.reduce("ReduceMean", x, [1])
            x = g.node("Tile", [y, g.node("Concat", [ints(1), length(1), ints(1)], (3,), axis=0)], (n, t, d))
        elif block == "where":
            # As Expand is exported: where the length is -1, that of the other.
            want = ints(-1, t, d)
            to = g.node("Where", [g.node("Equal", [want, ints(-1, -1, -1)], (3,)), shape, want], (3,))
            x = g.node("Expand", [x, to], (n, t, d))
        elif block == "pad":
            missing = g.node("Max", [g.node("Sub", [ints(4), length(1)], (1,)), ints(0)], (1,))
            pads = g.node("Concat", [ints(0, 0, 0, 0), missing, ints(0)], (6,), axis=0)
            x = g.node("Pad", [x, pads], (n, max(t, 4), d))
        elif block == "size":
            total = g.node("Cast", [g.node("Size", [x], ())], (), to=1)
            rows = g.node("Cast", [length(0, False)], (), to=1)
            x = g.node("Div", [x, g.node("Div", [total, rows], ())], (n, t, d))
        elif block == "range_gather":
            r = g.node("Range", [g.hold(np.array(0), np.int64), length(1, False), g.hold(np.array(2), np.int64)], (-(-t // 2),))
            x = g.node("Gather", [x, r], (n, -(-t // 2), d), axis=1)
        elif block == "one_hot":
            at = g.node("ArgMax", [x], (n, t), axis=-1, keepdims=0)
            x = g.node("OneHot", [at, length(2), g.hold([0, 1])], (n, t, d), axis=-1)
        elif block == "resize":
            y = g.transpose(x, 0, 2, 1)
            to = g.node("Concat", [length(0), length(2), g.node("Mul", [length(1), ints(2)], (1,))], (3,), axis=0)
            y = g.node("Resize", [y, g.hold(np.zeros(0), np.float32) if g.opset < 13 else "", g.hold(np.zeros(0), np.float32) if g.opset < 13 else "", to], (n, d, 2 * t), mode=dice.choice(["nearest", "linear"]))
            x = g.transpose(y, 0, 2, 1)
        if dice.maybe(0.3):
            x = bent(g, x)
        if len(g.shapes[x]) != 3:
            break
    return g.case(x)


def unsqueeze(g, x, axis, shape):
    return g.node("Unsqueeze", [x, g.hold([axis], np.int64)], shape) if g.opset >= 13 else g.node("Unsqueeze", [x], shape, axes=[axis])


def squeeze(g, x):
    return g.node("Squeeze", [x, g.hold([0], np.int64)], ()) if g.opset >= 13 else g.node("Squeeze", [x], (), axes=[0])


@family
def functions(dice):
    """Functions of the file's own: with attributes and their defaults, within each other, and with names that are used outside too."""
    opset = dice.choice([13, 17, 18])
    inside = opset
    make = lambda operator, inputs, outputs, domain="", **attributes: helper.make_node(operator, inputs, outputs, domain=domain, **attributes)

    def with_reference(node, name, kind):
        a = node.attribute.add()
        a.name, a.ref_attr_name, a.type = name, name, kind
        return node

    leaky = with_reference(make("LeakyRelu", ["x"], ["t"]), "alpha", 1)
    body = [leaky, make("Mul", ["t", "x"], ["y"])]
    defaults = [helper.make_attribute("alpha", 0.3)]
    first = helper.make_function("own", "Bend", ["x"], ["y"], body, [helper.make_opsetid("", inside)], attributes=[] if dice.maybe() else ["alpha"])
    if not first.attribute:
        first.attribute_proto.extend(defaults)
    silu = helper.make_function("own", "Gate", ["a", "b"], ["y"], [make("Sigmoid", ["a"], ["t"]), make("Mul", ["a", "t"], ["s"])] + ([make("Add", ["s", "b"], ["y"])] if dice.maybe() else [make("Identity", ["s"], ["y"])]), [helper.make_opsetid("", inside)])
    nested = helper.make_function("own", "Both", ["x", "w"], ["y", "t"], [make("MatMul", ["x", "w"], ["m"]), make("Bend", ["m"], ["t"], "own", alpha=0.1), make("Gate", ["t", "m"], ["y"], "own")],
                                  [helper.make_opsetid("", inside), helper.make_opsetid("own", 1)])
    reduce = [with_reference(make("ReduceMean", ["x"], ["y"]), "axes", 7)] if inside < 18 else [make("ReduceMean", ["x"], ["y"])]
    mean = helper.make_function("own", "Mean", ["x"], ["y"], reduce, [helper.make_opsetid("", inside)], attributes=["axes"])
    n, width = dice.randint(1, 3), dice.choice([2, 4])
    x, w = dice.numbers(n, width), dice.numbers(width, width)
    nodes, last = [], "x"
    for i in range(dice.randint(1, 4)):
        # Outer names that are names within, too.
        out = dice.choice(["t", "m", "y", "s"]) + (str(i) if i else "")
        what = dice.choice(["Bend", "Gate", "Both", "Mean", "Add"])
        if what == "Bend":
            nodes.append(make("Bend", [last], [out], "own", **({"alpha": dice.choice([0.2, 0.7])} if first.attribute or dice.maybe() else {})))
        elif what == "Gate":
            nodes.append(make("Gate", [last, "x"], [out], "own"))
        elif what == "Both":
            nodes.append(make("Both", [last, "w"], [out, f"z{i}"], "own"))
        elif what == "Mean" and inside < 18:
            nodes.append(make("Mean", [last], [f"u{i}"], "own", axes=[-1]))
            nodes.append(make("Sub", [last, f"u{i}"], [out]))
        else:
            nodes.append(make("Add", [last, "w2"], [out]))
        last = out
    nodes.append(make("Relu", [last], ["out"]))
    return Case(nodes, {"x": x}, ["out"], {"w": w, "w2": dice.numbers(width)}, opset, functions=[first, silu, nested, mean], free=dice.choice(["rows", False]), batch=True, tolerance=(1e-3, 1e-3))


if __name__ == "__main__":
    main(FAMILIES, __doc__)
