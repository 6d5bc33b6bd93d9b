// Writes ONNX models (onnx.proto): what the package's command makes of networks in other formats.

const TYPES = { float32: 1, int64: 7, float16: 10 };

function varint(value) {
  const bytes = [];
  let rest = BigInt.asUintN(64, BigInt(value));
  do {
    bytes.push(Number(rest & 127n) | (rest > 127n ? 128 : 0));
    rest >>= 7n;
  } while (rest > 0n);
  return Buffer.from(bytes);
}

const number = (field, value) => Buffer.concat([varint(field << 3), varint(value)]);

/** A field with a length: bytes, a text, or a message, which is given by its fields. */
function message(field, ...parts) {
  const body = Buffer.concat(parts.map((part) => (typeof part === "string" ? Buffer.from(part) : part)));
  return Buffer.concat([varint((field << 3) | 2), varint(body.length), body]);
}

/** Integers as the bytes of a tensor. */
export const int64s = (values) => new Uint8Array(BigInt64Array.from(values.map(BigInt)).buffer);

/** A constant: its name, type, dimensions and bytes. */
export const tensor = (name, type, dims, data) => message(5, ...dims.map((n) => number(1, n)), number(2, TYPES[type]), message(8, name), message(9, data));

/** The name and the dimensions of an input or output of f32; a dimension that changes is a name. */
export function valueInfo(name, dims) {
  const shape = message(2, ...dims.map((n) => message(1, typeof n === "string" ? message(2, n) : number(1, n))));
  return [message(1, name), message(2, message(1, number(1, TYPES.float32), shape))];
}

/** An attribute: an integer or a list of integers. */
function attribute(name, value) {
  const [INT, INTS] = [2, 7];
  const body = Array.isArray(value) ? [...value.map((n) => number(8, n)), number(20, INTS)] : [number(3, value), number(20, INT)];
  return message(5, message(1, name), ...body);
}

function node({ op, inputs, outputs, attributes }) {
  const list = Object.entries(attributes).map(([name, value]) => attribute(name, value));
  return message(1, ...inputs.map((name) => message(1, name)), ...outputs.map((name) => message(2, name)), message(4, op), ...list);
}

/** The bytes of a model. */
export function makeModel({ nodes, initializers, inputs, outputs }) {
  const values = [...inputs.map((each) => message(11, ...each)), ...outputs.map((each) => message(12, ...each))];
  const graph = message(7, ...nodes.map(node), message(2, "graph"), ...initializers, ...values);
  return Buffer.concat([number(1, 8), message(2, "gradloom"), graph, message(8, message(1, ""), number(2, 17))]);
}
