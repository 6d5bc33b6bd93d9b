"""One operator or a short chain at sizes far from those of pictures: long sequences and signals, many parts, loops of many turns, few or many
rows, whole tables. What costs a little for each part, step or row shows here. Sizes are drawn evenly on a logarithmic scale."""
import math

import numpy as np
from onnx import TensorProto, helper

from blocks import Block


class Scale(Block):
    """A block whose sizes are drawn on a logarithmic scale."""

    def size(self, least, most):
        return int(round(math.exp(self.rng.uniform(math.log(least), math.log(most)))))


def recurrence(g):
    kind, both, h = g.pick(["LSTM", "GRU", "RNN"]), g.pick([False, False, True]), g.pick([32, 64, 128, 256, 512, g.size(16, 400)])
    n, d, b, i = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind], 1 + both, g.pick([1, 1, 2, 3, 4, g.size(5, 32)]), g.size(8, 256)
    # a step of more work has fewer turns, so that each run takes about as long
    t = g.size(30, max(31, min(800, 10_000_000_000 // (20 * n * h * h * b * d))))
    w, bias = (g.weight(d, *s, scale=0.1) for s in [(n * h, i), (2 * n * h,)])
    # a state must not grow from step to step: a plain RNN would then be chaotic, and no two sums give the same numbers
    r = g.weight(d, n * h, h, scale=min(0.1, 0.9 / math.sqrt(h)))
    attrs = dict(hidden_size=h, direction="bidirectional" if both else "forward")
    if kind == "GRU":
        attrs["linear_before_reset"] = 1
    return [g.op(kind, g.x(t, b, i), w, r, bias, n_out=2, **attrs)[0]]


def parts(g):
    n, each, rows = g.size(3, 120), g.size(1, 64), g.size(1, 300)
    x = g.op("Split", g.x(rows, n * each), g.ints(*[each] * n), n_out=n, axis=1)
    acts = ["Relu", "Sigmoid", "Tanh"]
    how = g.pick(["turned", "each", "apart"])
    y = x[::-1] if how == "turned" else [g.op(acts[i % 3], v) for i, v in enumerate(x)]
    if how == "apart":
        y = [g.op("MatMul", v, g.weight(each, 8)) for v in y]
    return [g.op("Concat", *y, axis=g.pick([0, 1]))]


def loop(g):
    """A Loop of ONNX: a state that each turn changes, and what each turn gives."""
    turns, n = g.size(4, 200), g.size(16, 4096)
    body = helper.make_graph(
        [
            helper.make_node("Mul", ["state", "slope"], ["scaled"]),
            helper.make_node("Tanh", ["scaled"], ["squashed"]),
            helper.make_node("Add", ["squashed", "x"], ["next"]),
            helper.make_node("Identity", ["next"], ["out"]),
            helper.make_node("Identity", ["go"], ["on"]),
        ],
        "turn",
        [helper.make_tensor_value_info("i", TensorProto.INT64, []), helper.make_tensor_value_info("go", TensorProto.BOOL, []),
         helper.make_tensor_value_info("state", TensorProto.FLOAT, [n])],
        [helper.make_tensor_value_info("on", TensorProto.BOOL, []), helper.make_tensor_value_info("next", TensorProto.FLOAT, [n]),
         helper.make_tensor_value_info("out", TensorProto.FLOAT, [n])],
    )
    g.nodes.append(helper.make_node("Identity", [g.scalar(0.5)], ["slope"]))
    g.x(n)
    count, yes = g.const(np.array(turns, np.int64)), g.const(np.array(True))
    last, all_of = g.op("Loop", count, yes, "x", n_out=2, body=body)
    return [last, all_of]


def lines(g):
    """Something along the last axis of few long or many short rows."""
    n = g.size(4, 200_000)
    rows = g.size(1, max(2, 2_000_000 // n))
    x, k = g.x(rows, n), min(n, g.size(1, 100))
    axis = g.const(np.array(1, np.int64))
    kinds = {
        "softmax": lambda: g.op("Softmax", x, axis=-1),
        "norm": lambda: g.norm(x, n, 1e-5),
        "sum": lambda: g.op("ReduceSum", x, g.ints(1), keepdims=0),
        "largest": lambda: g.op("TopK", x, g.ints(k), n_out=2, axis=-1)[0],
        "argmax": lambda: g.op("ArgMax", x, axis=1),
        "cumsum": lambda: g.op("CumSum", x, axis),
        "length": lambda: g.op("ReduceL2", x, axes=[1]),
        "turned": lambda: g.op("Transpose", g.op("Add", x, g.scalar(1)), perm=[1, 0]),
        "columns": lambda: g.op("ReduceMean", x, axes=[0]),
        "cube": lambda: g.op("Mul", g.op("Mul", x, x), x),
    }
    return [kinds[g.pick(sorted(kinds))]()]


def audio(g):
    """Convolutions over signals, as in front ends and vocoders."""
    t, how = g.size(2_000, 200_000), g.pick(["frames", "dilated", "up", "depthwise", "down"])
    if how == "frames":
        k = g.pick([256, 400, 512])
        return [g.op("Conv", g.x(1, 1, t), g.weight(g.pick([130, 258, 514]), 1, k, scale=0.1), kernel_shape=[k], strides=[g.pick([64, 160, k // 2])])]
    c = g.size(8, 256)
    t = max(100, t // c)
    if how == "up":
        s = g.pick([2, 4, 8])
        w = g.weight(c, max(4, c // 2), 2 * s, scale=0.1)
        return [g.op("ConvTranspose", g.x(1, c, t), w, kernel_shape=[2 * s], strides=[s], pads=[s // 2] * 2)]
    k, n = g.pick([3, 5, 7, 11]), c if how == "depthwise" else 1
    d, s = (g.pick([1, 3, 5, 9]), 1) if how == "dilated" else (1, 2 if how == "down" else 1)
    w = g.weight(c, c // n, k, scale=math.sqrt(1 / (c // n * k)))
    return [g.op("Conv", g.x(1, c, t), w, g.weight(c), kernel_shape=[k], strides=[s], dilations=[d], pads=[k // 2 * d] * 2, group=n)]


def table(g):
    """Rows picked out of tables and put into them."""
    rows, d, n = g.size(100, 100_000), g.size(1, 256), g.size(1, 5_000)
    ids = g.const(g.rng.integers(0, rows, (n,)))
    how = g.pick(["rows", "elements", "nd", "scatter", "add", "columns"])
    if how == "rows":
        return [g.op("Gather", g.x(rows, d), ids, axis=0)]
    if how == "columns":
        return [g.op("Gather", g.x(d, rows), ids, axis=1)]
    if how == "elements":
        return [g.op("GatherElements", g.x(rows, d), g.const(g.rng.integers(0, rows, (n, d))), axis=0)]
    at = g.const(g.rng.permutation(rows)[: min(n, rows)].reshape(-1, 1))
    if how == "nd":
        return [g.op("GatherND", g.x(rows, d), at)]
    updates = g.weight(min(n, rows), d)
    return [g.op("ScatterND", g.x(rows, d), at, updates, **(dict(reduction="add") if how == "add" else {}))]


def products(g):
    """Matrix products of shapes far from square."""
    m, k, n = g.size(1, 4_000), g.size(1, 4_000), g.size(1, 4_000)
    while m * k * n > 400_000_000:
        m, k, n = m // 2 + 1, k // 2 + 1, n // 2 + 1
    how = g.pick(["weights", "batch", "turned", "outer"])
    if how == "weights":
        return [g.op("MatMul", g.x(m, k), g.weight(k, n, scale=1 / math.sqrt(k)))]
    if how == "turned":
        return [g.op("Gemm", g.x(k, m), g.weight(n, k, scale=1 / math.sqrt(k)), transA=1, transB=1)]
    if how == "outer":
        return [g.op("Mul", g.x(m, 1), g.weight(1, n))]
    b, s = g.size(8, 2_000), g.size(2, 24)
    return [g.op("MatMul", g.x(b, s, s), g.input("y", g.normal(b, s, g.size(2, 24))))]


def moved(g):
    """Large tensors whose elements change places."""
    a, b, c, d = (g.size(2, 64) for _ in range(4))
    x, how = g.x(a, b, c, d), g.pick(["turned", "padded", "tiled", "flipped", "blocks", "stepped"])
    if how == "turned":
        return [g.op("Transpose", x, perm=[int(p) for p in g.rng.permutation(4)])]
    if how == "padded":
        return [g.op("Pad", x, g.ints(0, 1, 2, 3, 1, 0, 3, 2), mode=g.pick(["constant", "edge"]))]
    if how == "tiled":
        return [g.op("Tile", x, g.ints(1, 2, 1, 3))]
    if how == "flipped":
        return [g.op("Slice", x, g.ints(-1, -1), g.ints(-9999, -9999), g.ints(2, 3), g.ints(-1, -1))]
    if how == "blocks":
        return [g.op("Reshape", g.op("Transpose", x, perm=[0, 2, 1, 3]), g.ints(a * c, b * d))]
    return [g.op("Slice", x, g.ints(0, 1), g.ints(9999, 9999), g.ints(2, 3), g.ints(2, 2))]


def volumes(g):
    """Means and largest values over several axes, and maps of a few channels that are large."""
    n, c, h = g.pick([1, 2, 16]), g.size(1, 128), g.size(8, 256)
    if n * c * h * h > 4_000_000:
        n, c = 1, max(1, 4_000_000 // (h * h))
    x = g.x(n, c, h, h)
    kinds = {
        "mean": lambda: g.op("ReduceMean", x, axes=[2, 3]),
        "channels": lambda: g.op("ReduceMax", x, axes=[1]),
        "batch": lambda: g.op("ReduceMean", x, axes=[0, 2, 3]),
        "rows": lambda: g.op("ReduceSum", x, g.ints(2)),
        "resize": lambda: g.op("Resize", x, "", "", g.ints(n, c, g.size(8, 200), g.size(8, 200)), mode=g.pick(["linear", "nearest", "cubic"])),
        "instance": lambda: g.op("InstanceNormalization", x, g.weight(c), g.weight(c)),
        "pool": lambda: g.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
        "softmax": lambda: g.op("Softmax", x, axis=1),
    }
    return [kinds[g.pick(sorted(kinds))]()]


KINDS = [recurrence, parts, loop, lines, audio, table, products, moved, volumes, lines]


def scale(i, seed):
    """The graph of number `i`, its outputs, and its name."""
    kind = KINDS[i % len(KINDS)]
    g = Scale(f"{i:03d}_{kind.__name__}", seed)
    g.rng = np.random.default_rng([seed, i])
    return g, kind(g)
