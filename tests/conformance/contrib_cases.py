"""Writes small cases of `com.microsoft` operators, and of operators of ONNX where its own suite leaves something open, in the format of
`onnx_cases.py`, with onnxruntime's results: `contrib_cases.py OUT.zip`."""
import sys, zipfile

import numpy as np
import onnxruntime as ort
from onnx import helper, numpy_helper

rng = np.random.default_rng(7)
WHEN = (1980, 1, 1, 0, 0, 0)
f32 = lambda *shape: rng.standard_normal(shape).astype(np.float32)
u8 = lambda *shape: rng.integers(0, 256, shape).astype(np.uint8)
i8 = lambda *shape: rng.integers(-128, 128, shape).astype(np.int8)
CASES = []


def case(name, op, inputs, outputs=1, domain="com.microsoft", tolerance=(1e-3, 2e-5), version=21, **attributes):
    """`inputs` in the operator's order, None where one is left out; a tuple marks a constant."""
    names, feeds, constants = [], {}, []
    for i, v in enumerate(inputs):
        if v is None:
            names.append("")
            continue
        names.append(f"x{i}")
        if isinstance(v, tuple):
            constants.append(numpy_helper.from_array(v[0], f"x{i}"))
        else:
            feeds[f"x{i}"] = v
    outs = [f"y{i}" for i in range(outputs)] if isinstance(outputs, int) else outputs
    node = helper.make_node(op, names, outs, domain=domain, **attributes)
    info = lambda n, v: helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
    wanted = [o for o in outs if o]
    graph = helper.make_graph([node], name, [info(n, v) for n, v in feeds.items()], [helper.make_empty_tensor_value_info(o) for o in wanted], constants)
    opsets = [helper.make_opsetid("", version), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    results = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, feeds)
    CASES.append((name, model, feeds, dict(zip(wanted, results)), tolerance))


def more(q):
    """Later additions: they draw after everything else, so that older cases keep their numbers."""
    h, n = 4, 32
    # no case with fewer queries than keys: onnxruntime masks all rows but the last one
    f32(2, 2, n), f32(2, 5, n), f32(2, 5, n)
    past = [f32(2, h, 3, 8), f32(2, h, 3, 8)]
    case("mha_causal_cache", "MultiHeadAttention", [f32(2, 2, n), f32(2, 2, n), f32(2, 2, n), None, None, None, *past], 3, num_heads=h, unidirectional=1)
    cache = lambda n: [f32(2, 2, n, 16), f32(2, 2, n, 16)]
    heads = [f32(2, 3, 64), f32(2, 3, 32), f32(2, 3, 32), *cache(0), np.array([2, 2], np.int32), (np.array(3, np.int32),)]
    case("gqa_smooth", "GroupQueryAttention", heads, 3, num_heads=h, kv_num_heads=2, smooth_softmax=1)
    step = [f32(2, 1, 64), f32(2, 1, 32), f32(2, 1, 32), *cache(6), np.array([6, 6], np.int32), (np.array(7, np.int32),)]
    case("gqa_sink", "GroupQueryAttention", [*step, None, None, None, None, (f32(h),)], 3, num_heads=h, kv_num_heads=2)
    order = (rng.permutation(np.arange(40) // 16).astype(np.int32),)
    scales = (np.abs(f32(6 * 3)) / 8,)
    u8(6 * 2)  # no zero points: onnxruntime leaves them out where there are groups
    case("nbits_groups", "MatMulNBits", [f32(3, 40), (u8(6, 3, 8),), scales, None, order], K=40, N=6, bits=4, block_size=16, tolerance=(1e-3, 1e-3))
    # no result lies between two codes with these scales: what rounds it would be chance
    case("qlinear_average", "QLinearAveragePool", [u8(1, 3, 6, 6), *q(0.0431, 128), *q(0.0217, 120)], kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1])
    case("qlinear_average_last", "QLinearAveragePool", [u8(1, 6, 5, 3), *q(0.0431, 128), *q(0.0389, 120)], kernel_shape=[2, 2], pads=[0, 1, 1, 0], count_include_pad=1, channels_last=1)
    case("qlinear_pool_last", "QLinearGlobalAveragePool", [u8(1, 4, 4, 3), *q(0.0431, 128), *q(0.0217, 120)], channels_last=1)
    pick = rng.integers(0, 2, (3, 1)).astype(bool)
    case("qlinear_where", "QLinearWhere", [pick, u8(3, 5), *q(0.0431, 128), u8(5), *q(0.02, 100), *q(0.0613, 110)])
    case("fused_gemm", "FusedGemm", [f32(3, 4), f32(5, 4), f32(5)], activation="LeakyRelu", activation_alpha=0.3, transB=1, alpha=0.5)
    case("fused_gemm_plain", "FusedGemm", [f32(3, 4), f32(4, 5)], activation="Sigmoid")
    case("transpose_matmul", "TransposeMatMul", [f32(6, 4), f32(6, 3)], transA=1, alpha=0.5)
    case("inverse", "Inverse", [f32(2, 3, 3) + 3 * np.eye(3, dtype=np.float32)])
    case("trilu", "Trilu", [f32(2, 3, 4), (np.array(1),)], upper=0)
    case("gather_nd", "GatherND", [f32(3, 4, 2), (np.array([[0, 1], [2, 3]]),)])
    case("grid_sample", "GridSample", [f32(1, 2, 4, 4), np.tanh(f32(1, 3, 3, 2))], mode="bilinear", padding_mode="border")


def onnx_own():
    own = dict(domain="")
    ends = np.array([-5, -1, 0, 0.5, 1, 1.5, 300, 1e19, 3e38, np.nan, np.inf], np.float32)
    small = np.array([1e-8, -1e-8, 0, -0.0, 1e-4, -0.5, 0.99, 1, -1, 2, np.nan], np.float32)
    half = np.array([1, 200, 300, 1000, 30000, 60000], np.float16)
    case("acosh_ends", "Acosh", [ends], version=9, **own)
    case("asinh_ends", "Asinh", [np.concatenate([ends, small])], version=9, **own)
    case("atanh_ends", "Atanh", [small], tolerance=(1e-5, 0), version=9, **own)
    case("sinh_small", "Sinh", [small], tolerance=(1e-5, 0), version=9, **own)
    case("cosh", "Cosh", [np.array([0, -1, 1e-4, 20, -80, 100, np.nan], np.float32)], version=9, **own)
    case("acosh_half", "Acosh", [half], tolerance=(1e-3, 0), version=22, **own)
    case("asinh_half", "Asinh", [np.concatenate([half, -half, half / 1000])], tolerance=(2e-3, 0), version=22, **own)
    x, lens = f32(4, 3, 2), np.array([2, 4, 0], np.int32)
    for op, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
        outs = ["y", "h", "c"][: 3 if op == "LSTM" else 2]
        weights = [(f32(2, gates * 3, 2),), (f32(2, gates * 3, 3),), (f32(2, 2 * gates * 3),)]
        states = [f32(2, 3, 3) for _ in outs[1:]]
        case(f"{op.lower()}_lengths", op, [x, *weights, lens, *states], outs, version=14, hidden_size=3, direction="bidirectional", **own)
        known = [x, *[(w[0][:1],) for w in weights], (np.array([4, 1, 3], np.int32),)]
        case(f"{op.lower()}_lengths_known", op, known, outs, version=14, hidden_size=3, direction="reverse", **own)
    weights = [(f32(1, 12, 2),), (f32(1, 12, 3),)]
    acts = ["Sigmoid", "LeakyRelu", "Affine"]
    case("lstm_alpha", "LSTM", [x, *weights], ["y"], version=14, hidden_size=3, activations=acts, activation_alpha=[0.3, 0.8], activation_beta=[0.1], **own)
    # a list as long as the functions is read in the same way
    case("lstm_alpha_all", "LSTM", [x, *weights], ["y"], version=14, hidden_size=3, activations=["Sigmoid", "LeakyRelu", "Tanh"], activation_alpha=[0.3, 0.8, 0.5], **own)
    case("gru_threshold", "GRU", [x, (f32(1, 9, 2),), (f32(1, 9, 3),)], ["y"], version=14, hidden_size=3, activations=["HardSigmoid", "ThresholdedRelu"],
         activation_alpha=[0.3, 0.05], activation_beta=[0.4], **own)
    line = np.arange(20, dtype=np.float32).reshape(1, 1, 2, 10)
    for i, s in enumerate((0.6, 0.7, 0.3, 1.2, 2.5)):
        case(f"resize10_{i}", "Resize", [line, (np.array([1, 1, 1, s], np.float32),)], version=10, mode="nearest", **own)
    case("upsample9", "Upsample", [line, (np.array([1, 1, 1.5, 1.2], np.float32),)], version=9, mode="nearest", **own)
    for kind in (np.int32, np.int64):
        v = np.array([[1, 2, 3], [4, 5, 6], [20, 20, 20]], kind)
        case(f"reduce_log_sum_{kind.__name__}", "ReduceLogSum", [v], version=13, axes=[1], **own)
        case(f"reduce_log_sum_exp_{kind.__name__}", "ReduceLogSumExp", [v], version=13, axes=[1], keepdims=0, **own)
    spots = [(np.abs(f32(2, 3)),) for _ in range(4)]
    case("batch_norm_spots", "BatchNormalization", [f32(2, 2, 3), *spots], version=7, spatial=0, **own)


def main():
    b, s, h, n = 2, 5, 4, 32
    x, w = f32(b, s, n), f32(n, 3 * n) / 4
    case("attention", "Attention", [x, (w,), (f32(3 * n),)], num_heads=h)
    case("attention_lengths", "Attention", [x, (w,), (f32(3 * n),), np.array([5, 3], np.int32)], num_heads=h)
    mask = np.array([[1] * 5, [1] * 3 + [0] * 2], np.int32)
    case("attention_mask", "Attention", [x, (w,), (f32(3 * n),), mask], num_heads=h)
    case("attention_causal_past", "Attention", [x, (w,), (f32(3 * n),), None, f32(2, b, h, 3, n // h)], 2, num_heads=h, unidirectional=1)
    case("attention_bias", "Attention", [x, (w,), (f32(3 * n),), None, None, f32(b, h, s, s)], num_heads=h, scale=0.2)
    case("mha", "MultiHeadAttention", [x, f32(b, 6, n), f32(b, 6, n)], num_heads=h)
    case("mha_bias_mask", "MultiHeadAttention", [x, f32(b, s, n), f32(b, s, n), (f32(3 * n),), mask], num_heads=h)
    case("mha_rel", "MultiHeadAttention", [x, f32(b, s, n), f32(b, s, n), None, None, f32(1, h, s, s)], num_heads=h)
    case("mha_causal", "MultiHeadAttention", [x, f32(b, s, n), f32(b, s, n)], num_heads=h, unidirectional=1)
    case("mha_cache", "MultiHeadAttention", [f32(b, 1, n), f32(b, 1, n), f32(b, 1, n), None, None, None, f32(b, h, 3, 8), f32(b, h, 3, 8)], 3, num_heads=h)
    cos, sin = np.cos(f32(16, 4)), np.sin(f32(16, 4))
    wide_cos, wide_sin = np.cos(f32(16, 8)), np.sin(f32(16, 8))
    past = lambda n: [f32(b, 2, n, 16), f32(b, 2, n, 16)]
    gqa = dict(num_heads=h, kv_num_heads=2)
    lens = lambda *v: np.array(v, np.int32)
    total = lambda v: (np.array(v, np.int32),)
    case("gqa_prompt", "GroupQueryAttention", [f32(b, s, 64), f32(b, s, 32), f32(b, s, 32), *past(0), lens(4, 4), total(5)], 3, **gqa)
    case("gqa_rotary", "GroupQueryAttention", [f32(b, s, 64), f32(b, s, 32), f32(b, s, 32), *past(0), lens(4, 4), total(5), (wide_cos,), (wide_sin,)], 3, do_rotary=1, **gqa)
    one = [f32(b, 1, 64), f32(b, 1, 32), f32(b, 1, 32)]
    case("gqa_step", "GroupQueryAttention", [*one, *past(6), lens(6, 6), total(7), (wide_cos,), (wide_sin,)], 3, do_rotary=1, **gqa)
    case("gqa_interleaved", "GroupQueryAttention", [*one, *past(6), lens(6, 6), total(7), (wide_cos,), (wide_sin,)], 3, do_rotary=1, rotary_interleaved=1, **gqa)
    case("gqa_window", "GroupQueryAttention", [*one, *past(6), lens(6, 6), total(7)], 3, local_window_size=3, **gqa)
    case("gqa_softcap", "GroupQueryAttention", [*one, *past(6), lens(6, 6), total(7)], 3, softcap=2.0, **gqa)
    case("gqa_packed", "GroupQueryAttention", [f32(b, s, 128), None, None, *past(0), lens(4, 4), total(5), (wide_cos,), (wide_sin,)], 3, do_rotary=1, **gqa)
    ids = np.array([[0, 1, 2, 3, 4], [3, 4, 5, 6, 7]], np.int64)
    case("rotary", "RotaryEmbedding", [x, ids, (cos,), (sin,)])
    case("rotary_4d", "RotaryEmbedding", [f32(b, h, s, 8), np.array([2], np.int64), (cos,), (sin,)], interleaved=1)
    gamma, beta, bias = (f32(n),), (f32(n),), (f32(n),)
    case("skip_norm", "SkipLayerNormalization", [x, f32(b, s, n), gamma, beta, bias], ["y0", "", "", "y3"], epsilon=1e-5)
    case("skip_norm_plain", "SkipLayerNormalization", [x, f32(b, s, n), gamma])
    case("skip_rms", "SkipSimplifiedLayerNormalization", [x, f32(b, s, n), gamma], ["y0", "", "", "y3"], epsilon=1e-5)
    case("rms", "SimplifiedLayerNormalization", [x, gamma], domain="", axis=-1, epsilon=1e-5)
    tables = [(f32(20, n),), (f32(10, n),), (f32(2, n),)]
    words = rng.integers(0, 20, (b, s)).astype(np.int32)
    kinds = rng.integers(0, 2, (b, s)).astype(np.int32)
    case("embed", "EmbedLayerNormalization", [words, kinds, *tables, gamma, beta, mask], 2)
    case("embed_plain", "EmbedLayerNormalization", [words, None, tables[0], tables[1], None, gamma, beta], 2)
    case("gelu", "Gelu", [x])
    case("bias_gelu", "BiasGelu", [x, bias])
    case("fast_gelu", "FastGelu", [x, bias])
    case("quick_gelu", "QuickGelu", [x], alpha=1.5)
    case("fused_matmul", "FusedMatMul", [f32(2, 6, 4), f32(2, 3, 6)], transA=1, transB=1, alpha=0.5)
    case("fused_conv", "FusedConv", [f32(1, 3, 8, 8), (f32(4, 3, 3, 3),), (f32(4),), f32(1, 4, 6, 6)], activation="Relu", tolerance=(1e-3, 1e-4))
    case("fused_conv_clip", "FusedConv", [f32(1, 3, 8, 8), (f32(4, 3, 3, 3),)], activation="Clip", activation_params=[-1.0, 2.0], tolerance=(1e-3, 1e-4))
    for bits in (4, 8):
        k, m, block = 40, 6, 16
        blob = lambda rows: u8(m, rows, block * bits // 8)
        scales = (np.abs(f32(m * 3)) / 8,)
        case(f"nbits_{bits}", "MatMulNBits", [f32(2, 3, k), (blob(3),), scales], K=k, N=m, bits=bits, block_size=block, tolerance=(1e-3, 1e-3))
        zero = (u8(m * ((3 * bits + 7) // 8)),)
        case(f"nbits_{bits}_zero", "MatMulNBits", [f32(3, k), (blob(3),), scales, zero], K=k, N=m, bits=bits, block_size=block, tolerance=(1e-3, 1e-3))
    case("integer_to_float", "MatMulIntegerToFloat", [u8(3, 8), (i8(8, 5),), np.array(0.02, np.float32), (np.abs(f32(5)),), np.array(120, np.uint8), None, (f32(5),)])
    case("dynamic_matmul", "DynamicQuantizeMatMul", [f32(3, 8), (i8(8, 5),), (np.array(0.03, np.float32),), None, (f32(5),)], tolerance=(1e-3, 1e-3))
    q = lambda scale, zero, dtype=np.uint8: [np.array(scale, np.float32), np.array(zero, dtype)]
    case("qlinear_add", "QLinearAdd", [u8(2, 9), *q(0.02, 100), u8(2, 9), *q(0.05, 130), *q(0.07, 120)])
    case("qlinear_mul", "QLinearMul", [i8(2, 9), *q(0.02, 3, np.int8), i8(9), *q(0.05, -7, np.int8), *q(0.07, 1, np.int8)])
    case("qlinear_sigmoid", "QLinearSigmoid", [u8(4, 9), *q(0.05, 128), *q(1 / 256, 0)])
    case("qlinear_leaky", "QLinearLeakyRelu", [u8(4, 9), *q(0.05, 128), *q(0.04, 30)], alpha=0.1)
    case("qlinear_pool", "QLinearGlobalAveragePool", [u8(1, 3, 4, 4), *q(0.05, 128), *q(0.02, 120)])
    case("qlinear_concat", "QLinearConcat", [*q(0.06, 110), u8(2, 3), *q(0.05, 128), u8(2, 4), *q(0.02, 120)], axis=1)
    case("quantize", "QuantizeLinear", [f32(3, 4), *q(0.02, 120)])
    case("dequantize", "DequantizeLinear", [u8(3, 4), *q(0.02, 120)])
    case("qlinear_softmax", "QLinearSoftmax", [u8(3, 7), *q(0.05, 128), *q(1 / 256, 0)], axis=-1, opset=13)
    column = [np.array([0.02, 0.03, 0.05, 0.01, 0.04, 0.06], np.float32), np.zeros(6, np.int8)]
    bias = rng.integers(-500, 500, 6).astype(np.int32)
    case("qgemm", "QGemm", [u8(5, 9), *q(0.02, 100), (i8(9, 6),), *[(v,) for v in column], (bias,), *q(0.9, 120)])
    case("qgemm_float", "QGemm", [u8(5, 8), *q(0.02, 100), (i8(6, 8),), *[(v,) for v in q(0.03, 0, np.int8)], (bias,)], transB=1, alpha=0.5)
    more(q)
    onnx_own()
    with zipfile.ZipFile(sys.argv[1], "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
        put = lambda name, data: z.writestr(zipfile.ZipInfo(name, WHEN), data, zipfile.ZIP_DEFLATED)
        for name, model, feeds, results, tolerance in CASES:
            put(f"contrib/{name}/model.onnx", model.SerializeToString())
            put(f"contrib/{name}/tolerance", f"{tolerance[0]} {tolerance[1]}")
            for side, values in (("in", feeds), ("out", results)):
                for i, (n_, v) in enumerate(values.items()):
                    put(f"contrib/{name}/0/{side}_{i}.pb", numpy_helper.from_array(np.asarray(v), n_).SerializeToString())
    print(len(CASES), "cases")


main()
