"""Random blocks of the kinds that networks are built of, as ONNX graphs: shapes that nobody tuned for."""
import math
import os
import random
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../native"))
from make_models import Graph  # noqa: E402


class Block(Graph):
    """A graph whose shapes come from a seed."""

    def __init__(self, name, seed):
        super().__init__(name)
        self.pick = random.Random(f"{seed} {name}").choice

    def channels(self):
        return self.pick([16, 24, 32, 40, 48, 64, 72, 96, 112, 128, 160, 192, 256])

    def side(self):
        return self.pick([7, 10, 13, 14, 20, 28, 31, 40, 56, 64, 80])

    def x(self, *shape):
        return self.input("x", self.normal(*shape))

    def act(self, x):
        kinds = ["Relu", "Sigmoid", "Silu", "HardSwish", "Relu6", "LeakyRelu", "Softplus", "Elu", "Gelu", "PRelu"]
        kind = self.pick(kinds)
        if kind == "Silu":
            return self.op("Mul", x, self.op("Sigmoid", x))
        if kind == "Relu6":
            return self.op("Clip", x, self.scalar(0), self.scalar(6))
        if kind == "Gelu":
            return self.gelu(x)
        if kind == "PRelu":
            return self.op("PRelu", x, self.const(np.full((1,), 0.25, np.float32)))
        return self.op(kind, x)

    def conv2(self, x, ci, co, k, stride=1, groups=1, pad=None, dilation=1):
        w = self.weight(co, ci // groups, k, k, scale=math.sqrt(2 / (ci // groups * k * k)))
        pads = [k // 2 if pad is None else pad] * 4
        attrs = dict(kernel_shape=[k, k], strides=[stride] * 2, dilations=[dilation] * 2, pads=pads, group=groups)
        return self.op("Conv", x, w, self.weight(co, scale=0.1), **attrs)


def convnext(g):
    c, h, k, e = g.channels(), g.side(), g.pick([3, 5, 7, 9]), g.pick([2, 3, 4])
    x = g.x(1, c, h, h)
    y = g.op("Transpose", g.conv2(x, c, c, k, groups=c), perm=[0, 2, 3, 1])
    y = g.linear(g.act(g.linear(g.norm(y, c, 1e-5), c, e * c)), e * c, c)
    return [g.op("Transpose", g.op("Add", y, g.op("Transpose", x, perm=[0, 2, 3, 1])), perm=[0, 3, 1, 2])]


def inverted(g):
    c, h, k, s, e = g.channels(), g.side(), g.pick([3, 5, 7]), g.pick([1, 2]), g.pick([1, 3, 4, 6])
    m, r = c * e, max(8, c * e // 16)
    y = g.act(g.conv2(g.act(g.conv2(g.x(1, c, h, h), c, m, 1)), m, m, k, s, m))
    z = g.op("Relu", g.conv2(g.op("GlobalAveragePool", y), m, r, 1))
    return [g.conv2(g.op("Mul", y, g.op("HardSigmoid", g.conv2(z, r, m, 1))), m, c, 1)]


def convolution(g):
    c, o, h, k = g.channels(), g.channels(), g.side(), g.pick([1, 2, 3, 4, 5, 7])
    stride, dilation, batch = g.pick([1, 1, 2, 3]), g.pick([1, 1, 2]), g.pick([1, 1, 2, 4])
    x = g.x(batch, c, h + 2 * k, h + 2 * k)
    return [g.act(g.conv2(x, c, o, k, stride, pad=g.pick(range(k)), dilation=dilation))]


def groups(g):
    n, h, k = g.pick([2, 4, 8]), g.side(), g.pick([3, 5])
    c, o = g.channels() // 8 * 8, g.channels() // 8 * 8
    y = g.op("Reshape", g.conv2(g.x(1, c, h, h), c, o, k, groups=n), g.ints(1, n, -1))
    y = g.op("InstanceNormalization", y, g.const(np.ones(n, np.float32)), g.const(np.zeros(n, np.float32)), epsilon=1e-5)
    y = g.op("Reshape", y, g.ints(1, o, h, h))
    return [g.act(g.op("Add", g.op("Mul", y, g.weight(o, 1, 1)), g.weight(o, 1, 1)))]


def upsampling(g):
    c, o, h, k = g.channels(), g.channels(), g.pick([7, 14, 20, 28, 40]), g.pick([2, 3, 4])
    x, how = g.x(1, c, h, h), g.pick(["transposed", "nearest", "linear", "shuffle"])
    if how == "transposed":
        p = g.pick([0, (k - 1) // 2])
        w = g.weight(c, o, k, k, scale=math.sqrt(1 / c))
        y = g.op("ConvTranspose", x, w, g.weight(o), kernel_shape=[k, k], strides=[2, 2], pads=[p] * 4)
    elif how == "shuffle":
        y = g.op("DepthToSpace", g.conv2(x, c, 4 * o, 3), blocksize=2, mode="CRD")
    else:
        scales = g.const(np.array([1, 1, 2, 2], np.float32))
        mode = dict(mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")
        y = g.conv2(g.op("Resize", x, "", scales, **(mode if how == "nearest" else dict(mode="linear"))), c, o, 3)
    return [g.act(y)]


def unet(g):
    c, h = g.pick([8, 16, 24, 32]), g.pick([40, 48, 64, 80])
    a = g.op("Relu", g.conv2(g.x(1, 3, h, h), 3, c, 3))
    b = g.op("Relu", g.conv2(g.op("MaxPool", a, kernel_shape=[2, 2], strides=[2, 2]), c, 2 * c, 3))
    u = g.op("ConvTranspose", b, g.weight(2 * c, c, 2, 2, scale=0.2), g.weight(c), kernel_shape=[2, 2], strides=[2, 2])
    return [g.op("Relu", g.conv2(g.op("Concat", u, a, axis=1), 2 * c, c, 3))]


def perceptron(g):
    rows, i = g.pick([1, 2, 7, 33, 64, 197, 256]), g.pick([64, 100, 257, 512, 768, 1000])
    h, o = g.pick([128, 300, 1024, 3072]), g.pick([10, 64, 768, 1000])
    y = g.linear(g.act(g.linear(g.norm(g.x(rows, i), i, 1e-5), i, h)), h, o)
    end = g.pick(["softmax", "norm", ""])
    return [g.op("Softmax", y, axis=-1) if end == "softmax" else g.norm(y, o, 1e-5) if end else y]


def attention(g):
    b, t, hd, n = g.pick([1, 1, 2, 4]), g.pick([1, 17, 49, 64, 100, 197, 256]), g.pick([16, 24, 32, 64, 80]), g.pick([1, 3, 4, 6, 8])
    d, x = hd * n, g.x(b, t, hd * n)
    q, k, v = g.op("Split", g.linear(x, d, 3 * d), g.ints(d, d, d), n_out=3, axis=-1)
    heads = lambda v, perm: g.op("Transpose", g.op("Reshape", v, g.ints(b, t, n, hd)), perm=perm)
    a = g.attend(heads(q, [0, 2, 1, 3]), heads(k, [0, 2, 3, 1]), heads(v, [0, 2, 1, 3]), hd)
    a = g.op("Reshape", g.op("Transpose", a, perm=[0, 2, 1, 3]), g.ints(b, t, d))
    return [g.op("Add", g.linear(a, d, d), x)]


def signal(g):
    c, t, k = g.channels(), g.pick([100, 400, 1000, 3000]), g.pick([3, 5, 9, 15])
    n = g.pick([1, 1, c])
    o, b, s = c if n == c else g.channels(), g.pick([1, 2]), g.pick([1, 2])
    w = g.weight(o, c // n, k, scale=math.sqrt(2 / (c // n * k)))
    return [g.act(g.op("Conv", g.x(b, c, t), w, g.weight(o), kernel_shape=[k], strides=[s], pads=[k // 2] * 2, group=n))]


def volume(g):
    c, o, h = g.pick([4, 8, 16]), g.pick([8, 16, 32]), g.pick([10, 16, 20])
    y = g.op("Conv", g.x(1, c, h, h, h), g.weight(o, c, 3, 3, 3, scale=0.1), g.weight(o), kernel_shape=[3] * 3, pads=[1] * 6)
    return [g.op("MaxPool", g.act(y), kernel_shape=[2] * 3, strides=[2] * 3)]


def elements(g):
    b, n = g.pick([64, 257, 1024]), g.pick([33, 197, 768, 1000, 4096])
    x = g.x(b, n)
    part = lambda start, step: g.op("Slice", x, g.ints(start), g.ints(n), g.ints(1), g.ints(step))
    kinds = {
        "wave": lambda: g.op("Add", g.op("Mul", g.op("Sin", x), g.op("Exp", g.op("Neg", g.op("Mul", x, x)))), g.op("Tanh", x)),
        "cumsum": lambda: g.op("CumSum", x, g.const(np.array(1, np.int64))),
        "turn": lambda: g.op("Add", g.op("Transpose", x, perm=[1, 0]), g.scalar(1)),
        "columns": lambda: g.op("LogSoftmax", x, axis=0),
        "halves": lambda: g.op("Concat", part(0, 2), part(1, 2), axis=1),
        "argmax": lambda: g.op("ArgMax", x, axis=1),
        "largest": lambda: g.op("TopK", x, g.ints(5), n_out=2, axis=-1)[0],
        "select": lambda: g.op("Where", g.op("Greater", x, g.scalar(0)), x, g.op("Sqrt", g.op("Abs", x))),
        "regroup": lambda: g.op("ReduceMax", g.op("Reshape", x, g.ints(n, b)), axes=[1], keepdims=0),
        "norm": lambda: g.norm(x, n, 1e-5),
    }
    return [kinds[g.pick(sorted(kinds))]()]


def pooling(g):
    c, h, k = g.channels(), 2 * g.side(), g.pick([2, 3, 5, 7])
    x, how = g.x(1, c, h, h), g.pick(["MaxPool", "AveragePool", "GlobalAveragePool", "instance", "reflect"])
    if how == "instance":
        return [g.op("Relu", g.op("InstanceNormalization", x, g.weight(c), g.weight(c)))]
    if how == "reflect":
        return [g.op("Pad", x, g.ints(0, 0, 3, 3, 0, 0, 3, 3), mode="reflect")]
    if how == "GlobalAveragePool":
        return [g.op(how, x)]
    return [g.op(how, x, kernel_shape=[k, k], strides=[g.pick([1, 2, k])] * 2, pads=[k // 2] * 4)]


def recurrence(g):
    b, t, i, h = g.pick([1, 4]), g.pick([8, 20]), g.pick([32, 64]), g.pick([64, 128])
    kind, both = g.pick(["LSTM", "GRU"]), g.pick([False, False, True])
    n, d = 4 if kind == "LSTM" else 3, 1 + both
    w, r, bias = (g.weight(d, *s, scale=0.1) for s in [(n * h, i), (n * h, h), (2 * n * h,)])
    attrs = dict(hidden_size=h, direction="bidirectional" if both else "forward")
    if kind == "GRU":
        attrs["linear_before_reset"] = 1
    x = g.op("Transpose", g.x(b, t, i), perm=[1, 0, 2])
    return [g.op(kind, x, w, r, bias, n_out=2, **attrs)[0]]


def embedding(g):
    v, d, t = g.pick([1000, 30000]), g.pick([64, 300, 768]), g.pick([1, 16, 128, 512])
    ids = g.input("x", g.rng.integers(0, v, (1, t)))
    return [g.norm(g.op("Gather", g.weight(v, d), ids, axis=0), d, 1e-5)]


def experts(g):
    b, d, e = g.pick([4, 32]), g.pick([64, 128]), g.pick([4, 8])
    x = g.x(b, d)
    p = g.op("Softmax", g.linear(x, d, e), axis=-1)
    return [g.op("Einsum", p, x, g.weight(e, d, d, scale=d**-0.5), equation="be,bd,edf->bf")]


KINDS = [convnext, inverted, convolution, groups, upsampling, unet, perceptron, attention, signal, volume, elements, pooling]
KINDS += [recurrence, embedding, experts]


def block(i, seed):
    """The graph of number `i`, its outputs, and its name."""
    kind = KINDS[i % len(KINDS)]
    g = Block(f"{i:03d}_{kind.__name__}", seed)
    return g, kind(g)
