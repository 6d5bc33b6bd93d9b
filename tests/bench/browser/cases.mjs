// The cases: inputs from a fixed seed, what must come out (computed here in f64), a model file for libraries that want one.
// A case is {name, op, params, consts, inputs: {name: {data, shape, dtype}}, weights, onnx, ref, flops, bytes, rtol}.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "../../../scripts/lib/run.mjs";
import { readNpz } from "../../lib/npz.mjs";
import { model } from "./onnx.mjs";

function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state >>> 8) / (1 << 24);
  };
}

function uniform(next, shape, scale = 1, offset = 0) {
  const data = Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, () => (next() * 2 - 1) * scale + offset);
  return { data, shape, dtype: "float32" };
}

const scalar = (value) => ({ data: Float32Array.of(value), shape: [], dtype: "float32" });

/** The transpose of a [m, n]. */
const transpose = (a, m, n) => Float64Array.from({ length: m * n }, (_, i) => a[(i % m) * n + Math.floor(i / m)]);

/** a [m, k] times b [k, n], in f64. */
function product(a, b, m, k, n) {
  const out = new Float64Array(m * n);
  for (let i = 0; i < m; i += 1) {
    for (let l = 0; l < k; l += 1) {
      const x = a[i * k + l];
      for (let j = 0; j < n; j += 1) out[i * n + j] += x * b[l * n + j];
    }
  }
  return out;
}

function softmaxRows(a, width) {
  const out = Float64Array.from(a);
  for (let at = 0; at < out.length; at += width) {
    const row = out.subarray(at, at + width);
    const top = row.reduce((x, y) => Math.max(x, y), -Infinity);
    let sum = 0;
    for (let i = 0; i < width; i += 1) sum += row[i] = Math.exp(row[i] - top);
    for (let i = 0; i < width; i += 1) row[i] /= sum;
  }
  return out;
}

function matmul(m, k, n, constant = false) {
  return (next) => {
    const [a, b] = [uniform(next, [m, k]), uniform(next, [k, n])];
    return { op: "matmul", inputs: { a, b }, consts: constant ? ["b"] : [], ref: product(a.data, b.data, m, k, n), shape: [m, n],
      nodes: [["MatMul", ["a", "b"], "y"]], flops: 2 * m * k * n, bytes: 4 * (m * k + k * n + m * n) };
  };
}

/** Products of matrices whose bytes onnxruntime's `quantize_dynamic` would make: weights once, the other factor in each run. */
function quantised(rows, n, times) {
  return (next) => {
    const x = uniform(next, [rows, n]);
    const [nodes, extra] = [[], {}];
    let ref = x.data;
    let from = "x";
    for (let i = 0; i < times; i += 1) {
      const w = { data: Int8Array.from({ length: n * n }, () => Math.round((next() * 2 - 1) * 127)), shape: [n, n], dtype: "int8" };
      const scale = 1 / (127 * Math.sqrt(n));
      Object.assign(extra, { [`w${i}`]: w, [`z${i}`]: { data: Int8Array.of(0), shape: [], dtype: "int8" }, [`s${i}`]: scalar(scale) });
      ref = product(ref, Float64Array.from(w.data, (v) => v * scale), rows, n, n);
      const to = i === times - 1 ? "y" : `y${i}`;
      nodes.push(["DynamicQuantizeLinear", [from], [`q${i}`, `qs${i}`, `qz${i}`]], ["Mul", [`qs${i}`, `s${i}`], `t${i}`],
        ["MatMulInteger", [`q${i}`, `w${i}`, `qz${i}`, `z${i}`], `a${i}`], ["Cast", [`a${i}`], `f${i}`, { to: 1 }], ["Mul", [`f${i}`, `t${i}`], to]);
      from = to;
    }
    // codes of 8 bits are off by half of one
    return { op: "onnx", params: { output: "y" }, inputs: { x }, extra, nodes, ref, shape: [rows, n], rtol: 3e-2,
      flops: 2 * times * rows * n * n, bytes: times * n * n };
  };
}

function conv(ci, co, size, k, groups = 1) {
  return (next) => {
    const pad = k >> 1;
    const per = ci / groups;
    const [x, w] = [uniform(next, [1, ci, size, size]), uniform(next, [co, per, k, k], 1 / Math.sqrt(per * k * k))];
    const ref = new Float64Array(co * size * size);
    for (let o = 0; o < co; o += 1) {
      const first = Math.floor((o * groups) / co) * per;
      for (let c = 0; c < per; c += 1) {
        for (let t = 0; t < k * k; t += 1) {
          const [dy, dx, f] = [Math.floor(t / k) - pad, (t % k) - pad, w.data[(o * per + c) * k * k + t]];
          for (let y = Math.max(0, -dy); y < Math.min(size, size - dy); y += 1) {
            const [from, to] = [((first + c) * size + y + dy) * size + dx, (o * size + y) * size];
            for (let i = Math.max(0, -dx); i < Math.min(size, size - dx); i += 1) ref[to + i] += f * x.data[from + i];
          }
        }
      }
    }
    const attributes = { pads: [pad, pad, pad, pad], strides: [1, 1], kernel_shape: [k, k], group: groups };
    return { op: "conv2d", params: { pad, stride: 1, groups, k }, inputs: { x, w }, consts: ["w"], ref, shape: [1, co, size, size],
      nodes: [["Conv", ["x", "w"], "y", attributes]], flops: 2 * ref.length * per * k * k,
      bytes: 4 * (x.data.length + w.data.length + ref.length) };
  };
}

function softmax(next) {
  const x = uniform(next, [1024, 1024], 4);
  return { op: "softmax", inputs: { x }, ref: softmaxRows(x.data, 1024), shape: [1024, 1024],
    nodes: [["Softmax", ["x"], "y", { axis: -1 }]], flops: 5 << 20, bytes: 8 << 20 };
}

function layernorm(next) {
  const [n, eps] = [1024, 1e-5];
  const [x, g, b] = [uniform(next, [n, n], 4), uniform(next, [n], 1, 1), uniform(next, [n])];
  const ref = new Float64Array(n * n);
  for (let r = 0; r < n; r += 1) {
    const row = x.data.subarray(r * n, (r + 1) * n);
    const mean = row.reduce((s, v) => s + v, 0) / n;
    const scale = 1 / Math.sqrt(row.reduce((s, v) => s + (v - mean) ** 2, 0) / n + eps);
    for (let i = 0; i < n; i += 1) ref[r * n + i] = (row[i] - mean) * scale * g.data[i] + b.data[i];
  }
  return { op: "layernorm", params: { eps }, inputs: { x, g, b }, consts: ["g", "b"], ref, shape: [n, n],
    nodes: [["LayerNormalization", ["x", "g", "b"], "y", { axis: -1, epsilon: eps }]], flops: 8 << 20, bytes: 8 << 20 };
}

/** relu(2 x + 1) sigmoid(x) - exp(-x^2) / 2 */
function eltwise(next) {
  const x = uniform(next, [1024, 1024], 3);
  const ref = Float64Array.from(x.data, (v) => Math.max(v * 2 + 1, 0) / (1 + Math.exp(-v)) - 0.5 * Math.exp(-v * v));
  const nodes = [["Mul", ["x", "two"], "t0"], ["Add", ["t0", "one"], "t1"], ["Relu", ["t1"], "t2"], ["Sigmoid", ["x"], "t3"],
    ["Mul", ["t2", "t3"], "t4"], ["Mul", ["x", "x"], "t5"], ["Neg", ["t5"], "t6"], ["Exp", ["t6"], "t7"],
    ["Mul", ["t7", "half"], "t8"], ["Sub", ["t4", "t8"], "y"]];
  return { op: "eltwise", inputs: { x }, extra: { two: scalar(2), one: scalar(1), half: scalar(0.5) }, ref, shape: [1024, 1024],
    nodes, flops: 10 << 20, bytes: 8 << 20 };
}

function reduce(next) {
  const x = uniform(next, [2048, 2048]);
  const ref = Float64Array.from({ length: 2048 }, (_, r) => x.data.subarray(r * 2048, (r + 1) * 2048).reduce((s, v) => s + v, 0));
  const axes = { data: BigInt64Array.of(1n), shape: [1], dtype: "int64" };
  return { op: "reduce", inputs: { x }, extra: { axes }, ref, shape: [2048], nodes: [["ReduceSum", ["x", "axes"], "y", { keepdims: 0 }]],
    flops: 1 << 22, bytes: 1 << 24, rtol: 1e-3 };
}

function attention(next) {
  const [heads, length, width] = [8, 256, 64];
  const shape = [1, heads, length, width];
  const [q, k, v] = [uniform(next, shape), uniform(next, shape), uniform(next, shape)];
  const ref = new Float64Array(heads * length * width);
  for (let h = 0; h < heads; h += 1) {
    const part = (t) => t.data.subarray(h * length * width, (h + 1) * length * width);
    const scores = product(part(q), transpose(part(k), length, width), length, width, length).map((s) => s / 8);
    ref.set(product(softmaxRows(scores, length), part(v), length, length, width), h * length * width);
  }
  const nodes = [["Transpose", ["k"], "kt", { perm: [0, 1, 3, 2] }], ["MatMul", ["q", "kt"], "s0"], ["Mul", ["s0", "scale"], "s1"],
    ["Softmax", ["s1"], "p", { axis: -1 }], ["MatMul", ["p", "v"], "y"]];
  return { op: "attention", params: { scale: 1 / 8 }, inputs: { q, k, v }, extra: { scale: scalar(1 / 8) }, ref, shape, nodes,
    flops: 4 * heads * length * length * width, bytes: 16 * heads * length * width };
}

/** One step of gradient descent of a network 784-256-10 on a batch of 128; what must come out is the second weight. */
function mlpTrain(next) {
  const [batch, wide, hidden, classes, lr] = [128, 784, 256, 10, 0.1];
  const [x, w1, w2] = [uniform(next, [batch, wide]), uniform(next, [wide, hidden], 0.05), uniform(next, [hidden, classes], 0.1)];
  const t = { data: new Float32Array(batch * classes), shape: [batch, classes], dtype: "float32" };
  for (let i = 0; i < batch; i += 1) t.data[i * classes + Math.floor(next() * classes)] = 1;
  const h = product(x.data, w1.data, batch, wide, hidden).map((v) => Math.max(v, 0));
  const p = softmaxRows(product(h, w2.data, batch, hidden, classes), classes);
  const d = product(transpose(h, batch, hidden), p.map((v, i) => (v - t.data[i]) / batch), hidden, batch, classes);
  const ref = Float64Array.from(w2.data, (v, i) => v - lr * d[i]);
  return { op: "mlp_train", params: { lr }, inputs: { x, w1, w2, t }, consts: ["w1", "w2"], ref, shape: [hidden, classes],
    flops: 4 * batch * wide * hidden + 6 * batch * hidden * classes, bytes: 0 };
}

const BUILDERS = {
  tiny: (next) => {
    const [a, b] = [uniform(next, [4, 4]), uniform(next, [4, 4])];
    const ref = Float64Array.from(a.data, (v, i) => v + b.data[i]);
    return { op: "add", inputs: { a, b }, ref, shape: [4, 4], nodes: [["Add", ["a", "b"], "y"]], flops: 16, bytes: 192 };
  },
  matmul256: matmul(256, 256, 256),
  matmul512: matmul(512, 512, 512),
  matmul1024: matmul(1024, 1024, 1024),
  gemv: matmul(1, 2048, 4096, true),
  conv3x3: conv(64, 64, 56, 3),
  conv1x1: conv(128, 128, 28, 1),
  dwconv3x3: conv(128, 128, 56, 3, 128),
  qmatmul: quantised(256, 512, 1),
  qgemv: quantised(1, 2048, 4),
  softmax,
  layernorm,
  eltwise,
  reduce,
  attention,
  mlp_train: mlpTrain,
};

/** Models of the repository, or fetched by its script (`node scripts/fetch-models.mjs yolo`), with their inputs and outputs. */
const fetched = (name) => join(root, ".cache/models", name, "model.onnx");
const MODELS = ["magika", "ppocr_cls", "style_predict_qdq", ...["yolov8n_nudenet"].filter((name) => existsSync(fetched(name)))];

export const names = [...Object.keys(BUILDERS).filter((name) => name !== "tiny"), ...MODELS];

async function modelCase(name) {
  const file = (which) => readFileSync(join(root, "tests/models", name, which));
  const dtypes = { "<f4": "float32", "<i4": "int32", "<i8": "int64" };
  const arrays = (map) => [...(map.entries?.() ?? Object.entries(map))];
  const inputs = Object.fromEntries(arrays(await readNpz(file("input.npz"))).map(([key, t]) =>
    [key, { data: t.data, shape: t.shape, dtype: dtypes[t.dtype] }]));
  const own = join(root, "tests/models", name, "model.onnx");
  const onnx = readFileSync(existsSync(own) ? own : fetched(name));
  const [output, want] = arrays(await readNpz(file("expected.npz")))[0];
  // codes of 8 bits round differently in each library
  const rtol = name.endsWith("_qdq") ? 3e-2 : 2e-3;
  return { name, op: "onnx", params: { output }, consts: [], inputs, onnx, ref: want.data, flops: 0, bytes: 0, rtol };
}

/** A case by name; computed once, then kept in `.cache`. */
export async function make(name) {
  if (MODELS.includes(name)) return modelCase(name);
  const made = BUILDERS[name](random(name.length * 7919 + 1));
  const { inputs, consts = [], extra = {}, nodes, shape } = made;
  const pick = (wanted) => Object.fromEntries(Object.entries(inputs).filter(([key]) => consts.includes(key) === wanted));
  const onnx = nodes && model(pick(false), { ...pick(true), ...extra }, nodes, shape);
  return { name, params: {}, consts, rtol: 1e-4, ...made, onnx, ref: Float32Array.from(made.ref) };
}

/** Writes a case's files for the page into a folder: raw arrays, the model and a description. */
export async function write(name, folder) {
  const to = join(folder, name);
  if (existsSync(join(to, "case.json"))) return;
  mkdirSync(to, { recursive: true });
  const made = await make(name);
  const tensors = Object.entries(made.inputs).map(([key, t], at) => {
    writeFileSync(join(to, `${at}.bin`), new Uint8Array(t.data.buffer, t.data.byteOffset, t.data.byteLength));
    return { name: key, shape: t.shape, dtype: t.dtype, file: `${at}.bin` };
  });
  const ref = Float32Array.from(made.ref);
  writeFileSync(join(to, "ref.bin"), new Uint8Array(ref.buffer));
  if (made.onnx) writeFileSync(join(to, "model.onnx"), made.onnx);
  const { op, params, consts, flops, bytes, rtol } = made;
  const text = { name, op, params, const: consts, flops, bytes, rtol, inputs: tensors, onnx: made.onnx !== undefined };
  writeFileSync(join(to, "case.json"), JSON.stringify(text));
}
