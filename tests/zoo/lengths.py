"""Models whose inputs have any length, and what onnxruntime makes of fifty random shapes: samples that tests/it/lengths.rs compares with.

usage: python lengths.py FOLDER [bert] [gpt2]      models to measure with `cargo run --release --example lengths`
       python lengths.py --fixtures                tests/models/*/lengths.npz

Needs onnx, onnxruntime and numpy. Weights are random, of a fixed seed.
"""

import os
import sys

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
SAMPLES = 8


class Net:
    """Nodes and weights by turns."""

    def __init__(self, seed):
        self.nodes, self.weights, self.rng = [], [], np.random.default_rng(seed)

    def op(self, kind, *inputs, **attrs):
        out = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [out], name=out, **attrs))
        return out

    def const(self, value):
        name = f"w_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def weight(self, *shape):
        scale = 1 / np.sqrt(shape[0])
        return self.const((self.rng.standard_normal(shape) * scale).astype(np.float32))

    def linear(self, x, n, m):
        return self.op("Add", self.op("MatMul", x, self.weight(n, m)), self.const(np.zeros(m, np.float32)))

    def norm(self, x, n):
        scale, bias = self.const(np.ones(n, np.float32)), self.const(np.zeros(n, np.float32))
        return self.op("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-5)

    def gelu(self, x):
        half = self.op("Mul", x, self.const(np.float32(0.5)))
        e = self.op("Erf", self.op("Mul", x, self.const(np.float32(0.70710678))))
        return self.op("Mul", half, self.op("Add", e, self.const(np.float32(1))))

    def heads(self, x, heads, size):
        x = self.op("Reshape", x, self.const(np.array([0, 0, heads, size], np.int64)))
        return self.op("Transpose", x, perm=[0, 2, 1, 3])

    def dim(self, x, axis):
        return self.op("Gather", self.op("Shape", x), self.const(np.array([axis], np.int64)), axis=0)

    def attend(self, q, k, v, bias, size):
        scores = self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self.op("Mul", scores, self.const(np.float32(1 / np.sqrt(size))))
        return self.op("MatMul", self.op("Softmax", self.op("Add", scores, bias), axis=-1), v)

    def model(self, inputs, outputs):
        info = [helper.make_tensor_value_info(n, t, s) for n, t, s in inputs]
        outs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in outputs]
        for (name, _), x in zip(outputs, self.results):
            self.nodes.append(helper.make_node("Identity", [x], [name], name=f"out_{name}"))
        graph = helper.make_graph(self.nodes, "lengths", info, outs, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def bert(layers=2, hidden=128, heads=4, vocab=500, most=128):
    """Ids and a mask -> the last hidden state."""
    n = Net(1)
    size = hidden // heads
    places = n.op("Slice", n.weight(most, hidden), n.const(np.array([0], np.int64)), n.dim("input_ids", 1),
                  n.const(np.array([0], np.int64)))
    x = n.op("Add", n.op("Gather", n.weight(vocab, hidden), "input_ids", axis=0), places)
    x = n.norm(x, hidden)
    mask = n.op("Cast", "attention_mask", to=TensorProto.FLOAT)
    mask = n.op("Sub", n.const(np.float32(1)), n.op("Unsqueeze", mask, n.const(np.array([1, 2], np.int64))))
    bias = n.op("Mul", mask, n.const(np.float32(-1e4)))
    for _ in range(layers):
        q, k, v = (n.heads(n.linear(x, hidden, hidden), heads, size) for _ in range(3))
        y = n.op("Transpose", n.attend(q, k, v, bias, size), perm=[0, 2, 1, 3])
        y = n.op("Reshape", y, n.const(np.array([0, 0, hidden], np.int64)))
        x = n.norm(n.op("Add", x, n.linear(y, hidden, hidden)), hidden)
        y = n.linear(n.gelu(n.linear(x, hidden, 4 * hidden)), 4 * hidden, hidden)
        x = n.norm(n.op("Add", x, y), hidden)
    n.results = [x]
    ids = [(name, TensorProto.INT64, ["batch", "length"]) for name in ("input_ids", "attention_mask")]
    return n.model(ids, [("hidden", ["batch", "length", hidden])])


def gpt2(layers=12, hidden=256, heads=8, vocab=1000, most=1024):
    """Ids and caches of keys and values -> logits and the longer caches."""
    n = Net(2)
    size = hidden // heads
    zero = n.const(np.array([0], np.int64))
    past, new = n.dim("past_k0", 2), n.dim("input_ids", 1)
    total = n.op("Add", past, new)
    x = n.op("Gather", n.weight(vocab, hidden), "input_ids", axis=0)
    x = n.op("Add", x, n.op("Slice", n.weight(most, hidden), past, total, zero))
    scalar = lambda d: n.op("Squeeze", d, zero)
    one = n.const(np.int64(1))
    keys = n.op("Range", n.const(np.int64(0)), scalar(total), one)
    queries = n.op("Unsqueeze", n.op("Range", scalar(past), scalar(total), one), n.const(np.array([1], np.int64)))
    low = n.op("Where", n.op("Greater", keys, queries), n.const(np.float32(-1e4)), n.const(np.float32(0)))
    inputs, results = [("input_ids", TensorProto.INT64, ["batch", "new"])], []
    for i in range(layers):
        y = n.norm(x, hidden)
        q, k, v = (n.heads(n.linear(y, hidden, hidden), heads, size) for _ in range(3))
        k, v = n.op("Concat", f"past_k{i}", k, axis=2), n.op("Concat", f"past_v{i}", v, axis=2)
        results += [k, v]
        inputs += [(f"past_{c}{i}", TensorProto.FLOAT, ["batch", heads, "past", size]) for c in "kv"]
        y = n.op("Transpose", n.attend(q, k, v, low, size), perm=[0, 2, 1, 3])
        y = n.op("Reshape", y, n.const(np.array([0, 0, hidden], np.int64)))
        x = n.op("Add", x, n.linear(y, hidden, hidden))
        y = n.norm(x, hidden)
        x = n.op("Add", x, n.linear(n.gelu(n.linear(y, hidden, 4 * hidden)), 4 * hidden, hidden))
    n.results = [n.op("MatMul", n.norm(x, hidden), n.weight(hidden, vocab))] + results
    outs = [("logits", ["batch", "new", vocab])]
    for i in range(layers):
        outs += [(f"present_{c}{i}", ["batch", heads, "total", size]) for c in "kv"]
    return n.model(inputs, outs)


def ids(b, n, shift=0):
    return ((np.arange(b * n, dtype=np.int64) * 5 + 3 + shift) % 50).reshape(b, n)


def noise(seed, *shape):
    i = np.arange(int(np.prod(shape)), dtype=np.int64) * 7 + seed * 13
    return np.sin(i.astype(np.float32) * np.float32(0.37)).reshape(shape)


def encoder_inputs(b, n):
    """Of each text the end is padding."""
    i = np.arange(b * n)
    return {"input_ids": ids(b, n), "attention_mask": (i % n < n - i // n % n).astype(np.int64).reshape(b, n)}


def decoder_inputs(b, s, p):
    out = {"input_ids": ids(b, s, p), "attention_mask": np.ones((b, s + p), np.int64)}
    return out | {name: noise(i + 1, b, 2, p, 8) for i, name in enumerate(["past_k0", "past_v0", "past_k1", "past_v1"])}


def fixtures():
    rng = np.random.default_rng(19)
    for name, inputs, most in [("zoo_t5_encoder", encoder_inputs, (8, 64)), ("zoo_llama_past", decoder_inputs, (4, 8, 48))]:
        folder = os.path.join(HERE, "..", "models", name)
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = ort.InferenceSession(os.path.join(folder, "model.onnx"), options, ["CPUExecutionProvider"])
        shapes = np.stack([[rng.integers(2, m + 1) for m in most] for _ in range(50)]).astype(np.int64)
        # from the second shape it can be seen which lengths follow which
        while len(set(map(abs, shapes[1] - shapes[0])) | {0}) <= len(most):
            shapes[1] = [rng.integers(2, m + 1) for m in most]
        out = {o.name: [] for o in session.get_outputs()}
        for shape in shapes:
            got = session.run(None, inputs(*map(int, shape)))
            for o, x in zip(session.get_outputs(), got):
                at = np.arange(SAMPLES) * (x.size - 1) // (SAMPLES - 1)
                out[o.name].append(x.ravel()[at])
        arrays = {k: np.stack(v).astype(np.float32) for k, v in out.items()}
        np.savez(os.path.join(folder, "lengths.npz"), shapes=shapes, **arrays)


if __name__ == "__main__":
    if sys.argv[1:] == ["--fixtures"]:
        fixtures()
    else:
        os.makedirs(sys.argv[1], exist_ok=True)
        for name in sys.argv[2:] or ["bert", "gpt2"]:
            onnx.save({"bert": bert, "gpt2": gpt2}[name](), os.path.join(sys.argv[1], f"{name}.onnx"))
