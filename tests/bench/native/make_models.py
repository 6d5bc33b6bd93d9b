#!/usr/bin/env python3
"""Builds the benchmark models as ONNX files with random weights: NAME.onnx, NAME.in.npz and NAME.out.npz (what onnxruntime
computes on one thread). Needs numpy, onnx and onnxruntime alone. The same numbers on every machine.

usage: make_models.py FOLDER [NAME..]"""
import math
import os
import shutil
import sys
import zlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

TYPES = {np.dtype("float32"): TensorProto.FLOAT, np.dtype("int64"): TensorProto.INT64, np.dtype("uint8"): TensorProto.UINT8}


class Graph:
    """Nodes, weights and inputs under construction. Methods return the name of the value they make."""

    def __init__(self, name):
        self.name = name
        self.rng = np.random.default_rng(zlib.crc32(name.encode()))
        self.nodes, self.weights, self.inputs, self.known = [], [], {}, {}

    def fresh(self):
        return f"v{len(self.nodes)}"

    def op(self, kind, *src, n_out=1, **attrs):
        out = [self.fresh() if n_out == 1 else f"{self.fresh()}_{i}" for i in range(n_out)]
        self.nodes.append(helper.make_node(kind, list(src), out, **attrs))
        return out[0] if n_out == 1 else out

    def normal(self, *shape, scale=1.0):
        return (self.rng.standard_normal(shape, dtype=np.float32) * np.float32(scale)).astype(np.float32)

    def const(self, array):
        array = np.asarray(array)
        if array.size <= 16:  # small constants are shared
            key = (array.dtype.str, array.shape, array.tobytes())
            if key in self.known:
                return self.known[key]
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        if array.size <= 16:
            self.known[key] = name
        return name

    def weight(self, *shape, scale=1.0):
        return self.const(self.normal(*shape, scale=scale))

    def ints(self, *values):
        return self.const(np.array(values, np.int64))

    def scalar(self, value):
        return self.const(np.array(value, np.float32))

    def input(self, name, array):
        self.inputs[name] = array
        return name

    # ---- layers

    def conv(self, x, ci, co, k, stride=1, groups=1, gain=2.0):
        fan = ci // groups * k * k
        w = self.weight(co, ci // groups, k, k, scale=math.sqrt(gain / fan))
        b = self.weight(co, scale=0.1)
        attrs = dict(kernel_shape=[k, k], strides=[stride] * 2, pads=[k // 2] * 4, group=groups)
        return self.op("Conv", x, w, b, **attrs)

    def linear(self, x, ci, co):
        y = self.op("MatMul", x, self.weight(ci, co, scale=1 / math.sqrt(ci)))
        return self.op("Add", self.weight(co, scale=0.1), y)

    def norm(self, x, d, eps):
        g = self.const((1 + 0.1 * self.normal(d)).astype(np.float32))
        return self.op("LayerNormalization", x, g, self.weight(d, scale=0.1), axis=-1, epsilon=eps)

    def gelu(self, x):
        e = self.op("Erf", self.op("Div", x, self.scalar(math.sqrt(2))))
        return self.op("Mul", self.op("Mul", x, self.op("Add", e, self.scalar(1))), self.scalar(0.5))

    def gelu_tanh(self, x):
        cube = self.op("Mul", self.op("Mul", x, x), x)
        inner = self.op("Add", x, self.op("Mul", cube, self.scalar(0.044715)))
        t = self.op("Tanh", self.op("Mul", inner, self.scalar(math.sqrt(2 / math.pi))))
        return self.op("Mul", self.op("Mul", x, self.scalar(0.5)), self.op("Add", t, self.scalar(1)))

    def attend(self, q, k, v, hd):
        s = self.op("Div", self.op("MatMul", q, k), self.scalar(math.sqrt(hd)))
        return self.op("MatMul", self.op("Softmax", s, axis=-1), v)


def mobilenetv2(g, images=1):
    x = g.input("x", g.normal(images, 3, 224, 224))
    six = lambda v: g.op("Clip", v, g.scalar(0), g.scalar(6))
    x, ci = six(g.conv(x, 3, 32, 3, 2)), 32
    for t, c, n, s in [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]:
        for i in range(n):
            stride, hidden = s if i == 0 else 1, ci * t
            y = x if t == 1 else six(g.conv(x, ci, hidden, 1))
            y = six(g.conv(y, hidden, hidden, 3, stride, hidden))
            y = g.conv(y, hidden, c, 1, gain=0.5)
            x = g.op("Add", x, y) if stride == 1 and ci == c else y
            ci = c
    x = six(g.conv(x, ci, 1280, 1))
    x = g.op("Flatten", g.op("GlobalAveragePool", x), axis=1)
    return [g.op("Gemm", x, g.weight(1000, 1280, scale=0.03), g.weight(1000, scale=0.1), transB=1)]


def resnet50(g, images=1):
    x = g.input("x", g.normal(images, 3, 224, 224))
    w = g.weight(64, 3, 7, 7, scale=math.sqrt(2 / 147))
    x = g.op("Relu", g.op("Conv", x, w, g.weight(64, scale=0.1), kernel_shape=[7, 7], strides=[2, 2], pads=[3] * 4))
    x, ci = g.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4), 64
    for width, n, stride in [(64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)]:
        for i in range(n):
            s = stride if i == 0 else 1
            y = g.op("Relu", g.conv(x, ci, width, 1))
            y = g.op("Relu", g.conv(y, width, width, 3, s))
            y = g.conv(y, width, width * 4, 1, gain=0.3)
            short = g.conv(x, ci, width * 4, 1, s, gain=1.0) if i == 0 else x
            x, ci = g.op("Relu", g.op("Add", y, short)), width * 4
    x = g.op("Flatten", g.op("GlobalAveragePool", x), axis=1)
    return [g.op("Gemm", x, g.weight(1000, 2048, scale=0.02), g.weight(1000, scale=0.1), transB=1)]


def encoder(layers, d, heads, hidden, vocab=30522, length=128):
    """A post-norm transformer encoder (BERT): ids [1, length] -> [1, length, d]."""

    def build(g):
        ids = g.input("ids", g.rng.integers(0, vocab, (1, length)))
        x = g.op("Gather", g.weight(vocab, d), ids, axis=0)
        x = g.norm(g.op("Add", x, g.weight(length, d)), d, 1e-12)
        hd = d // heads
        split = lambda v, perm: g.op("Transpose", g.op("Reshape", v, g.ints(1, length, heads, hd)), perm=perm)
        for _ in range(layers):
            q, k, v = g.linear(x, d, d), g.linear(x, d, d), g.linear(x, d, d)
            a = g.attend(split(q, [0, 2, 1, 3]), split(k, [0, 2, 3, 1]), split(v, [0, 2, 1, 3]), hd)
            a = g.op("Reshape", g.op("Transpose", a, perm=[0, 2, 1, 3]), g.ints(1, length, d))
            x = g.norm(g.op("Add", x, g.linear(a, d, d)), d, 1e-12)
            x = g.norm(g.op("Add", x, g.linear(g.gelu(g.linear(x, d, hidden)), hidden, d)), d, 1e-12)
        return [x]

    return build


def gpt2step(g, layers=12, d=768, heads=12, vocab=50257, past=128):
    """One decode step of GPT-2 small over a cache of `past` tokens: logits, and each layer's new key and value."""
    ids, pos = g.input("ids", np.array([[464]])), g.input("pos", np.array([[past]]))
    cache = g.input("past", g.normal(layers, 2, 1, heads, past, d // heads))
    wte, hd = g.weight(vocab, d, scale=0.1), d // heads
    x = g.op("Add", g.op("Gather", wte, ids, axis=0), g.op("Gather", g.weight(1024, d, scale=0.1), pos, axis=0))
    heads_of = lambda v: g.op("Transpose", g.op("Reshape", v, g.ints(1, 1, heads, hd)), perm=[0, 2, 1, 3])
    new = []
    for i in range(layers):
        both = g.op("Gather", cache, g.const(np.array(i, np.int64)), axis=0)
        old_k, old_v = (g.op("Gather", both, g.const(np.array(j, np.int64)), axis=0) for j in (0, 1))
        qkv = g.linear(g.norm(x, d, 1e-5), d, 3 * d)
        q, k, v = g.op("Split", qkv, g.ints(d, d, d), n_out=3, axis=-1)
        q, k, v = heads_of(q), heads_of(k), heads_of(v)
        both_k, both_v = g.op("Concat", old_k, k, axis=2), g.op("Concat", old_v, v, axis=2)
        a = g.attend(q, g.op("Transpose", both_k, perm=[0, 1, 3, 2]), both_v, hd)
        a = g.op("Reshape", g.op("Transpose", a, perm=[0, 2, 1, 3]), g.ints(1, 1, d))
        x = g.op("Add", x, g.linear(a, d, d))
        x = g.op("Add", x, g.linear(g.gelu_tanh(g.linear(g.norm(x, d, 1e-5), d, 4 * d)), 4 * d, d))
        new += [g.op("Unsqueeze", k, g.ints(0)), g.op("Unsqueeze", v, g.ints(0))]
    flat = g.op("Reshape", g.norm(x, d, 1e-5), g.ints(1, d))
    return [g.op("Gemm", flat, wte, transB=1), g.op("Concat", *new, axis=0)]


def mnist(batch):
    def build(g):
        x = g.input("x", g.normal(batch, 1, 28, 28))

        def conv(v, ci, co, k):
            w = g.weight(co, ci, k, k, scale=math.sqrt(2 / (ci * k * k)))
            return g.op("Relu", g.op("Conv", v, w, g.weight(co, scale=0.1), kernel_shape=[k, k]))

        def bn_pool(v, c):
            one = lambda: g.const((1 + 0.1 * np.abs(g.normal(c))).astype(np.float32))
            y = g.op("BatchNormalization", v, one(), g.weight(c, scale=0.1), g.weight(c, scale=0.1), one(), epsilon=1e-5)
            return g.op("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])

        x = bn_pool(conv(conv(x, 1, 32, 5), 32, 32, 5), 32)
        x = bn_pool(conv(conv(x, 32, 64, 3), 64, 64, 3), 64)
        return [g.op("Gemm", g.op("Flatten", x, axis=1), g.weight(10, 576, scale=0.05), g.weight(10), transB=1)]

    return build


def matmul(n):
    return lambda g: [g.op("MatMul", g.input("a", g.normal(n, n)), g.input("b", g.normal(n, n)))]


def gelu_chain(g):
    x, y, z = (g.input(name, g.normal(1 << 24)) for name in "xyz")
    return [g.gelu_tanh(g.op("Add", g.op("Mul", x, y), z))]


def conv56(g):
    w = g.weight(64, 64, 3, 3, scale=math.sqrt(1 / 576))
    return [g.op("Conv", g.input("x", g.normal(1, 64, 56, 56)), w, kernel_shape=[3, 3], pads=[1] * 4)]


def bytes_of(g, low, high, kind, *shape):
    return g.rng.integers(low, high, shape).astype(kind)


def int8_matmul(n):
    def build(g):
        w = g.const(bytes_of(g, -128, 128, np.int8, n, n))
        return [g.op("MatMulInteger", g.input("a", bytes_of(g, 0, 256, np.uint8, n, n)), w)]

    return build


def qdq_matmul(n):
    """Floats through 8 bits, times weights of 8 bits with a scale a column, through 8 bits again."""

    def build(g):
        one = lambda scale, zero: (g.scalar(scale), g.const(np.array(zero, np.uint8)))
        x = g.op("DequantizeLinear", g.op("QuantizeLinear", g.input("a", g.normal(n, n)), *one(0.03, 128)), *one(0.03, 128))
        scales = g.const((g.rng.random(n) * 0.01 + 0.01).astype(np.float32))
        w = g.const(bytes_of(g, -128, 128, np.int8, n, n))
        y = g.op("MatMul", x, g.op("DequantizeLinear", w, scales, g.const(np.zeros(n, np.int8)), axis=1))
        return [g.op("DequantizeLinear", g.op("QuantizeLinear", y, *one(0.5, 128)), *one(0.5, 128))]

    return build


BUILD = {f"matmul{n}": matmul(n) for n in (256, 512, 1024, 2048)} | {
    "wmatmul1024": lambda g: [g.op("MatMul", g.input("a", g.normal(1024, 1024)), g.weight(1024, 1024))],
    "matvec4096": lambda g: [g.op("MatMul", g.input("a", g.normal(1, 4096)), g.weight(4096, 4096))],
    "matvec4096t": lambda g: [g.op("Gemm", g.input("a", g.normal(1, 4096)), g.weight(4096, 4096), transB=1)],
    "int8_matmul256": int8_matmul(256),
    "int8_matmul1024": int8_matmul(1024),
    "qdq_matmul256": qdq_matmul(256),
    "qdq_matmul1024": qdq_matmul(1024),
    "conv56": conv56,
    "softmax4096": lambda g: [g.op("Softmax", g.input("x", g.normal(4096, 4096)), axis=-1)],
    "layernorm4096": lambda g: [g.norm(g.input("x", g.normal(4096, 4096)), 4096, 1e-5)],
    "gelu_chain16m": gelu_chain,
    "sum16m": lambda g: [g.op("ReduceSum", g.input("x", g.normal(1 << 24)), keepdims=0)],
    "transpose4096": lambda g: [g.op("Transpose", g.input("x", g.normal(4096, 4096)), perm=[1, 0])],
    "mobilenetv2": mobilenetv2,
    "resnet50": resnet50,
    "mobilenetv2x8": lambda g: mobilenetv2(g, 8),
    "resnet50x8": lambda g: resnet50(g, 8),
    "bertmini": encoder(4, 256, 4, 1024),
    "minilm": encoder(6, 384, 12, 1536),
    "bertbase": encoder(12, 768, 12, 3072),
    "gpt2step": gpt2step,
    "mnist": mnist(512),
    "mnist1": mnist(1),
}

# committed models, with what they give without optimisations
COMMITTED = ["style_predict_qdq"]
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../models")

# what one run must do at least: (Gflop, GB moved), for the bound of a row
WORK = {f"matmul{n}": (2e-9 * n**3, 12e-9 * n * n) for n in (256, 512, 1024, 2048)} | {
    "wmatmul1024": (2e-9 * 1024**3, 12e-9 * 1024**2),
    "matvec4096": (2e-9 * 4096**2, 4e-9 * 4096**2),
    "matvec4096t": (2e-9 * 4096**2, 4e-9 * 4096**2),
    "int8_matmul256": (2e-9 * 256**3, 6e-9 * 256**2),
    "int8_matmul1024": (2e-9 * 1024**3, 6e-9 * 1024**2),
    "qdq_matmul256": (2e-9 * 256**3, 9e-9 * 256**2),
    "qdq_matmul1024": (2e-9 * 1024**3, 9e-9 * 1024**2),
    "style_predict_qdq": (0.8, 0.01),
    "conv56": (2e-9 * 64 * 64 * 9 * 56 * 56, 4e-9 * (2 * 64 * 56 * 56 + 64 * 64 * 9)),
    "softmax4096": (4e-9 * 4096**2, 8e-9 * 4096**2),
    "layernorm4096": (8e-9 * 4096**2, 8e-9 * 4096**2),
    "gelu_chain16m": (12e-9 * (1 << 24), 16e-9 * (1 << 24)),
    "sum16m": (1e-9 * (1 << 24), 4e-9 * (1 << 24)),
    "transpose4096": (0, 8e-9 * 4096**2),
    "mobilenetv2": (0.6, 0.014),
    "resnet50": (8.2, 0.102),
    "mobilenetv2x8": (4.8, 0.014),
    "resnet50x8": (65.6, 0.102),
    "bertmini": (0.85, 0.013),
    "minilm": (2.9, 0.043),
    "bertbase": (22.3, 0.34),
    "gpt2step": (0.25, 0.5),
    "mnist": (6.7, 0.001),
    "mnist1": (0.013, 0.0003),
}


def make(name, folder):
    if name in COMMITTED:
        for source, end in (("model.onnx", ".onnx"), ("input.npz", ".in.npz"), ("expected.npz", ".out.npz")):
            shutil.copyfile(os.path.join(FOLDER, name, source), os.path.join(folder, name + end))
        return
    g = Graph(name)
    outputs = BUILD[name](g)
    feeds = {k: np.asarray(v) for k, v in g.inputs.items()}
    infos = [helper.make_tensor_value_info(k, TYPES[v.dtype], v.shape) for k, v in feeds.items()]
    kind = TensorProto.INT32 if g.nodes[-1].op_type == "MatMulInteger" else TensorProto.FLOAT
    outs = [helper.make_tensor_value_info(o, kind, None) for o in outputs]
    graph = helper.make_graph(g.nodes, name, infos, outs, g.weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = os.path.join(folder, f"{name}.onnx")
    onnx.save(model, path)
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    results = session.run(outputs, feeds)
    np.savez(os.path.join(folder, f"{name}.in.npz"), **feeds)
    if name == "sum16m":  # of 16 million floats onnxruntime's sum keeps three digits
        results = [np.float32(feeds["x"].sum(dtype=np.float64)).reshape(np.shape(results[0]))]
    np.savez(os.path.join(folder, f"{name}.out.npz"), **dict(zip(outputs, results)))
    print(f"{name}: {os.path.getsize(path) / 1e6:.1f} MB, {len(g.nodes)} nodes", file=sys.stderr, flush=True)


def ensure(names, folder):
    """Makes the models that are not there yet."""
    os.makedirs(folder, exist_ok=True)
    for name in names:
        if not os.path.exists(os.path.join(folder, f"{name}.out.npz")):
            make(name, folder)


if __name__ == "__main__":
    os.makedirs(sys.argv[1], exist_ok=True)
    for each in sys.argv[2:] or BUILD:
        make(each, sys.argv[1])
