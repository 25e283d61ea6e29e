"""Writes tests/models/zoo: the architectures that people export, small, each with onnxruntime's answers.

    pip install -r tests/models/requirements.txt
    python tests/models/zoo.py [NAME ...]

Weights are random, since arithmetic is what is tested. Each NAME.onnx has its NAME.json as `make.py` describes it: four rows
that differ. `old` and `new` are PyTorch's two exporters (TorchScript, and torch.export with onnxscript).
"""

import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from torch import nn
from torch.nn import functional as F

from make import answer

HERE = Path(__file__).resolve().parent / "zoo"
ROWS = 4
warnings.filterwarnings("ignore")


class Block(nn.Module):
    """A residual block of ResNet."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.short = None
        if stride != 1 or inputs != outputs:
            self.short = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.norm2(self.second(F.relu(self.norm(self.first(x)))))
        return F.relu(y + (self.short(x) if self.short else x))


def resnet():
    return nn.Sequential(
        nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        Block(8, 8, 1), Block(8, 12, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 5),
    )  # fmt: skip


class Inverted(nn.Module):
    """An inverted residual block of MobileNetV3: depthwise, squeeze and excitation."""

    def __init__(self, channels, expanded, activation):
        super().__init__()
        self.widen = nn.Sequential(nn.Conv2d(channels, expanded, 1, bias=False), nn.BatchNorm2d(expanded), activation)
        self.depth = nn.Sequential(
            nn.Conv2d(expanded, expanded, 5, 1, 2, groups=expanded, bias=False), nn.BatchNorm2d(expanded), activation
        )
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(expanded, 4, 1), nn.ReLU(), nn.Conv2d(4, expanded, 1), nn.Hardsigmoid()
        )
        self.narrow = nn.Sequential(nn.Conv2d(expanded, channels, 1, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x):
        y = self.depth(self.widen(x))
        return x + self.narrow(y * self.squeeze(y))


def mobilenet():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU6(),
        Inverted(8, 16, nn.Hardswish()), Inverted(8, 16, nn.ReLU6()),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5),
    )  # fmt: skip


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(1, 4, 3, padding=1)
        self.deep = nn.Conv2d(4, 8, 3, padding=1)
        self.up = nn.ConvTranspose2d(8, 4, 2, 2)
        self.smooth = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
        self.norm = nn.InstanceNorm2d(8, affine=True)
        self.last = nn.Conv2d(16, 2, 1)

    def forward(self, x):
        a = F.leaky_relu(self.down(x))
        b = F.silu(self.norm(self.deep(F.avg_pool2d(a, 2))))
        return torch.sigmoid(self.last(torch.cat([a, self.up(b), self.smooth(b)], 1)))


class Encoder(nn.Module):
    """An encoder as BERT has it: embeddings, attention under a mask, GELU, mean of the tokens."""

    def __init__(self, width=16, heads=2):
        super().__init__()
        self.words, self.places = nn.Embedding(50, width), nn.Embedding(32, width)
        self.norm, self.norm2, self.norm3 = nn.LayerNorm(width), nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.wide, self.narrow = nn.Linear(width, 32), nn.Linear(32, width)
        self.heads = heads

    def forward(self, input_ids, attention_mask):
        rows, length = input_ids.shape
        places = torch.arange(length, device=input_ids.device).unsqueeze(0)
        x = self.norm(self.words(input_ids) + self.places(places))
        split = lambda t: t.view(rows, length, self.heads, -1).transpose(1, 2)
        q, k, v = split(self.query(x)), split(self.key(x)), split(self.value(x))
        scores = q @ k.transpose(-1, -2) / (q.shape[-1] ** 0.5)
        scores = scores + (1.0 - attention_mask[:, None, None, :].float()) * -10000.0
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(rows, length, -1)
        x = self.norm2(x + self.out(mixed))
        x = self.norm3(x + self.narrow(F.gelu(self.wide(x))))
        mask = attention_mask.unsqueeze(-1).float()
        mean = (x * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
        return x, F.normalize(mean, dim=1)


class ViT(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, 17, width))
        layer = nn.TransformerEncoderLayer(width, 2, 32, batch_first=True, norm_first=True, activation="gelu")
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 5)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.layers(x)[:, 0])


class Tagger(nn.Module):
    def __init__(self, cell):
        super().__init__()
        self.words = nn.Embedding(50, 8)
        self.cell = cell(8, 6, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(12, 4)

    def forward(self, words):
        return F.log_softmax(self.head(self.cell(self.words(words))[0]), -1)


class Tabular(nn.Module):
    """Categories and numbers, as recommenders and tabular networks take them."""

    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(10, 4), nn.Embedding(20, 4)])
        self.norm = nn.BatchNorm1d(5)
        self.net = nn.Sequential(nn.Linear(13, 16), nn.SELU(), nn.Linear(16, 16), nn.Mish(), nn.Linear(16, 3))

    def forward(self, categories, numbers):
        known = [table(categories[:, i]) for i, table in enumerate(self.tables)]
        scores = self.net(torch.cat([*known, self.norm(numbers)], 1))
        return scores.softmax(1), scores.argmax(1)


class TextCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 8)
        self.convs = nn.ModuleList([nn.Conv1d(8, 6, size) for size in (2, 3)])
        self.head = nn.Linear(12, 3)

    def forward(self, words):
        x = self.words(words).transpose(1, 2)
        return torch.tanh(self.head(torch.cat([F.elu(conv(x)).max(2)[0] for conv in self.convs], 1)))


class Gates(nn.Module):
    """What is left: masks, selection, powers, padding, group norm, top-k."""

    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(2, 4)

    def forward(self, x):
        y = F.pad(x, (1, 1), mode="reflect")[:, :, 1:-1] + F.pad(x, (2, 0))[:, :, :-2]
        y = torch.where(y > 0.5, y.pow(2), y.abs().sqrt())
        y = self.norm(y).clamp(-1, 1) * (x < 1.0).float()
        top = torch.topk(y, 2, dim=2)[0]
        return torch.cumsum(y, 2), torch.cat([top, y.std(2, keepdim=True), torch.logsumexp(y, 2, keepdim=True)], 2)


def randomize(model):
    """Gives running statistics and scales values that show when they are used wrongly."""
    for module in model.modules():
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            nn.init.normal_(module.running_mean, 0.0, 0.5)
            nn.init.uniform_(module.running_var, 0.5, 2.0)
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d, nn.LayerNorm, nn.GroupNorm, nn.InstanceNorm2d)):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, 0.0, 0.5)
    return model.eval()


def export(name, model, inputs, outputs, opset, exporter, free=()):
    """`inputs` by name; axes in `free` are free beside the batch."""
    randomize(model)
    axes = {n: {0: "batch", **{axis: "length" for axis in free}} for n in inputs}
    path = str(HERE / f"{name}.onnx")
    if exporter == "old":
        named = {**axes, **{n: {0: "batch"} for n in outputs}}
        torch.onnx.export(
            model, tuple(inputs.values()), path, input_names=list(inputs), output_names=outputs,
            dynamic_axes=named, opset_version=opset, dynamo=False,
        )  # fmt: skip
        return
    dims = {"batch": torch.export.Dim("batch", min=1, max=512), "length": torch.export.Dim("length", min=4, max=32)}
    shapes = tuple({axis: dims[label] for axis, label in axes[n].items()} for n in inputs)
    program = torch.onnx.export(
        model, tuple(inputs.values()), input_names=list(inputs), output_names=outputs,
        dynamic_shapes=shapes, opset_version=opset, dynamo=True, verbose=False, optimize=True,
    )  # fmt: skip
    program.save(path, external_data=False)
    strip(path)


def strip(path):
    """Takes out what only people read: the new exporter writes down where in the source each node comes from."""
    model = onnx.load(path)
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    del model.graph.value_info[:]
    del model.metadata_props[:]
    for value in [*model.graph.initializer, *model.graph.input, *model.graph.output]:
        del value.metadata_props[:]
    onnx.save(model, path)


def halved(name, source):
    """A model with its weights, its inputs and its arithmetic in float16."""
    model = onnx.load(HERE / f"{source}.onnx")
    for weight in model.graph.initializer:
        if weight.data_type == onnx.TensorProto.FLOAT:
            weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight).astype("float16"), weight.name))
    for value in [*model.graph.input, *model.graph.output]:
        value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    del model.graph.value_info[:]
    onnx.save(model, HERE / f"{name}.onnx")


def packed(name, source):
    """A model with its weights in bfloat16 and its arithmetic in float32, as quantizers of weights write it."""
    model = onnx.load(HERE / f"{source}.onnx")
    casts = []
    for weight in model.graph.initializer:
        if weight.data_type == onnx.TensorProto.FLOAT:
            array, wide = numpy_helper.to_array(weight), weight.name
            short = helper.make_tensor(f"{wide}.bf16", onnx.TensorProto.BFLOAT16, array.shape, array.ravel().tolist())
            weight.CopyFrom(short)
            casts.append(helper.make_node("Cast", [short.name], [wide], to=onnx.TensorProto.FLOAT))
    nodes = [*casts, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.save(model, HERE / f"{name}.onnx")


def sklearn_mlp(name, opset):
    from skl2onnx import to_onnx
    from sklearn.datasets import make_classification
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x, y = make_classification(200, 8, n_informative=5, n_classes=3, random_state=7)
    model = make_pipeline(StandardScaler(), MLPClassifier((12,), max_iter=30, random_state=7)).fit(x, y)
    graph = to_onnx(model, x[:1].astype(np.float32), options={"zipmap": False}, target_opset={"": opset, "ai.onnx.ml": 1})
    onnx.save(graph, HERE / f"{name}.onnx")


def main(wanted):
    HERE.mkdir(exist_ok=True)
    torch.set_num_threads(1)

    def images(channels, size):
        return lambda draw: {"x": draw.standard_normal((ROWS, channels, size, size)).astype(np.float32)}

    def words(draw):
        return {"words": draw.integers(0, 50, (ROWS, 7))}

    def masked(draw):
        lengths = np.array([[9], [4], [7], [1]])
        mask = (np.arange(9)[None] < lengths).astype(np.int64)
        return {"input_ids": draw.integers(0, 50, (ROWS, 9)) * mask, "attention_mask": mask}

    def table(draw):
        categories = np.stack([draw.integers(0, 10, ROWS), draw.integers(0, 20, ROWS)], 1)
        return {"categories": categories, "numbers": draw.standard_normal((ROWS, 5)).astype(np.float32)}

    def series(draw):
        return {"x": draw.standard_normal((ROWS, 4, 6)).astype(np.float32)}

    y = ["y"]
    zoo = [
        # name, module, inputs, outputs, (opset, exporter) ..., free axes
        ("resnet", resnet, images(3, 32), y, [(7, "old"), (11, "old"), (17, "old"), (20, "new")], ()),
        ("mobilenet", mobilenet, images(3, 16), y, [(10, "old"), (13, "old"), (17, "old"), (22, "new")], ()),
        ("unet", UNet, images(1, 8), y, [(11, "old"), (13, "old"), (17, "old"), (20, "new")], ()),
        ("encoder", Encoder, masked, ["tokens", "mean"], [(11, "old"), (14, "old"), (17, "old"), (20, "new")], (1,)),
        ("vit", ViT, images(3, 16), y, [(14, "old"), (17, "old"), (20, "new")], ()),
        ("lstm", lambda: Tagger(nn.LSTM), words, y, [(9, "old"), (14, "old"), (17, "old")], (1,)),
        ("gru", lambda: Tagger(nn.GRU), words, y, [(11, "old"), (17, "old")], (1,)),
        ("tabular", Tabular, table, ["scores", "best"], [(9, "old"), (13, "old"), (20, "new")], ()),
        ("textcnn", TextCNN, words, y, [(9, "old"), (17, "old"), (20, "new")], (1,)),
        ("gates", Gates, series, ["sums", "figures"], [(12, "old"), (17, "old"), (20, "new")], ()),
    ]
    for name, module, inputs, outputs, ways, free in zoo:
        for opset, exporter in ways:
            full = f"{name}_{opset}_{exporter}"
            if wanted and full not in wanted and name not in wanted:
                continue
            torch.manual_seed(7)
            arrays = inputs(np.random.default_rng(7))
            try:
                export(full, module(), {n: torch.from_numpy(a) for n, a in arrays.items()}, outputs, opset, exporter, free)
                answer(full, arrays, HERE)
            except Exception as error:
                print(f"{full}: {str(error).splitlines()[0] if str(error) else error!r}")
    draw = np.random.default_rng(7)
    if not wanted or "sklearn" in wanted:
        sklearn_mlp("sklearn_17", 17)
        answer("sklearn_17", {"X": draw.standard_normal((ROWS, 8)).astype(np.float32)}, HERE)
        halved("resnet_half", "resnet_17_old")
        answer("resnet_half", {n: a.astype(np.float16) for n, a in images(3, 32)(draw).items()}, HERE)
        packed("encoder_packed", "encoder_17_old")
        answer("encoder_packed", masked(draw), HERE)
    for path in sorted(HERE.glob("*.onnx")):
        graph = onnx.load(path).graph
        print(f"{path.name:24} {path.stat().st_size:7} bytes  {' '.join(sorted({n.op_type for n in graph.node}))}")


if __name__ == "__main__":
    main(sys.argv[1:])
