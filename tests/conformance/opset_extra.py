"""One-node cases of operators, attributes and bodies that the backend suite has no one-node case of, for `opset_cases.py`."""
import numpy as np
import onnxruntime as ort
from onnx import parser

rng = np.random.default_rng(5)
f32 = lambda *shape: rng.standard_normal(shape).astype(np.float32)
int64 = lambda *v: np.array(v, np.int64)
LIST = [f32(2, 3), f32(2, 3), f32(2, 3)]
ZEROS = lambda *shape: np.zeros(shape, np.float32)

# name, operator set, model text, inputs, and what comes out if it is known or only its shape matters, or in which older set onnxruntime knows it
CASES = [
    ("seq_concat", 11, "(seq(float[2, 3]) s) => (float[a, b] y) { y = ConcatFromSequence<axis = 1>(s) }", [LIST]),
    ("seq_stack", 11, "(seq(float[2, 3]) s) => (float[a, b, c] y) { y = ConcatFromSequence<axis = -1, new_axis = 1>(s) }", [LIST]),
    ("seq_at", 11, "(seq(float[2, 3]) s, int64 i) => (float[2, 3] y) { y = SequenceAt(s, i) }", [LIST, np.int64(-2)]),
    ("seq_construct", 11, "(float[2, 3] a, float[2, 3] b) => (seq(float[2, 3]) y) { y = SequenceConstruct(a, b) }", LIST[:2]),
    ("seq_empty", 11, "() => (seq(int64[n]) y) { y = SequenceEmpty<dtype = 7>() }", []),
    ("seq_erase", 11, "(seq(float[2, 3]) s, int64 i) => (seq(float[2, 3]) y) { y = SequenceErase(s, i) }", [LIST, np.int64(1)]),
    ("seq_erase_last", 11, "(seq(float[2, 3]) s) => (seq(float[2, 3]) y) { y = SequenceErase(s) }", [LIST]),
    ("seq_length", 11, "(seq(float[2, 3]) s) => (int64 y) { y = SequenceLength(s) }", [LIST]),
    ("lp_pool_1", 22, "(float[2, 3, 4, 5] x) => (float[2, 3, 1, 1] y) { y = GlobalLpPool<p = 1>(x) }", [f32(2, 3, 4, 5)], 21),
    ("lp_pool_2", 22, "(float[2, 3, 7] x) => (float[2, 3, 1] y) { y = GlobalLpPool(x) }", [f32(2, 3, 7)], 21),
    ("roi_pool", 22, "(float[1, 2, 8, 9] x, float[3, 5] r) => (float[3, 2, 2, 3] y) { y = MaxRoiPool<pooled_shape = [2, 3], spatial_scale = 0.8>(x, r) }",
     [f32(1, 2, 8, 9), np.array([[0, 0, 0, 5, 5], [0, 2, 3, 8, 7], [0, 4, 4, 6, 5]], np.float32)], 21),
    ("multinomial", 22, "(float[2, 4] x) => (int64[2, 6] y) { y = Multinomial<dtype = 7, sample_size = 6>(x) }", [f32(2, 4)], [np.zeros((2, 6), np.int64)]),
    ("random_normal", 22, "() => (float[3, 4] y) { y = RandomNormal<shape = [3, 4], mean = 1.0, scale = 2.0, seed = 7.0>() }", [], [ZEROS(3, 4)]),
    ("random_normal_like", 22, "(float[3, 4] x) => (float[3, 4] y) { y = RandomNormalLike(x) }", [f32(3, 4)], [ZEROS(3, 4)]),
    ("random_uniform", 22, "() => (float[3, 4] y) { y = RandomUniform<shape = [3, 4], low = -1.0, high = 2.0>() }", [], [ZEROS(3, 4)]),
    ("random_uniform_like", 22, "(float[3, 4] x) => (float[3, 4] y) { y = RandomUniformLike(x) }", [f32(3, 4)], [ZEROS(3, 4)]),
    ("optional_tensor", 15, "(float[2, 3] x) => (optional(float[2, 3]) y) { y = Optional(x) }", [LIST[0]]),
    ("optional_tensor_new", 28, "(float[2, 3] x) => (optional(float[2, 3]) y) { y = Optional(x) }", [LIST[0]], [LIST[0]]),
    ("not_spatial", 7, "(float[2, 3, 4] x, float[3, 4] s, float[3, 4] b, float[3, 4] m, float[3, 4] v) => (float[2, 3, 4] y)"
     " { y = BatchNormalization<spatial = 0, epsilon = 0.01>(x, s, b, m, v) }", [f32(2, 3, 4), f32(3, 4), f32(3, 4), f32(3, 4), np.abs(f32(3, 4))]),
    ("linear", 9, "(float[1, 1, 3, 4] x, float[4] s) => (float[a, b, c, d] y) { y = Upsample<mode = \"linear\">(x, s) }",
     [f32(1, 1, 3, 4), np.array([1, 1, 2, 1.5], np.float32)]),
    ("floats", 24, "() => (float[3] y) { y = Constant<value_floats = [0.5, -1.0, 2.0]>() }", []),
    ("float", 24, "() => (float y) { y = Constant<value_float = 0.5>() }", []),
    ("ints", 24, "() => (int64[3] y) { y = Constant<value_ints = [5, -1, 2]>() }", []),
    ("int", 24, "() => (int64 y) { y = Constant<value_int = -3>() }", []),
    ("strings", 24, "() => (string[2] y) { y = Constant<value_strings = [\"a\", \"bc\"]>() }", []),
    ("pads_of_old", 2, "(float[2, 3] x) => (float[5, 4] y) { y = Pad<pads = [1, 0, 2, 1], value = 1.5>(x) }", [f32(2, 3)]),
    ("pads_cut", 2, "(float[4, 5] x) => (float[3, 5] y) { y = Pad<mode = \"edge\", pads = [-1, 2, 0, -2]>(x) }", [f32(4, 5)]),
    ("slice_clamped", 1, "(float[4, 5] x) => (float[2, 4] y) { y = Slice<axes = [1, 0], starts = [-4, 2], ends = [1000, -0x7fffffff]>(x) }".replace("-0x7fffffff", "9"), [f32(4, 5)]),
    ("top_one", 1, "(float[4, 5] x) => (float[4, 2] y, int64[4, 2] i) { y, i = TopK<k = 2>(x) }", [f32(4, 5)]),
    ("one_limit", 6, "(float[4, 5] x) => (float[4, 5] y) { y = Clip<min = -0.25>(x) }", [f32(4, 5)]),
    ("all_axes", 1, "(float[4, 5] x) => (float y) { y = ReduceSum<keepdims = 0>(x) }", [f32(4, 5)]),
    ("all_ones", 1, "(float[1, 5, 1] x) => (float[5] y) { y = Squeeze(x) }", [f32(1, 5, 1)]),
    ("with_c", 7, "(float[2, 3] a, float[4, 3] b, float[2, 1] c) => (float[2, 4] y) { y = Gemm<alpha = 0.5, beta = 2.0, transB = 1>(a, b, c) }", [f32(2, 3), f32(4, 3), f32(2, 1)]),
    ("three_axes", 1, "(float[2, 3, 4] x) => (float[2, 3, 4] y) { y = Softmax<axis = 1>(x) }", [f32(2, 3, 4)]),
    ("three_axes_log", 1, "(float[2, 3, 4] x) => (float[2, 3, 4] y) { y = LogSoftmax<axis = 2>(x) }", [f32(2, 3, 4)]),
    ("batch_of_sums", 8, "(float[2, 3] a, float[2, 4, 3] x) => (float[2, 3] s, float[2, 4, 3] all) {"
     " s, all = Scan<num_scan_inputs = 1, body = b (float[3] u, float[3] v) => (float[3] t, float[3] o) { t = Add(u, v)\n o = Mul(t, v) }>(\"\", a, x) }".replace('""', ""),
     [f32(2, 3), f32(2, 4, 3)]),
    ("sums", 25, "(float[3] a, float[4, 3] x) => (float[3] s, float[4, 3] all) {"
     " s, all = Scan<num_scan_inputs = 1, body = b (float[3] u, float[3] v) => (float[3] t, float[3] o) { t = Add(u, v)\n o = Mul(t, v) }>(a, x) }",
     [f32(3), f32(4, 3)]),
    ("if_sum", 25, "(bool c, float[3] x) => (float[3] y) {"
     " y = If (c) <then_branch = t () => (float[3] a) { a = Add(x, x) }, else_branch = e () => (float[3] b) { b = Neg(x) }> }", [np.bool_(True), f32(3)]),
    ("if_neg", 25, "(bool c, float[3] x) => (float[3] y) {"
     " y = If (c) <then_branch = t () => (float[3] a) { a = Add(x, x) }, else_branch = e () => (float[3] b) { b = Neg(x) }> }", [np.bool_(False), f32(3)]),
    ("loop_for", 25, "(int64 n, bool c, float[3] x) => (float[3] y, float[k, 3] all) {"
     " y, all = Loop (n, c, x) <body = b (int64 i, bool d, float[3] s) => (bool go, float[3] t, float[3] o) { t = Add(s, s)\n o = Mul(t, x)\n go = Identity(d) }> }",
     [np.int64(3), np.bool_(True), f32(3)]),
]  # fmt: skip


def extra():
    """Name, model, data sets and tolerances, as `onnx_cases.generated` gives them."""
    for name, opset, text, inputs, *want in CASES:
        written = lambda opset: parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\ng {text}')
        model = written(opset)
        if not want:
            outs = [None] * len(model.graph.output)
        elif isinstance(want[0], int):
            session = ort.InferenceSession(written(want[0]).SerializeToString(), providers=["CPUExecutionProvider"])
            outs = session.run(None, dict(zip([v.name for v in model.graph.input], inputs)))
        else:
            outs = want[0]
        yield f"extra_{name}", model, [(inputs, outs)], 1e-3, 1e-6
