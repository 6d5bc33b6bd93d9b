"""Whole networks at the sizes of their papers with random weights, as ONNX graphs such as exporters make them (batch norms are folded into
the convolutions before them). The layers, widths and depths are those of the papers named at each; what a layer computes exactly matters less
here than its shapes and its order of operators."""
import math

import numpy as np

from blocks import Block


def silu(g, x):
    return g.op("Mul", x, g.op("Sigmoid", x))


def head(g, x, c):
    """Classifier over the average of a map."""
    x = g.op("Flatten", g.op("GlobalAveragePool", x), axis=1)
    return [g.op("Gemm", x, g.weight(1000, c, scale=0.03), g.weight(1000, scale=0.1), transB=1)]


def tokens(g, x, c):
    """A map as a sequence: [1, h * w, c]."""
    return g.op("Transpose", g.op("Reshape", x, g.ints(1, c, -1)), perm=[0, 2, 1])


def channels_last(g, x):
    return g.op("Transpose", x, perm=[0, 2, 3, 1])


def channels_first(g, x):
    return g.op("Transpose", x, perm=[0, 3, 1, 2])


def map_norm(g, x, c):
    """Layer norm over the channels of a map."""
    return channels_first(g, g.norm(channels_last(g, x), c, 1e-6))


def heads(g, x, t, n, d):
    """Self-attention of n heads over t tokens of width n * d, with one projection for q, k and v."""
    w = n * d
    y = g.op("Reshape", g.linear(x, w, 3 * w), g.ints(-1, t, 3, n, d))
    y = g.op("Transpose", y, perm=[2, 0, 3, 1, 4])
    q, k, v = (g.op("Gather", y, g.const(np.array(i, np.int64)), axis=0) for i in range(3))
    return q, g.op("Transpose", k, perm=[0, 1, 3, 2]), v


def merged(g, a, t, w):
    return g.linear(g.op("Reshape", g.op("Transpose", a, perm=[0, 2, 1, 3]), g.ints(-1, t, w)), w, w)


def transformer(g, x, t, n, d, hidden, act):
    """A block with norms before attention and perceptron."""
    w = n * d
    x = g.op("Add", x, merged(g, g.attend(*heads(g, g.norm(x, w, 1e-6), t, n, d), d), t, w))
    return g.op("Add", x, g.linear(act(g.linear(g.norm(x, w, 1e-6), w, hidden)), hidden, w))


def convnext_tiny(g):
    """Liu et al. 2022, table 9."""
    x = map_norm(g, g.conv2(g.x(1, 3, 224, 224), 3, 96, 4, 4, pad=0), 96)
    for i, (c, n) in enumerate([(96, 3), (192, 3), (384, 9), (768, 3)]):
        if i:
            x = g.conv2(map_norm(g, x, c // 2), c // 2, c, 2, 2, pad=0)
        for _ in range(n):
            y = g.norm(channels_last(g, g.conv2(x, c, c, 7, groups=c)), c, 1e-6)
            y = g.linear(g.gelu(g.linear(y, c, 4 * c)), 4 * c, c)
            x = g.op("Add", x, channels_first(g, g.op("Mul", y, g.weight(c, scale=0.1))))
    return head(g, x, 768)


def edgenext_xx_small(g):
    """Maaz et al. 2022, table 1: split depthwise convolutions and attention over channels."""
    x = map_norm(g, g.conv2(g.x(1, 3, 256, 256), 3, 24, 4, 4, pad=0), 24)
    for i, (c, n, k, parts) in enumerate([(24, 2, 3, 1), (48, 2, 5, 2), (88, 6, 7, 3), (168, 2, 9, 4)]):
        if i:
            before = [24, 48, 88][i - 1]
            x = g.conv2(map_norm(g, x, before), before, c, 2, 2, pad=0)
        for j in range(n):
            if i and j == n - 1:
                w = -(-c // parts)
                sizes = [w] * (parts - 1) + [c - w * (parts - 1)]
                split = g.op("Split", x, g.ints(*sizes), n_out=parts, axis=1) if parts > 1 else [x]
                done, last = [], None
                for s, size in zip(split[:-1], sizes):
                    last = g.conv2(s if last is None else g.op("Add", s, last), size, size, 3, groups=size)
                    done.append(last)
                y = g.op("Concat", *done, split[-1], axis=1)
                t = (64 >> i) ** 2
                q = tokens(g, y, c)
                z = g.norm(q, c, 1e-6)
                d = c // 4
                qkv = g.op("Transpose", g.op("Reshape", g.linear(z, c, 3 * c), g.ints(1, t, 3, 4, d)), perm=[2, 0, 3, 4, 1])
                a, b, v = (g.op("Gather", qkv, g.const(np.array(m, np.int64)), axis=0) for m in range(3))
                unit = lambda u: g.op("Div", u, g.op("Sqrt", g.op("ReduceSum", g.op("Mul", u, u), g.ints(-1), keepdims=1)))
                s = g.op("MatMul", unit(a), g.op("Transpose", unit(b), perm=[0, 1, 3, 2]))
                o = g.op("MatMul", g.op("Softmax", s, axis=-1), v)
                o = g.op("Reshape", g.op("Transpose", o, perm=[0, 3, 1, 2]), g.ints(1, t, c))
                q = g.op("Add", q, g.linear(o, c, c))
                y = g.op("Reshape", g.op("Transpose", q, perm=[0, 2, 1]), g.ints(1, c, 64 >> i, 64 >> i))
            else:
                y = g.conv2(x, c, c, k, groups=c)
            y = g.norm(channels_last(g, y), c, 1e-6)
            y = g.linear(g.gelu(g.linear(y, c, 4 * c)), 4 * c, c)
            x = g.op("Add", x, channels_first(g, g.op("Mul", y, g.weight(c, scale=0.1))))
    return head(g, x, 168)


def fastvit_t8(g):
    """Vasu et al. 2023, reparameterised: depthwise mixers, large depthwise kernels before 1x1 perceptrons."""
    x = g.gelu(g.conv2(g.x(1, 3, 256, 256), 3, 48, 3, 2))
    x = g.gelu(g.conv2(x, 48, 48, 3, 2, groups=48))
    x, ci = g.gelu(g.conv2(x, 48, 48, 1)), 48
    for c, n, last in [(48, 2, False), (96, 2, False), (192, 4, False), (384, 2, False)]:
        if c != ci:
            x = g.gelu(g.conv2(g.conv2(x, ci, c, 7, 2, groups=ci), c, c, 1))
            ci = c
        for _ in range(n):
            x = g.conv2(x, c, c, 3, groups=c)
            y = g.conv2(x, c, c, 7, groups=c)
            y = g.conv2(g.gelu(g.conv2(y, c, 3 * c, 1)), 3 * c, c, 1)
            x = g.op("Add", x, g.op("Mul", y, g.weight(c, 1, 1, scale=0.1)))
    x = g.conv2(x, 384, 768, 3, groups=384)
    z = g.op("Relu", g.conv2(g.op("GlobalAveragePool", x), 768, 48, 1))
    return head(g, g.gelu(g.op("Mul", x, g.op("Sigmoid", g.conv2(z, 48, 768, 1)))), 768)


def mobilevit_s(g):
    """Mehta and Rastegari 2022: inverted residuals and transformers over unfolded patches."""
    act = lambda v: silu(g, v)

    def residual(x, ci, co, s):
        m = 4 * ci
        y = g.conv2(act(g.conv2(act(g.conv2(x, ci, m, 1)), m, m, 3, s, m)), m, co, 1)
        return g.op("Add", x, y) if s == 1 and ci == co else y

    def mixed(x, c, d, n, side):
        y = g.conv2(act(g.conv2(x, c, c, 3)), c, d, 1)
        # patches of 2x2: each of the four pixels is a sequence of its own
        half = side // 2
        y = g.op("Reshape", y, g.ints(d * half, 2, half, 2))
        y = g.op("Reshape", g.op("Transpose", y, perm=[0, 2, 1, 3]), g.ints(1, d, half * half, 4))
        y = g.op("Reshape", g.op("Transpose", y, perm=[0, 3, 2, 1]), g.ints(4, half * half, d))
        for _ in range(n):
            y = transformer(g, y, half * half, 4, d // 4, 2 * d, act)
        y = g.op("Reshape", g.norm(y, d, 1e-5), g.ints(1, 4, half * half, d))
        y = g.op("Reshape", g.op("Transpose", y, perm=[0, 3, 2, 1]), g.ints(d * half, half, 2, 2))
        y = g.op("Reshape", g.op("Transpose", y, perm=[0, 2, 1, 3]), g.ints(1, d, side, side))
        y = g.op("Concat", x, act(g.conv2(y, d, c, 1)), axis=1)
        return act(g.conv2(y, 2 * c, c, 3))

    x = act(g.conv2(g.x(1, 3, 256, 256), 3, 16, 3, 2))
    x = residual(x, 16, 32, 1)
    x = residual(residual(residual(x, 32, 64, 2), 64, 64, 1), 64, 64, 1)
    x = mixed(residual(x, 64, 96, 2), 96, 144, 2, 32)
    x = mixed(residual(x, 96, 128, 2), 128, 192, 4, 16)
    x = mixed(residual(x, 128, 160, 2), 160, 240, 3, 8)
    return head(g, act(g.conv2(x, 160, 640, 1)), 640)


def mixer_b16(g):
    """Tolstikhin et al. 2021, B/16."""
    x = tokens(g, g.conv2(g.x(1, 3, 224, 224), 3, 768, 16, 16, pad=0), 768)
    for _ in range(12):
        y = g.op("Transpose", g.norm(x, 768, 1e-6), perm=[0, 2, 1])
        y = g.linear(g.gelu(g.linear(y, 196, 384)), 384, 196)
        x = g.op("Add", x, g.op("Transpose", y, perm=[0, 2, 1]))
        x = g.op("Add", x, g.linear(g.gelu(g.linear(g.norm(x, 768, 1e-6), 768, 3072)), 3072, 768))
    x = g.op("ReduceMean", g.norm(x, 768, 1e-6), axes=[1], keepdims=0)
    return [g.linear(x, 768, 1000)]


def swin_tiny(g):
    """Liu et al. 2021: attention in windows of 7x7, shifted in every second block, with a bias for each pair of places."""
    x = channels_last(g, g.conv2(g.x(1, 3, 224, 224), 3, 96, 4, 4, pad=0))
    x, c, side = g.norm(x, 96, 1e-5), 96, 56

    def roll(v, by):
        for axis in (1, 2):
            end = g.ints(2**31)
            first = g.op("Slice", v, g.ints(by), end, g.ints(axis))
            v = g.op("Concat", first, g.op("Slice", v, g.ints(0), g.ints(by), g.ints(axis)), axis=axis)
        return v

    def block(x, c, side, shift):
        n, w = c // 32, side // 7
        y = g.norm(x, c, 1e-5)
        y = roll(y, 3) if shift else y
        y = g.op("Transpose", g.op("Reshape", y, g.ints(1, w, 7, w, 7, c)), perm=[0, 1, 3, 2, 4, 5])
        q, k, v = heads(g, g.op("Reshape", y, g.ints(w * w, 49, c)), 49, n, 32)
        s = g.op("MatMul", g.op("Mul", q, g.scalar(1 / math.sqrt(32))), k)
        s = g.op("Add", s, g.weight(1, n, 49, 49, scale=0.5))
        if shift:
            hidden = np.where(g.rng.random((w * w, 1, 49, 49)) < 0.2, np.float32(-100), np.float32(0))
            s = g.op("Add", s, g.const(hidden.astype(np.float32)))
        y = merged(g, g.op("MatMul", g.op("Softmax", s, axis=-1), v), 49, c)
        y = g.op("Transpose", g.op("Reshape", y, g.ints(1, w, w, 7, 7, c)), perm=[0, 1, 3, 2, 4, 5])
        y = g.op("Reshape", y, g.ints(1, side, side, c))
        x = g.op("Add", x, roll(y, side - 3) if shift else y)
        return g.op("Add", x, g.linear(g.gelu(g.linear(g.norm(x, c, 1e-5), c, 4 * c)), 4 * c, c))

    for i, n in enumerate([2, 2, 6, 2]):
        if i:
            parts = []
            for col in (0, 1):
                for row in (0, 1):
                    rows = g.op("Slice", x, g.ints(row), g.ints(2**31), g.ints(1), g.ints(2))
                    parts.append(g.op("Slice", rows, g.ints(col), g.ints(2**31), g.ints(2), g.ints(2)))
            x = g.norm(g.op("Concat", *parts, axis=3), 4 * c, 1e-5)
            x = g.op("MatMul", x, g.weight(4 * c, 2 * c, scale=1 / math.sqrt(4 * c)))
            c, side = 2 * c, side // 2
        for j in range(n):
            x = block(x, c, side, shift=side > 7 and j % 2 == 1)
    x = g.op("ReduceMean", g.norm(x, c, 1e-5), axes=[1, 2], keepdims=0)
    return [g.linear(x, c, 1000)]


def regnety_400mf(g):
    """Radosavovic et al. 2020, with squeeze and excitation."""
    x, ci = g.op("Relu", g.conv2(g.x(1, 3, 224, 224), 3, 32, 3, 2)), 32
    for c, n in [(48, 1), (104, 3), (208, 6), (440, 6)]:
        for i in range(n):
            s = 2 if i == 0 else 1
            y = g.op("Relu", g.conv2(x, ci, c, 1))
            y = g.op("Relu", g.conv2(y, c, c, 3, s, c // 8))
            r = ci // 4
            z = g.conv2(g.op("Relu", g.conv2(g.op("GlobalAveragePool", y), c, r, 1)), r, c, 1)
            y = g.conv2(g.op("Mul", y, g.op("Sigmoid", z)), c, c, 1)
            x = g.op("Relu", g.op("Add", y, x if i else g.conv2(x, ci, c, 1, s)))
            ci = c
    return head(g, x, 440)


def densenet121(g):
    """Huang et al. 2017: every layer reads all before it, with a norm and an activation of its own."""
    scaled = lambda v, c: g.op("Relu", g.op("Add", g.op("Mul", v, g.weight(c, 1, 1)), g.weight(c, 1, 1, scale=0.1)))
    x = g.op("Relu", g.conv2(g.x(1, 3, 224, 224), 3, 64, 7, 2))
    x, c = g.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4), 64
    for i, n in enumerate([6, 12, 24, 16]):
        for _ in range(n):
            y = g.op("Relu", g.conv2(scaled(x, c), c, 128, 1))
            x, c = g.op("Concat", x, g.conv2(y, 128, 32, 3), axis=1), c + 32
        if i < 3:
            x, c = g.conv2(scaled(x, c), c, c // 2, 1), c // 2
            x = g.op("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
    return head(g, scaled(x, c), c)


def efficientnet_b0(g):
    """Tan and Le 2019."""
    act = lambda v: silu(g, v)
    x, ci = act(g.conv2(g.x(1, 3, 224, 224), 3, 32, 3, 2)), 32
    stages = [(1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)]
    for e, c, n, s, k in stages:
        for i in range(n):
            stride, m = s if i == 0 else 1, ci * e
            y = x if e == 1 else act(g.conv2(x, ci, m, 1))
            y, r = act(g.conv2(y, m, m, k, stride, m)), max(1, ci // 4)
            z = g.conv2(act(g.conv2(g.op("GlobalAveragePool", y), m, r, 1)), r, m, 1)
            y = g.conv2(g.op("Mul", y, g.op("Sigmoid", z)), m, c, 1)
            x = g.op("Add", x, y) if stride == 1 and ci == c else y
            ci = c
    return head(g, act(g.conv2(x, 320, 1280, 1)), 1280)


def shufflenet_v2(g):
    """Ma et al. 2018, width 1: halves, depthwise convolutions, channels shuffled."""
    x = g.op("Relu", g.conv2(g.x(1, 3, 224, 224), 3, 24, 3, 2))
    x, ci, side = g.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4), 24, 56
    for c, n in [(116, 4), (232, 8), (464, 4)]:
        h = c // 2
        for i in range(n):
            if i == 0:
                side //= 2
                a = g.op("Relu", g.conv2(g.conv2(x, ci, ci, 3, 2, ci), ci, h, 1))
                b, m, s = x, ci, 2
            else:
                a, b = g.op("Split", x, g.ints(h, h), n_out=2, axis=1)
                m, s = h, 1
            b = g.conv2(g.op("Relu", g.conv2(b, m, h, 1)), h, h, 3, s, h)
            x = g.op("Concat", a, g.op("Relu", g.conv2(b, h, h, 1)), axis=1)
            x = g.op("Transpose", g.op("Reshape", x, g.ints(1, 2, h, side, side)), perm=[0, 2, 1, 3, 4])
            x = g.op("Reshape", x, g.ints(1, c, side, side))
        ci = c
    return head(g, g.op("Relu", g.conv2(x, 464, 1024, 1)), 1024)


def vit_tiny(g):
    """Touvron et al. 2021, DeiT tiny."""
    x = tokens(g, g.conv2(g.x(1, 3, 224, 224), 3, 192, 16, 16, pad=0), 192)
    x = g.op("Add", g.op("Concat", g.weight(1, 1, 192), x, axis=1), g.weight(1, 197, 192, scale=0.1))
    for _ in range(12):
        x = transformer(g, x, 197, 3, 64, 768, g.gelu)
    x = g.op("Gather", g.norm(x, 192, 1e-6), g.const(np.array(0, np.int64)), axis=1)
    return [g.linear(x, 192, 1000)]


def unet(g):
    """Ronneberger et al. 2015 with padding, half its width, on 128x128 points."""
    pair = lambda v, a, b: g.op("Relu", g.conv2(g.op("Relu", g.conv2(v, a, b, 3)), b, b, 3))
    x, down, ci = g.x(1, 3, 128, 128), [], 3
    for c in [32, 64, 128, 256]:
        x = pair(x, ci, c)
        down.append(x)
        x, ci = g.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), c
    x, ci = pair(x, 256, 512), 512
    for c in [256, 128, 64, 32]:
        w = g.weight(ci, c, 2, 2, scale=math.sqrt(2 / ci))
        x = g.op("ConvTranspose", x, w, g.weight(c, scale=0.1), kernel_shape=[2, 2], strides=[2, 2])
        x, ci = pair(g.op("Concat", down.pop(), x, axis=1), 2 * c, c), c
    return [g.conv2(x, 32, 2, 1)]


NETWORKS = [convnext_tiny, edgenext_xx_small, fastvit_t8, mobilevit_s, mixer_b16, swin_tiny, regnety_400mf, densenet121]
NETWORKS += [efficientnet_b0, shufflenet_v2, vit_tiny, unet]


def networks():
    """Each network's graph and outputs."""
    for build in NETWORKS:
        g = Block(build.__name__, 0)
        yield g, build(g)
