"""Writes what optimisers and quantisers make of networks, and the operators that only they write, as tests with
onnxruntime's answers: python3 crates/onnx/benches/optimised.py FOLDER

    pip install -r crates/onnx/benches/requirements.txt
    cargo bench --bench onnx -- cases FOLDER

With --keep in place of a folder it writes those that crates/onnx/tests/onnx runs to tests/models/zoo.

The networks are those of tests/models/zoo, each at every level of onnxruntime's optimiser, quantised dynamically and
statically, converted to float16 and to weights of four bits by the tools that people use, and optimised after that. The
form of a test is that of crates/onnx/benches/cases.py.
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
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from cases import operators

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)
onnxruntime.set_default_logger_severity(4)

ZOO = pathlib.Path(__file__).resolve().parents[3] / "tests/models/zoo"
TYPES = {"FP32": np.float32, "FP16": np.float16, "INT64": np.int64}
MS = "com.microsoft"
rng = np.random.default_rng(7)


def write(folder, name, model, feed, tolerance):
    """One test; onnxruntime says what is right. `tolerance` is relative, and a share of the largest number."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    answers = session.run(None, feed)
    at = folder / name
    (at / "0").mkdir(parents=True, exist_ok=True)
    (at / "model.onnx").write_bytes(model.SerializeToString())
    (at / "operators").write_text("\n".join(sorted(operators(model.graph, set()))) + "\n")
    floats = [np.abs(a).max() for a in answers if a.dtype.kind == "f" and a.size]
    (at / "tolerance").write_text(f"{tolerance} {tolerance * max(floats, default=0.0)}\n")
    for kind, arrays in [("input", [feed[i.name] for i in session.get_inputs()]), ("output", answers)]:
        for i, array in enumerate(arrays):
            (at / "0" / f"{kind}_{i}.pb").write_bytes(numpy_helper.from_array(np.asarray(array)).SerializeToString())


class Reader(CalibrationDataReader):
    def __init__(self, feed):
        self.feeds = iter([feed])

    def get_next(self):
        return next(self.feeds, None)


def optimised(path, to, level):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.optimized_model_filepath = str(to)
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def variants(path, feed, scratch):
    """What tools make of a network: name, file, tolerance. A tool that fails has made nothing."""
    levels = onnxruntime.GraphOptimizationLevel
    network = path.stem
    prepared = scratch / "prepared.onnx"
    prepared.unlink(missing_ok=True)

    def half(convert, **options):
        return lambda to: onnx.save(convert(onnx.load(path), **options), to)

    def static(form, kind, per_channel):
        def make(to):
            if not prepared.exists():
                quant_pre_process(str(path), str(prepared), skip_symbolic_shape=True)
            quantize_static(str(prepared), str(to), Reader(feed), quant_format=form, activation_type=kind,
                            weight_type=QuantType.QInt8, per_channel=per_channel)  # fmt: skip

        return make

    def transformers(kind):
        def make(to):
            from onnxruntime.transformers import optimizer

            model = optimizer.optimize_model(str(path), model_type=kind, num_heads=0, hidden_size=0, opt_level=0)
            model.save_model_to_file(str(to))

        return make

    def four_bits(to):
        from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

        quantizer = MatMulNBitsQuantizer(onnx.load(path), block_size=16, is_symmetric=False)
        quantizer.process()
        quantizer.model.save_model_to_file(str(to), False)

    def four_bits_apart(to):
        from onnxruntime.quantization import matmul_nbits_quantizer as tool

        model = onnx.load(path)
        sets = [s for s in model.opset_import if s.domain in ("", "ai.onnx")]
        sets[0].version = max(sets[0].version, 21)  # since when there are such integers
        config = tool.DefaultWeightOnlyQuantConfig(block_size=16, quant_format=QuantFormat.QDQ)
        quantizer = tool.MatMulNBitsQuantizer(model, algo_config=config)
        quantizer.process()
        quantizer.model.save_model_to_file(str(to), False)

    from onnxconverter_common import float16 as common
    from onnxruntime.transformers import float16 as own

    exact, rough, eighth = 1e-4, 2e-2, 1e-1
    recipes = [
        ("basic", lambda to: optimised(path, to, levels.ORT_ENABLE_BASIC), exact),
        ("extended", lambda to: optimised(path, to, levels.ORT_ENABLE_EXTENDED), exact),
        ("all", lambda to: optimised(path, to, levels.ORT_ENABLE_ALL), exact),
        ("dynamic", lambda to: quantize_dynamic(str(path), str(to), weight_type=QuantType.QUInt8), eighth),
        ("dynamic_by_channel", lambda to: quantize_dynamic(
            str(path), str(to), weight_type=QuantType.QInt8, per_channel=True, reduce_range=True), eighth),
        ("qdq", static(QuantFormat.QDQ, QuantType.QUInt8, False), eighth),
        ("qdq_by_channel", static(QuantFormat.QDQ, QuantType.QInt8, True), eighth),
        ("qoperator", static(QuantFormat.QOperator, QuantType.QUInt8, False), eighth),
        ("qoperator_by_channel", static(QuantFormat.QOperator, QuantType.QInt8, True), eighth),
        ("half", half(common.convert_float_to_float16), rough),
        ("half_inside", half(common.convert_float_to_float16, keep_io_types=True), rough),
        ("half_by_onnxruntime", half(own.convert_float_to_float16, keep_io_types=True), rough),
        ("four_bits", four_bits, exact),
        ("four_bits_apart", four_bits_apart, exact),
        ("transformers_bert", transformers("bert"), exact),
        ("transformers_vit", transformers("vit"), exact),
    ]  # fmt: skip
    for name, make, tolerance in recipes:
        to = scratch / f"{network}.{name}.onnx"
        try:
            make(to)
        except Exception as error:
            print(f"{network} {name}: the tool fails: {str(error).splitlines()[0][:90]}")
            continue
        yield name, to, tolerance
        if name.startswith(("dynamic", "qdq", "qoperator", "half")):
            again = scratch / f"{network}.{name}.extended.onnx"
            try:
                optimised(to, again, levels.ORT_ENABLE_EXTENDED)
                yield f"{name}_extended", again, tolerance
            except Exception as error:
                print(f"{network} {name}, optimised: the tool fails: {str(error).splitlines()[0][:90]}")


def networks(folder):
    scratch = folder / "files"
    scratch.mkdir(parents=True, exist_ok=True)
    for path in sorted(ZOO.glob("*.onnx")):
        record = json.loads(path.with_suffix(".json").read_text())
        feed = {t["name"]: np.array(t["data"], TYPES[t["datatype"]]).reshape(t["shape"]) for t in record["inputs"]}
        for name, file, tolerance in variants(path, feed, scratch):
            model = onnx.load(file)
            kinds = {i.name: helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type) for i in model.graph.input}
            given = {n: a.astype(kinds.get(n, a.dtype)) for n, a in feed.items()}
            tolerance = max(tolerance, 2e-2 if path.stem.endswith("half") else 0.0)
            aside(write, folder, f"{path.stem}.{name}", model, given, tolerance)


def aside(function, folder, name, *arguments):
    """Runs it in a process of its own: of some files that its tools have written onnxruntime dies."""
    child = os.fork()
    if child == 0:
        try:
            function(folder, name, *arguments)
        except Exception as error:
            print(f"{name}: onnxruntime refuses it: {str(error).splitlines()[0][:90]}", flush=True)
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0:
        print(f"{name}: onnxruntime dies of it", flush=True)


def single(folder, name, operator, inputs, attributes=None, outputs=1, tolerance=1e-4, constant=(), domain=MS, opset=17):
    """A test of one node. Inputs by position, None for one left out; those in `constant` are weights."""
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    arrays = {n: np.asarray(x) for n, x in zip(names, inputs) if n}
    weights = {f"x{i}" for i in constant}
    node = helper.make_node(operator, names, [f"y{i}" for i in range(outputs)], domain=domain, **(attributes or {}))
    graph = helper.make_graph(
        [node],
        name,
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
         for n, a in arrays.items() if n not in weights],
        [helper.make_tensor_value_info(f"y{i}", TensorProto.UNDEFINED, None) for i in range(outputs)],
        [numpy_helper.from_array(a, n) for n, a in arrays.items() if n in weights],
    )  # fmt: skip
    for output in graph.output:
        output.ClearField("type")
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid(MS, 1)], ir_version=8)
    try:
        write(folder, name, model, {n: a for n, a in arrays.items() if n not in weights}, tolerance)
    except Exception as error:
        print(f"{name}: onnxruntime refuses it: {str(error).splitlines()[0][:160]}")


def floats(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def bytes_(*shape, kind=np.uint8):
    info = np.iinfo(kind)
    return rng.integers(info.min, info.max + 1, shape).astype(kind)


def number(x, kind=np.float32):
    return np.array(x, kind)


def nodes(folder):
    def one(name, *arguments, **options):
        single(folder, f"node.{name}", *arguments, **options)

    x, y, bias = floats(2, 5, 8), floats(2, 5, 8), floats(8)
    one("bias_gelu", "BiasGelu", [x, bias])
    one("fast_gelu", "FastGelu", [x])
    one("fast_gelu_bias", "FastGelu", [x, bias])
    one("gelu", "Gelu", [x])
    one("quick_gelu", "QuickGelu", [x])
    one("quick_gelu_silu", "QuickGelu", [x], {"alpha": 1.0})
    one("bias_split_gelu", "BiasSplitGelu", [x, bias])
    one("bias_add", "BiasAdd", [x, bias, y])
    gamma = [floats(8), floats(8), floats(8)]
    one("skip", "SkipLayerNormalization", [x, y, *gamma[:2]], {"epsilon": 1e-5})
    one("skip_bias_sum", "SkipLayerNormalization", [x, y, *gamma], {"epsilon": 1e-5}, outputs=4)
    one("skip_broadcast", "SkipLayerNormalization", [x, y[0], *gamma[:2]])
    one("simplified", "SimplifiedLayerNormalization", [x, bias], {"axis": -1, "epsilon": 1e-6}, domain="")
    one("skip_simplified", "SkipSimplifiedLayerNormalization", [x, y, *gamma[:1]], {"epsilon": 1e-5})
    one("fused_matmul", "FusedMatMul", [floats(2, 3, 4, 5), floats(2, 3, 6, 5)], {"transB": 1, "alpha": 0.25})
    one("fused_matmul_a", "FusedMatMul", [floats(2, 5, 4), floats(2, 5, 6)], {"transA": 1})
    one("fused_matmul_weight", "FusedMatMul", [floats(2, 4, 5), floats(6, 5)], {"transB": 1, "alpha": 2.0}, constant=[1])
    one("fused_matmul_batch", "FusedMatMul", [floats(4, 2, 5), floats(4, 2, 6)], {"transBatchA": 1, "transA": 1, "transBatchB": 1})
    one("fused_matmul_activation", "FusedMatMulActivation", [floats(2, 4, 5), floats(2, 5, 6)], {"activation": "Relu"})
    for activation, options in [("Relu", {}), ("Tanh", {}), ("LeakyRelu", {"activation_alpha": 0.2}), ("Sigmoid", {}),
                                ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.4})]:  # fmt: skip
        one(f"fused_gemm_{activation}", "FusedGemm", [floats(3, 4), floats(5, 4), floats(5)],
            {"transB": 1, "activation": activation, **options}, constant=[1, 2])  # fmt: skip
        parameters = {"activation_params": list(options.values())} if options else {}
        one(f"fused_conv_{activation}", "FusedConv", [floats(2, 3, 7, 7), floats(4, 3, 3, 3), floats(4)],
            {"kernel_shape": [3, 3], "activation": activation, **parameters}, constant=[1, 2])  # fmt: skip
    one("fused_conv_clip", "FusedConv", [floats(2, 3, 7, 7), floats(4, 3, 3, 3)],
        {"activation": "Clip", "activation_params": [0.0, 1.0], "pads": [1] * 4}, constant=[1])  # fmt: skip
    one("fused_conv_sum", "FusedConv", [floats(2, 3, 7, 7), floats(4, 3, 3, 3), floats(4), floats(2, 4, 5, 5)],
        {"activation": "Relu"}, constant=[1, 2])  # fmt: skip
    one("nhwc_fused_conv", "NhwcFusedConv", [floats(2, 7, 7, 3), floats(4, 3, 3, 3), floats(4)], {"activation": "Relu"}, constant=[1, 2])
    one("nhwc_max_pool", "NhwcMaxPool", [bytes_(2, 7, 7, 3)], {"kernel_shape": [2, 2], "strides": [2, 2]})

    ids, segments = rng.integers(0, 9, (2, 5)).astype(np.int32), rng.integers(0, 2, (2, 5)).astype(np.int32)
    tables, mask = [floats(9, 8), floats(6, 8), floats(2, 8)], np.array([[1, 1, 1, 0, 0], [1] * 5], np.int32)
    one("embed", "EmbedLayerNormalization", [ids, segments, *tables, *gamma[:2], mask], outputs=3)
    one("embed_no_segments", "EmbedLayerNormalization", [ids, None, *tables[:2], None, *gamma[:2]], outputs=2)
    one("embed_positions", "EmbedLayerNormalization", [ids, segments, *tables, *gamma[:2], mask, segments], outputs=2)

    weight, wide = floats(8, 24), floats(24)
    masks = {
        "none": None, "row": mask, "length": np.array([3, 5], np.int32), "ends": np.array([3, 5, 1, 0], np.int32),
        "queries": np.tril(np.ones((5, 5), np.int32))[None].repeat(2, 0), "nothing": np.zeros((2, 5), np.int32),
    }  # fmt: skip
    for name, m in masks.items():
        one(f"attention_{name}", "Attention", [x, weight, wide, m], {"num_heads": 2}, constant=[1, 2])
    one("attention_causal", "Attention", [x, weight, wide, mask], {"num_heads": 2, "unidirectional": 1})
    one("attention_scale_bias", "Attention", [x, weight, wide, None, None, floats(2, 2, 5, 5)], {"num_heads": 2, "scale": 0.3})
    one("attention_past", "Attention", [x, weight, wide, None, floats(2, 2, 2, 3, 4)], {"num_heads": 2, "unidirectional": 1}, outputs=2)
    one("attention_sizes", "Attention", [x, floats(8, 8 + 8 + 4), floats(20)], {"num_heads": 2, "qkv_hidden_sizes": [8, 8, 4]})
    k, v = floats(2, 7, 8), floats(2, 7, 8)
    one("multi_head", "MultiHeadAttention", [x, k, v], {"num_heads": 2})
    one("multi_head_bias", "MultiHeadAttention", [x, k, v, wide], {"num_heads": 2})
    one("multi_head_mask", "MultiHeadAttention", [x, k, v, wide, np.array([[1] * 4 + [0] * 3, [1] * 7], np.int32)], {"num_heads": 2})
    one("multi_head_added", "MultiHeadAttention", [x, k, v, None, None, floats(1, 2, 5, 7)], {"num_heads": 2})
    one("multi_head_packed", "MultiHeadAttention", [floats(2, 5, 2, 3, 4)], {"num_heads": 2})
    one("multi_head_packed_pair", "MultiHeadAttention", [x, floats(2, 7, 2, 2, 4)], {"num_heads": 2})
    one("multi_head_past", "MultiHeadAttention",
        [x, floats(2, 5, 8), floats(2, 5, 8), None, None, None, floats(2, 2, 3, 4), floats(2, 2, 3, 4)],
        {"num_heads": 2, "unidirectional": 1}, outputs=3)  # fmt: skip
    one("multi_head_cross", "MultiHeadAttention", [x, floats(2, 2, 7, 4), floats(2, 2, 7, 4)], {"num_heads": 2})
    tables = [floats(12, 2), floats(12, 2)]
    one("rotary", "RotaryEmbedding", [x, rng.integers(0, 12, (2, 5)), *tables], {})
    one("rotary_offset", "RotaryEmbedding", [x, np.array([3]), *tables], {"interleaved": 1})
    one("rotary_heads", "RotaryEmbedding", [floats(2, 3, 5, 4), np.array([0]), *tables], {})

    zero, scale = number(120, np.uint8), number(0.02)
    q = lambda *shape: bytes_(*shape)  # noqa: E731
    one("qattention", "QAttention", [q(2, 5, 8), q(8, 24), wide, scale, number(0.03), mask, zero, number(130, np.uint8)],
        {"num_heads": 2}, constant=[1, 2, 3, 4, 6, 7])  # fmt: skip
    one("dynamic_matmul", "DynamicQuantizeMatMul", [x, q(8, 6), number(0.02), number(99, np.uint8), floats(6)], constant=[1, 2, 3, 4])
    one("dynamic_matmul_by_column", "DynamicQuantizeMatMul", [x, bytes_(8, 6, kind=np.int8), np.abs(floats(6))], constant=[1, 2])
    one("matmul_to_float", "MatMulIntegerToFloat", [q(2, 5, 8), q(8, 6), scale, np.abs(floats(6)), zero, bytes_(6), floats(6)], constant=[1, 3, 5, 6])
    # Scales without a common divisor: a sum in the middle between two integers is rounded by either side of its rounding error.
    pair = [q(2, 4, 5), scale, zero, q(4, 1), number(0.0317), number(99, np.uint8), number(0.0613), number(110, np.uint8)]
    for operator in ["QLinearAdd", "QLinearMul"]:
        one(operator, operator, pair)
        signed = [a.astype(np.int8) if a.dtype == np.uint8 else a for a in pair]
        one(f"{operator}_signed", operator, signed)
        one(f"{operator}_no_zeros", operator, [signed[0], signed[1], None, signed[3], signed[4], None, signed[6], None])
    ends = [number(0.01), number(3, np.uint8)]
    one("QLinearLeakyRelu", "QLinearLeakyRelu", [q(2, 4, 5), scale, zero, *ends], {"alpha": 0.1})
    one("QLinearSigmoid", "QLinearSigmoid", [q(2, 4, 5), scale, zero, number(1 / 256), number(0, np.uint8)])
    one("QLinearSoftmax", "QLinearSoftmax", [q(2, 4, 5), scale, zero, number(1 / 256), number(0, np.uint8)], {"axis": -1, "opset": 13})
    one("QLinearReduceMean", "QLinearReduceMean", [q(2, 4, 5), scale, zero, *ends], {"axes": [1], "keepdims": 1})
    one("QLinearConcat", "QLinearConcat", [*ends, q(2, 3), scale, zero, q(2, 4), number(0.03), number(9, np.uint8)], {"axis": 1})
    one("QLinearWhere", "QLinearWhere", [rng.random((2, 3)) > 0.5, q(2, 3), scale, zero, q(2, 3), number(0.03), number(9, np.uint8), *ends])
    image = q(2, 3, 8, 8)
    one("QLinearAveragePool", "QLinearAveragePool", [image, scale, zero, number(0.018), zero], {"kernel_shape": [3, 3], "pads": [1] * 4, "strides": [2, 2]})
    one("QLinearGlobalAveragePool", "QLinearGlobalAveragePool", [image, scale, zero, number(0.004), zero])
    one("QLinearGlobalAveragePool_last", "QLinearGlobalAveragePool", [image, scale, zero, number(0.004), zero], {"channels_last": 1})
    weights = [bytes_(4, 3, 3, 3, kind=np.int8), np.abs(floats(4)) / 50, np.zeros(4, np.int8)]
    ends = [number(0.3), number(128, np.uint8)]
    biased = rng.integers(-500, 500, 4).astype(np.int32)
    one("QLinearConv", "QLinearConv", [image, scale, zero, *weights, *ends, biased], {"pads": [1] * 4}, domain="", constant=[1, 2, 3, 4, 5, 6, 7, 8])
    one("QLinearConv_computed", "QLinearConv", [image, scale, zero, q(4, 3, 3, 3), number(0.01), zero, *ends], {}, domain="")
    one("QLinearConv_last", "QLinearConv", [q(2, 8, 8, 3), scale, zero, *weights, *ends, biased], {"channels_last": 1}, constant=[1, 2, 3, 4, 5, 6, 7, 8])
    gemm = [q(3, 4), scale, zero, q(6, 4), np.abs(floats(6)) / 9, q(6), rng.integers(-99, 99, 6).astype(np.int32)]
    one("qgemm", "QGemm", [*gemm, *ends], {"transB": 1})
    one("qgemm_floats", "QGemm", gemm, {"transB": 1, "alpha": 0.5})
    one("mul_integer", "MulInteger", [q(3, 4), zero, q(4), number(3, np.uint8)])
    one("dequantize16", "DequantizeLinear", [bytes_(3, 4, kind=np.uint16), scale, number(30000, np.uint16)])
    one("quantize16", "QuantizeLinear", [floats(3, 4), number(1e-3), number(-7, np.int16)])
    state = [bytes_(1, 3, 16, kind=np.int8), bytes_(1, 4, 16, kind=np.int8), floats(1, 32)]
    fine = [np.full((1,), 0.01, np.float32), np.zeros((1,), np.int8)] * 2
    # Of several rows onnxruntime takes one scale for all; uncork takes one for each, so that no row depends on another.
    each = [np.abs(floats(1, 16)) / 50, np.zeros((1, 16), np.int8)] * 2
    for name, scales in [("dynamic_lstm", fine), ("dynamic_lstm_by_channel", each)]:
        for rows, tolerance in [(1, 1e-4), (2, 5e-2)]:
            one(f"{name}_{rows}", "DynamicQuantizeLSTM", [floats(5, rows, 3), *state, None, None, None, None, *scales],
                {"hidden_size": 4}, outputs=3, tolerance=tolerance, constant=[1, 2, 3, 8, 9, 10, 11])  # fmt: skip

    for bits in (2, 4, 8):
        blob = q(6, 2, 16 * bits // 8)
        sizes = {"K": 24, "N": 6, "bits": bits, "block_size": 16}
        zeros = q(6, -(-2 * bits // 8))
        one(f"matmul_{bits}_bits", "MatMulNBits", [floats(2, 24), blob, floats(6, 2)], sizes, constant=[1, 2])
        one(f"matmul_{bits}_bits_zeros", "MatMulNBits", [floats(2, 24), blob, floats(6, 2), zeros], sizes, constant=[1, 2, 3])
        table = q(9, 32 * bits // 8)
        one(f"gather_{bits}_bits", "GatherBlockQuantized", [table, ids, floats(9, 2), q(9, -(-2 * bits // 8))],
            {"bits": bits, "block_size": 16}, constant=[0, 2, 3])  # fmt: skip
    one("matmul_4_bits_bias", "MatMulNBits", [floats(2, 24), q(6, 2, 8), floats(6, 2), None, None, floats(6)],
        {"K": 24, "N": 6, "bits": 4, "block_size": 16}, constant=[1, 2, 5])  # fmt: skip
    one("matmul_4_bits_float_zeros", "MatMulNBits", [floats(2, 24), q(6, 2, 8), floats(6, 2), floats(6, 2)],
        {"K": 24, "N": 6, "bits": 4, "block_size": 16}, constant=[1, 2, 3])  # fmt: skip

    one("trilu", "Trilu", [floats(4, 4)], {"upper": 0})
    one("inverse", "Inverse", [floats(3, 4, 4)], tolerance=1e-3)
    one("range", "Range", [number(1.0), number(7.0), number(1.5)])
    one("range_whole", "Range", [number(1, np.int64), number(7, np.int64)])
    one("unique", "Unique", [number([2.0, 1.0, 1.0, 3.0, 4.0, 3.0])], outputs=3)
    one("pad", "Pad", [floats(2, 3), np.array([0, 1, 1, 2]), number([9.0])], {"mode": "constant"})
    one("expand_dims", "ExpandDims", [floats(2, 3), number(-1, np.int32)])
    one("grid_sample", "GridSample", [floats(1, 2, 5, 5), floats(1, 3, 3, 2)], {})
    for metric in ("sqeuclidean", "euclidean"):
        one(f"cdist_{metric}", "CDist", [floats(4, 5), floats(3, 5)], {"metric": metric})
    boxes = np.array([[0.0, 0.0, 1.0, 1.0], [0.2, 0.1, 0.7, 1.2]], np.float32)
    for mode in ("bilinear", "nearest"):
        one(f"crop_{mode}", "CropAndResize", [floats(2, 3, 6, 7), boxes, np.array([1, 0], np.int32), np.array([4, 3], np.int32)],
            {"mode": mode, "extrapolation_value": 0.5})  # fmt: skip


# What the tests keep of all this: the network, the variant and the name in tests/models/zoo.
KEPT = [
    ("encoder_17_old", "extended", "encoder_extended"),
    ("encoder_17_old", "half_by_onnxruntime", "encoder_by_tool_half"),
    ("mobilenet_17_old", "extended", "mobilenet_extended"),
    ("mobilenet_17_old", "qoperator_extended", "mobilenet_int8"),
    ("vit_17_old", "transformers_vit", "vit_transformers"),
]


def keep():
    """Writes these, each with onnxruntime's answers to the inputs of its network."""
    with tempfile.TemporaryDirectory() as scratch:
        for network, wanted, name in KEPT:
            path = ZOO / f"{network}.onnx"
            record = json.loads(path.with_suffix(".json").read_text())
            feed = {t["name"]: np.array(t["data"], TYPES[t["datatype"]]).reshape(t["shape"]) for t in record["inputs"]}
            file = next(file for made, file, _ in variants(path, feed, pathlib.Path(scratch)) if made == wanted)
            session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
            for output, answer in zip(record["outputs"], session.run([t["name"] for t in record["outputs"]], feed)):
                output["data"] = [float(str(v)) for v in answer.ravel()]
            (ZOO / f"{name}.onnx").write_bytes(file.read_bytes())
            (ZOO / f"{name}.json").write_text(json.dumps(record) + "\n")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    if sys.argv[1] == "--keep":
        sys.exit(keep())
    target = pathlib.Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    nodes(target)
    if len(sys.argv) == 2:
        networks(target)
    print(f"{sum(1 for _ in target.glob('*/operators'))} tests in {target}")
