// Writes ONNX files of a few nodes: what libraries that only take models need for the single-operation cases.

const bytesOf = (text) => new TextEncoder().encode(text);

function varint(value) {
  const out = [];
  let rest = BigInt.asUintN(64, BigInt(value));
  do {
    out.push(Number(rest & 127n) | (rest > 127n ? 128 : 0));
    rest >>= 7n;
  } while (rest > 0n);
  return out;
}

/** One protobuf field: a number as a varint or (`fixed`) a float, anything else as bytes. */
function field(id, value, fixed = false) {
  if (fixed) return [...varint((id << 3) | 5), ...new Uint8Array(new Float32Array([value]).buffer)];
  if (typeof value === "number" || typeof value === "bigint") return [...varint(id << 3), ...varint(value)];
  const body = typeof value === "string" ? bytesOf(value) : value;
  const head = [...varint((id << 3) | 2), ...varint(body.length)];
  const out = new Uint8Array(head.length + body.length);
  out.set(head);
  out.set(body, head.length);
  return out;
}

/** Parts of a message, joined. */
function message(...parts) {
  const size = parts.reduce((sum, part) => sum + part.length, 0);
  const out = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

const ELEMENT = { float32: 1, int8: 3, int32: 6, int64: 7 };

function tensor(name, { data, shape, dtype, file, place = {} }) {
  if (file !== undefined) {
    const entries = Object.entries({ location: file, ...place }).map(([key, value]) => field(13, message(field(1, key), field(2, `${value}`))));
    return message(...shape.map((n) => field(1, n)), field(2, ELEMENT[dtype]), field(8, name), ...entries, field(14, 1));
  }
  const raw = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  return message(...shape.map((n) => field(1, n)), field(2, ELEMENT[dtype]), field(8, name), field(9, raw));
}

function valueInfo(name, shape, dtype) {
  const dims = message(...shape.map((n) => field(1, message(field(1, n)))));
  return message(field(1, name), field(2, message(field(1, message(field(1, ELEMENT[dtype]), field(2, dims))))));
}

function attribute(name, value) {
  if (Array.isArray(value)) return message(field(1, name), ...value.map((n) => field(8, n)), field(20, 7));
  if (Number.isInteger(value)) return message(field(1, name), field(3, value), field(20, 2));
  return message(field(1, name), field(2, value, true), field(20, 1));
}

/**
 * A model. `inputs` and `weights` are {name: {data, shape, dtype}}, weights of other files {file, place, shape, dtype}, `nodes` are
 * [op, inputs, output or outputs, attributes], the last node's output is the model's, of `shape`. A number that is no integer becomes a float attribute.
 */
export function model(inputs, weights, nodes, shape) {
  const graph = message(
    ...nodes.map(([op, from, to, attributes = {}]) =>
      field(1, message(...from.map((name) => field(1, name)), ...[to].flat().map((name) => field(2, name)), field(4, op),
        ...Object.entries(attributes).map(([name, value]) => field(5, attribute(name, value)))))),
    field(2, "case"),
    ...Object.entries(weights).map(([name, t]) => field(5, tensor(name, t))),
    ...Object.entries(inputs).map(([name, t]) => field(11, valueInfo(name, t.shape, t.dtype))),
    field(12, valueInfo(nodes.at(-1)[2], shape, "float32")),
  );
  return message(field(1, 9), field(7, graph), field(8, message(field(1, ""), field(2, 18))));
}
