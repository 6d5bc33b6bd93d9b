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


class Packed:
    """A constant of an element type of 4 bits, two elements a byte, the low bits first."""

    def __init__(self, elem, shape):
        self.elem, self.shape = elem, shape
        self.raw = u8((int(np.prod(shape)) + 1) // 2).tobytes()


def case(name, op, inputs, outputs=1, domain="com.microsoft", tolerance=(1e-3, 2e-5), version=21, threads=0, **attributes):
    """`inputs` in the operator's order, None where one is left out; a tuple marks a constant."""
    names, feeds, constants = [], {}, []
    for i, v in enumerate(inputs):
        if v is None:
            names.append("")
            continue
        names.append(f"x{i}")
        if isinstance(v, Packed):
            constants.append(helper.make_tensor(f"x{i}", v.elem, v.shape, v.raw, raw=True))
        elif isinstance(v, tuple):
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
    options.intra_op_num_threads = threads
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


def nbits_in_rows():
    """Weights whose rows fill vectors, so that they stay packed: for one row of inputs and for several."""
    for bits, n, k, block in [(4, 64, 128, 32), (4, 48, 96, 16), (8, 32, 128, 64), (4, 16, 256, 128)]:
        blocks = k // block
        scales = (np.abs(f32(n * blocks)) / 8,)
        blob = (u8(n, blocks, block * bits // 8),)
        zero = (u8(n * ((blocks * bits + 7) // 8)),)
        sizes = dict(K=k, N=n, bits=bits, block_size=block, tolerance=(1e-3, 1e-3))
        for m in (1, 5):
            case(f"nbits_rows_{bits}_{block}_{m}", "MatMulNBits", [f32(m, k), blob, scales], **sizes)
            case(f"nbits_rows_{bits}_{block}_{m}_zero", "MatMulNBits", [f32(1, m, k), blob, scales, zero, None, (f32(n),)], **sizes)


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


def newest(q):
    """Later ones again."""
    scale = lambda *shape: (np.abs(f32(*shape)) / 100 + np.float32(0.001),)
    known = lambda v, dtype: (np.array(v, dtype),)
    x = f32(5, 3, 6)
    weights = [(i8(1, 6, 28),), (i8(1, 7, 28),), (f32(1, 56),)]
    zero = (np.zeros(1, np.int8),)
    # onnxruntime takes the range of what one thread computes
    lstm = dict(op="DynamicQuantizeLSTM", hidden_size=7, threads=1)
    case("dynamic_lstm", inputs=[x, *weights, None, None, None, None, scale(1), zero, scale(1), zero], outputs=3, **lstm)
    weights = [(u8(2, 6, 28),), (u8(2, 7, 28),)]
    rest = [f32(2, 3, 7), f32(2, 3, 7), (f32(2, 21),), scale(2), (u8(2),), scale(2), (u8(2),)]
    case("dynamic_lstm_both", inputs=[x, *weights, None, None, *rest], outputs=3, direction="bidirectional", clip=1.5, **lstm)
    weights = [(i8(1, 6, 28),), (i8(1, 7, 28),), None, np.array([3], np.int32)]
    acts = ["HardSigmoid", "Softsign", "LeakyRelu"]
    case("dynamic_lstm_reverse", inputs=[x[:, :1], *weights, None, None, None, scale(1), zero, scale(1), zero], outputs=["y", "h"], **lstm,
         direction="reverse", activations=acts, activation_alpha=[0.3, 0.8], activation_beta=[0.4], input_forget=1)

    h, n = 4, 32
    w, bias = (i8(n, 3 * n),), (f32(3 * n),)
    one = [known(0.02, np.float32), known(0.005, np.float32)]
    mask = np.array([[1] * 5, [1] * 3 + [0] * 2], np.int32)
    case("qattention", "QAttention", [u8(2, 5, n), w, bias, *one, None, known(120, np.uint8), known(3, np.int8)], num_heads=h, tolerance=(1e-3, 1e-4))
    case("qattention_columns", "QAttention", [u8(2, 5, n), (u8(n, 3 * n),), bias, one[0], scale(3 * n), mask, known(120, np.uint8), (u8(3 * n),)],
         num_heads=h, scale=0.2, tolerance=(1e-3, 1e-4))
    past = f32(2, 2, h, 3, n // h)
    case("qattention_past", "QAttention", [u8(2, 5, n), w, bias, *one, None, None, None, past], 2, num_heads=h, unidirectional=1, tolerance=(1e-3, 1e-4))
    case("qattention_lengths", "QAttention", [u8(2, 5, n), w, bias, *one, np.array([5, 3], np.int32)], num_heads=h, mask_filter_value=-1000.0,
         tolerance=(1e-3, 1e-4))

    ids = np.array([[0, 3], [-1, 2]], np.int64)
    rows = lambda **more: dict(block_size=16, quantize_axis=1, **more)
    for bits in (2, 4, 8):
        data, wide = (u8(4, 5 * bits),), -(-40 // 16)
        case(f"gather_blocks_{bits}", "GatherBlockQuantized", [data, ids, (f32(4, wide),)], **rows(bits=bits))
        case(f"gather_blocks_{bits}_zero", "GatherBlockQuantized",
             [data, ids.astype(np.int32), (f32(4, wide).astype(np.float16),), (u8(4, -(-wide * bits // 8)),)], **rows(bits=bits))
    case("gather_blocks_beyond", "GatherBlockQuantized", [(u8(4, 16),), np.array([4, -5, 1], np.int64), (f32(4, 2),)], **rows())
    uint4, int4 = 21, 22
    case("gather_blocks_int4", "GatherBlockQuantized", [Packed(int4, (3, 5, 20)), ids, (f32(3, 5, 2),), Packed(int4, (3, 5, 2))], block_size=16,
         quantize_axis=-1, gather_axis=1)
    case("gather_blocks_uint4", "GatherBlockQuantized", [Packed(uint4, (20, 5)), ids + 17, (f32(2, 5),), Packed(uint4, (2, 5))], block_size=16,
         quantize_axis=0)
    case("gather_blocks_before", "GatherBlockQuantized", [Packed(int4, (20, 5)), ids, (f32(2, 5),)], block_size=16, quantize_axis=0, gather_axis=-1)

    for name, kind, k, m in (("fp4", 0, 40, 6), ("nf4", 1, 33, 5)):
        case(f"bnb_{name}", "MatMulBnb4", [f32(2, 3, k), (u8((k * m + 1) // 2),), scale(-(-k * m // 16))], K=k, N=m, block_size=16, quant_type=kind,
             tolerance=(1e-3, 1e-5))

    def experts(fused=1):
        return [(f32(4, 6 * fused, 8),), (f32(4, 6 * fused),), (f32(4, 8, 6),), (f32(4, 8),)]

    for act in ("relu", "gelu", "silu", "identity"):
        case(f"moe_{act}", "MoE", [f32(7, 8), f32(7, 4), *experts()], k=2, activation_type=act, normalize_routing_weights=int(act != "gelu"),
             tolerance=(1e-3, 1e-4))
    case("moe_plain", "MoE", [f32(2, 3, 8), f32(6, 4), experts()[0], None, experts()[2]], tolerance=(1e-3, 1e-4))
    # as many choices as experts: each token reads its own
    case("moe_few", "MoE", [f32(1, 2, 8), f32(2, 4), *experts(2)], k=2, activation_type="swiglu", swiglu_fusion=1, swiglu_limit=0.7, activation_alpha=1.702,
         activation_beta=1.0, tolerance=(1e-3, 1e-4))
    for bits, block, tokens in ((4, 0, 3), (4, 16, 1), (8, 0, 1), (2, 0, 9)):
        def layer(out, width):
            blocks = width // block if block else out
            scales = scale(3, out, blocks) if block else scale(3, out)
            zeros = (u8(3, out, -(-blocks * bits // 8)),) if block else (u8(3, -(-out * bits // 8)),)
            return (u8(3, out, width * bits // 8),), scales, (f32(3, out),), zeros

        (w1, s1, b1, z1), (w2, s2, b2, z2) = layer(64, 32), layer(32, 32)
        more = dict(block_size=block) if block else {}
        case(f"qmoe_{bits}_{block}", "QMoE", [f32(tokens, 32), f32(tokens, 3), w1, s1, b1, w2, s2, b2, None, None, None, z1, z2], k=2,
             expert_weight_bits=bits,
             activation_type="swiglu", swiglu_fusion=1, tolerance=(1e-3, 1e-2), **more)
        w1, s1, _, _ = layer(32, 32)
        case(f"qmoe_{bits}_{block}_middle", "QMoE", [f32(tokens, 32), f32(tokens, 3), w1, s1, None, w2, s2], k=1, expert_weight_bits=bits,
             tolerance=(1e-3, 1e-2), **more)

    table = lambda rows: (u8(rows, 16),)
    words, kinds = rng.integers(0, 20, (2, 5)).astype(np.int32), rng.integers(0, 2, (2, 5)).astype(np.int32)
    small = lambda v: known(v, np.float32)
    point = lambda v: known(v, np.uint8)
    row = (u8(16),)
    case("qembed", "QEmbedLayerNormalization",
         [words, kinds, table(20), table(10), table(2), row, row, mask, *[small(v) for v in (0.01, 0.02, 0.03, 0.02, 0.01)],
         *[point(v) for v in (120, 128, 100, 90, 110)]], 2, epsilon=1e-5, tolerance=(1e-3, 1e-4))
    case("qembed_plain", "QEmbedLayerNormalization",
         [words, None, table(20), table(10), None, row, row, None, small(0.01), small(0.02), None, small(0.02), small(0.01),
         point(120), point(128), None, point(90), point(110)], 2, tolerance=(1e-3, 1e-4))
    case("cdist", "CDist", [f32(4, 3), f32(5, 3)], metric="euclidean")
    case("cdist_square", "CDist", [f32(4, 3), f32(5, 3)], metric="sqeuclidean")
    case("expand_dims", "ExpandDims", [f32(3, 4), known(-2, np.int32)])
    case("unique", "Unique", [np.array([2, 1, 1, 3, 4, 3], np.float32)], 3)
    i16 = lambda *shape: rng.integers(-999, 999, shape).astype(np.int16)
    case("integer16", "MatMulInteger16", [i16(2, 3, 5), i16(5, 4)])
    case("pad", "Pad", [f32(3, 4), (np.array([0, 1, 2, -1]),), small(1.5)])
    case("range", "Range", [small(1.0), (np.array([5], np.float32),)])
    case("nhwc_max_pool", "NhwcMaxPool", [i8(1, 6, 7, 3)], kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1])
    conv = [(i8(4, 3, 3, 2),), scale(4), (np.zeros(4, np.int8),), *q(0.31, 120), (rng.integers(-500, 500, 4).astype(np.int32),)]
    case("qlinear_conv_last", "QLinearConv", [u8(2, 6, 5, 3), *q(0.0217, 128), *conv], channels_last=1, strides=[2, 1], pads=[1, 0, 1, 1])
    gamma = (f32(16),)
    case("skip_norm_row", "SkipLayerNormalization", [f32(2, 5, 16), f32(1, 5, 16), gamma, None, gamma], ["y0", "", "", "y3"])
    cos, sin = (f32(16, 2),), (f32(16, 2),)
    case("rotary_part", "RotaryEmbedding", [f32(2, 5, 32), np.array([3], np.int64), cos, sin], num_heads=4, rotary_embedding_dim=4, interleaved=1)
    case("skip_norm_statistics", "SkipLayerNormalization", [f32(2, 5, 16), f32(2, 5, 16), gamma, gamma], 4)


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
    newest(q)
    nbits_in_rows()
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
