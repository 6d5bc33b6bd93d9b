// Fields of ONNX files, without what is in them: enough to see whether a model's weights lie in other files. Source: protobuf.dev/programming-guides/encoding.
import { FormatError } from "./errors.js";

/** Fields of `ModelProto`, `GraphProto` and `TensorProto`. */
export const GRAPH = 7;
export const INITIALIZER = 5;
export const LOCATION = 14;
/** How a value is written. */
const [NUMBER, EIGHT, FOUR] = [0, 1, 5];
export const BYTES = 2;

export interface Field {
  id: number;
  kind: number;
  /** Where the field begins and ends, and its value: bytes without their length, or a small number. */
  begin: number;
  from: number;
  end: number;
  value: number;
}

/** The number at a place, and where the next thing is. Numbers of more than 53 bits only have to be passed. */
function varint(bytes: Uint8Array, at: number, end: number): [value: number, next: number] {
  let [value, scale] = [0, 1];
  for (let i = at; i < Math.min(end, at + 10); i += 1) {
    const byte = bytes[i] as number;
    value += (byte & 127) * scale;
    scale *= 128;
    if (byte < 128) return [value, i + 1];
  }
  throw new FormatError("E_FORMAT", `this is no ONNX model: a number ends nowhere at byte ${at}`);
}

/** The fields of a message. */
export function* fields(bytes: Uint8Array, begin: number, end: number): Generator<Field> {
  for (let at = begin; at < end; ) {
    const [tag, from] = varint(bytes, at, end);
    const field = { id: Math.floor(tag / 8), kind: tag & 7, begin: at, from, end: from, value: 0 };
    if (field.kind === NUMBER) [field.value, field.end] = varint(bytes, from, end);
    else if (field.kind === BYTES) {
      const [length, start] = varint(bytes, from, end);
      [field.from, field.end] = [start, start + length];
    } else if (field.kind === EIGHT || field.kind === FOUR) field.end = from + (field.kind === EIGHT ? 8 : 4);
    else throw new FormatError("E_FORMAT", `this is no ONNX model: wire type ${field.kind} at byte ${at}`);
    if (field.end > end) throw new FormatError("E_FORMAT", `this is no ONNX model: a field at byte ${at} is longer than what is around it`);
    yield field;
    at = field.end;
  }
}

/** Is a tensor of the model's graph in another file? What is no model is nobody's affair here. */
export function hasExternal(bytes: Uint8Array): boolean {
  const inner = function* (of: Field, id: number): Generator<Field> {
    for (const each of fields(bytes, of.from, of.end)) if (each.id === id) yield each;
  };
  try {
    for (const graph of fields(bytes, 0, bytes.length)) {
      if (graph.id !== GRAPH) continue;
      for (const tensor of inner(graph, INITIALIZER)) for (const { value } of inner(tensor, LOCATION)) if (value === 1) return true;
    }
  } catch {
    // its reader says what is wrong
  }
  return false;
}
