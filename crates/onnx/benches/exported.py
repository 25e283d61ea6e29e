"""Writes networks as others export them, with onnxruntime's answers: python3 crates/onnx/benches/exported.py FOLDER [FAMILY ...]

    pip install torch torchvision timm transformers jax flax jax2onnx ndonnx      # each family needs its own; tensorflow: tensorflow-cpu tf2onnx
    cargo bench --bench onnx -- cases FOLDER
    cargo bench --bench onnx -- pipelines FOLDER/batches

Random weights, small sizes, batches of 1, 3 and 8 rows. A batch must be answered as onnxruntime answers its rows alone. What an exporter refuses is left out, and
said. Files of the last run are kept: a family takes minutes.
"""

import json
import logging
import os
import pathlib
import sys
import tempfile
import warnings

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
ROWS = (1, 3, 8)
TOLERANCE = 1e-4
NAMES = {"float32": "FP32", "float64": "FP64", "int64": "INT64", "int32": "INT32", "bool": "BOOL"}
FAMILIES = {}


def family(draw):
    FAMILIES[draw.__name__] = draw
    return draw


def write(folder, name, data, feeds):
    """A network with answers to each of `feeds`; the last one is a batch as well."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    inputs, outputs = session.get_inputs(), session.get_outputs()
    at, largest = folder / name, 0.0
    for i, given in enumerate(feeds):
        (at / str(i)).mkdir(parents=True, exist_ok=True)
        found = session.run(None, given)
        for kind, specs, arrays in [("input", inputs, [given[spec.name] for spec in inputs]), ("output", outputs, found)]:
            for k, (spec, array) in enumerate(zip(specs, arrays)):
                (at / str(i) / f"{kind}_{k}.pb").write_bytes(numpy_helper.from_array(array, spec.name).SerializeToString())
        largest = max([largest, *(float(np.abs(x[np.isfinite(x)]).max(initial=0)) for x in found if x.dtype.kind == "f")])
    (at / "model.onnx").write_bytes(data)
    (at / "tolerance").write_text(f"{TOLERANCE} {TOLERANCE * largest}\n")
    last = feeds[-1]
    rows = [session.run(None, {key: x[i : i + 1] for key, x in last.items()}) for i in range(len(next(iter(last.values()))))]
    answers = [np.concatenate(parts) if parts[0].ndim else None for parts in zip(*rows)]
    if any(x is None or x.dtype.name not in NAMES for x in [*last.values(), *answers]):
        return
    number = lambda x: None if x != x else x if np.isfinite(x) else str(x)
    say = lambda spec, x: {"name": spec.name, "datatype": NAMES[x.dtype.name], "shape": list(x.shape), "data": [number(n) for n in x.ravel().tolist()]}
    record = {"inputs": [say(spec, last[spec.name]) for spec in inputs], "outputs": [say(*one) for one in zip(outputs, answers)]}
    (folder / "batches").mkdir(exist_ok=True)
    (folder / "batches" / f"{name}.onnx").write_bytes(data)
    (folder / "batches" / f"{name}.json").write_text(json.dumps(record) + "\n")


def numbers(rows, inputs):
    """Rows for inputs, each a name, a type and the shape of a row; integers lie below 9."""
    dice = np.random.default_rng(rows)
    draw = lambda kind, shape: dice.normal(0, 1, shape) if np.dtype(kind).kind == "f" else dice.integers(0, 9, shape)
    return {name: draw(kind, (rows, *shape)).astype(kind) for name, kind, shape in inputs}


def by_torch(name, module, *arguments):
    """A module of PyTorch by its newer exporter, or by the older one; the first axis of every argument is the batch."""
    import torch

    names = [f"x{i}" for i in range(len(arguments))]
    inputs = [(key, str(x.dtype).removeprefix("torch."), tuple(x.shape[1:])) for key, x in zip(names, arguments)]

    def data():
        with tempfile.TemporaryDirectory() as to, torch.no_grad():
            path, more = os.path.join(to, "model.onnx"), {"input_names": names}
            try:
                shapes = tuple({0: torch.export.Dim.DYNAMIC} for _ in names)
                torch.onnx.export(module.eval(), arguments, path, dynamic_shapes=shapes, opset_version=18, dynamo=True, external_data=False, verbose=False, **more)
                onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
            except Exception:
                axes = {key: {0: "batch"} for key in names}
                torch.onnx.export(module, arguments, path, dynamic_axes=axes, opset_version=17, dynamo=False, **more)
            return pathlib.Path(path).read_bytes()

    return name, data, inputs


@family
def timm():
    import timm
    import torch

    sizes = {
        64: "convnext_atto mobilevit_xxs ghostnetv2_100 edgenext_xx_small fastvit_t8 poolformer_s12 hgnetv2_b0 mobilenetv4_conv_small repvit_m0_9 efficientvit_b0 "
        "resnest14d skresnet18 rexnet_100 dla34 hrnet_w18_small nfnet_l0 mambaout_femto nextvit_small starnet_s1 shvit_s1 ese_vovnet19b_slim_dw",
        224: "levit_128s coatnet_pico_rw_224 gcvit_xxtiny pit_ti_224 tiny_vit_5m_224 hiera_tiny_224",
        240: "crossvit_tiny_240",
        256: "maxvit_rmlp_pico_rw_256 lambda_resnet26t halonet26t botnet26t_256",
    }
    for size, names in sizes.items():
        for name in names.split():
            yield by_torch(name, timm.create_model(name, num_classes=10), torch.randn(2, 3, size, size))


@family
def transformers():
    import torch
    import transformers as tr

    class Of(torch.nn.Module):
        def __init__(self, inner, key):
            super().__init__()
            self.inner, self.key = inner, key

        def forward(self, x):
            return self.inner(**{self.key: x}, return_dict=True)[0]

    small = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "max_position_embeddings": 64}
    decoder = {**small, "use_cache": False, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "num_key_value_heads": 2}
    sound = {"conv_dim": (16, 16), "conv_kernel": (10, 3), "conv_stride": (5, 2), "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}
    stages = {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}
    of = {
        "input_ids": (torch.randint(1, 9, (2, 12)), [
            ("Albert", "Model", {**small, "embedding_size": 16}), ("RoFormer", "Model", small), ("FNet", "Model", small), ("ConvBert", "Model", {**small, "embedding_size": 32}),
            ("DebertaV2", "Model", {**small, "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 8}),
            ("ModernBert", "Model", {**small, "pad_token_id": 0, "local_attention": 8}), ("XLNet", "Model", {"vocab_size": 64, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48}),
            ("Llama", "ForCausalLM", decoder), ("Qwen3", "ForCausalLM", {**decoder, "head_dim": 8}), ("Gemma2", "ForCausalLM", {**decoder, "head_dim": 8, "sliding_window": 6}),
            ("Phi3", "ForCausalLM", {**decoder, "rope_scaling": None}), ("Bloom", "Model", {"vocab_size": 64, "hidden_size": 32, "n_layer": 2, "n_head": 4, "use_cache": False}),
            ("Mamba", "ForCausalLM", {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8, "use_cache": False}),
        ]),
        "pixel_values": (torch.randn(2, 3, 64, 64), [
            ("Segformer", "ForSemanticSegmentation", {**stages, "num_attention_heads": [1, 2, 3, 4], "decoder_hidden_size": 16, "num_labels": 5}), ("ConvNextV2", "Model", stages),
            ("Swin2SR", "ForImageSuperResolution", {"image_size": 64, "embed_dim": 12, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4}),
            ("Yolos", "ForObjectDetection", {**small, "image_size": [64, 64], "patch_size": 16}), ("MobileViTV2", "Model", {"image_size": 64}),
            ("DonutSwin", "Model", {"image_size": 64, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4}),
        ]),
        "input_values": (torch.randn(2, 1600), [("Wav2Vec2", "ForCTC", {**small, **sound}), ("WavLM", "Model", {**small, **sound}), ("SEW", "Model", {**small, **sound})]),
    }
    for key, (x, models) in of.items():
        for name, ending, settings in models:
            config = getattr(tr, f"{name}Config")(**settings)
            config._attn_implementation = "eager"
            yield by_torch(name.lower(), Of(getattr(tr, f"{name}{ending}")(config), key), x)


@family
def torch():
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Of(nn.Module):
        def __init__(self, work):
            super().__init__()
            self.work = work

        def forward(self, x):
            return self.work(x)

    image, table = torch.randn(2, 4, 8, 8), torch.randn(2, 6)
    sizes = [(2, "nearest", None), (1.3, "bilinear", True), (1.3, "bilinear", False), (0.6, "bicubic", True), (0.6, "bicubic", False)]
    works = {
        "interpolate": (image, lambda x: tuple(F.interpolate(x, scale_factor=s, mode=m, align_corners=c) for s, m, c in sizes)),
        "pools": (image, lambda x: (F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), F.max_pool2d(x, 3, 2, 1, dilation=2, ceil_mode=True), F.adaptive_avg_pool2d(x, (3, 2)), F.lp_pool2d(x, 2, 3, 2))),
        "fold": (image, lambda x: F.fold(F.unfold(x, (3, 2), padding=1, stride=2), (8, 8), (3, 2), padding=1, stride=2)),
        "unpool": (image, lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, 2, return_indices=True), 2, 2)),
        "fourier": (table, lambda x: (torch.fft.rfft(x).abs(), torch.view_as_real(torch.fft.fft(x)))),
        "sorted": (table, lambda x: (*x.sort(1, descending=True), *x.topk(3, 1), x.argsort(1), x.cumsum(1), x.logcumsumexp(1), x.flip(1), x.roll(2, 1))),
        "reduced": (table, lambda x: (x.std(1), x.norm(p=3, dim=1), x.logsumexp(1), x.prod(1), x.argmin(1), x.amax(1), torch.count_nonzero(x, 1))),
        "attention": (torch.randn(2, 2, 5, 8), lambda x: (F.scaled_dot_product_attention(x, x, x), F.scaled_dot_product_attention(x, x, x, is_causal=True))),
    }
    for name, (x, work) in works.items():
        yield by_torch(name, Of(work), x)


@family
def jax():
    import jax
    import jax.numpy as jnp
    from jax2onnx import to_onnx

    def scan(x):
        step = lambda c, t: (jnp.tanh(c + t), jax.nn.sigmoid(c * t))
        return jax.lax.scan(step, jnp.zeros_like(x[:, 0]), jnp.swapaxes(x, 0, 1))[0]

    works = {
        "softmax": ((4, 6), lambda x: (jax.nn.softmax(x), jax.nn.logsumexp(x, axis=-1), jax.nn.silu(x), jax.nn.gelu(x))),
        "scan": ((5, 4), scan),
        "while": ((3,), lambda x: jax.lax.while_loop(lambda c: c[1] < 5, lambda c: (c[0] * 1.1, c[1] + 1), (x, 0))[0]),
        "gather": ((5,), lambda x: (jnp.take(x, jnp.array([2, 0, 1]), axis=1), x.at[:, 0].set(1.0), jnp.pad(x, ((0, 0), (1, 2))), jnp.sort(x, axis=1))),
    }
    for name, (shape, work) in works.items():
        data = lambda work=work, shape=shape: to_onnx(work, [("B", *shape)]).SerializeToString()
        yield name, data, [(None, "float32", shape)]


@family
def tensorflow():
    import tensorflow as tf
    import tf2onnx

    weights = np.random.default_rng(0).normal(0, 0.3, (3, 3, 3, 8)).astype(np.float32)
    works = {
        "conv": ((15, 15, 3), lambda x: tf.nn.relu6(tf.nn.conv2d(x, weights, 2, "SAME"))),
        "dilated": ((12, 12, 3), lambda x: tf.nn.conv2d(x, weights, 1, "SAME", dilations=2)),
        "image": ((6, 6, 4), lambda x: (tf.image.resize(x, [9, 9]), tf.image.flip_left_right(x), tf.nn.max_pool2d(x, 3, 2, "SAME"), tf.nn.space_to_depth(x, 2))),
        "sorted": ((7,), lambda x: (*tf.math.top_k(x, 3), tf.argsort(x), tf.cumsum(x, 1, exclusive=True, reverse=True), tf.argmin(x, 1))),
        "math": ((6,), lambda x: (tf.nn.selu(x), tf.math.floormod(x, 0.7), tf.math.divide_no_nan(x, x * 0), tf.clip_by_norm(x, 1.0, 1), tf.round(x * 3))),
        "fourier": ((16,), lambda x: tf.abs(tf.signal.rfft(x))),
    }
    for name, (shape, work) in works.items():
        spec = [tf.TensorSpec([None, *shape], tf.float32, name="x")]
        data = lambda work=work, spec=spec: tf2onnx.convert.from_function(tf.function(work, input_signature=spec), input_signature=spec, opset=15)[0].SerializeToString()
        yield name, data, [(None, "float32", shape)]


@family
def ndonnx():
    import ndonnx as ndx

    works = {
        "statistics": ("float32", (5,), lambda x: (ndx.mean(x, axis=1), ndx.std(x, axis=1, correction=1), ndx.cumulative_sum(x, axis=1))),
        "sorted": ("float32", (6,), lambda x: (ndx.sort(x, axis=1), ndx.argsort(x, axis=1, descending=True), ndx.argmax(x, axis=1))),
        "integers": ("int64", (4,), lambda x: (x // (x + 1), x % 7, ndx.bitwise_xor(x, x << 2), ndx.sign(x), ndx.clip(x, 2, 5))),
        "moved": ("float32", (5,), lambda x: (ndx.roll(x, 2, axis=1), ndx.flip(x, axis=1), ndx.repeat(x, 2, axis=1), x[:, ::-1], x[:, 1::2])),
    }
    for name, (kind, shape, work) in works.items():

        def data(kind=kind, shape=shape, work=work):
            x = ndx.argument(shape=("N", *shape), dtype=getattr(ndx, kind))
            return ndx.build({"x": x}, {f"y{i}": y for i, y in enumerate(work(x))}).SerializeToString()

        yield name, data, [("x", kind, shape)]


def main(folder, names):
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    for name in names or FAMILIES:
        try:
            for network, data, inputs in FAMILIES[name]():
                full = f"{name}_{network}"
                if not (folder / full / "tolerance").exists():
                    try:
                        made = data()
                        keys = [one.name for one in onnx.load_from_string(made).graph.input]
                        inputs = [(name or key, kind, shape) for key, (name, kind, shape) in zip(keys, inputs)]
                        write(folder, full, made, [numbers(rows, inputs) for rows in ROWS])
                    except Exception as error:
                        print(f"left out: {full}: {type(error).__name__}: {str(error).splitlines()[0][:120]}", flush=True)
                        continue
                count += 1
        except ImportError as error:
            print(f"left out: {name}: {error}", flush=True)
    print(f"{count} networks in {folder}")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]), sys.argv[2:])
