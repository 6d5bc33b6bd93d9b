// A minimal scanner for the protobuf fields of ONNX files, just enough to detect tensors with external data. Source:
// protobuf.dev/programming-guides/encoding.
import { FormatError } from "./errors.js";

/** Field numbers of `ModelProto`, `GraphProto` and `TensorProto`. */
export const GRAPH = 7;
export const INITIALIZER = 5;
export const DATA_LOCATION = 14;
/** Wire types: varint, 64 bits, 32 bits. */
const [VARINT, FIXED64, FIXED32] = [0, 1, 5];
export const LENGTH_DELIMITED = 2;

export interface Field {
  id: number;
  wireType: number;
  /** Offsets of the field's start, payload and end. `value` is the number of a varint field and 0 for all others. */
  start: number;
  payload: number;
  end: number;
  value: number;
}

/**
 * Decodes the varint at an offset, and gives the offset after it. Values above 2^53 lose precision, which is harmless
 * as they are only skipped.
 */
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
    const [tag, payload] = varint(bytes, at, end);
    const field = { id: Math.floor(tag / 8), wireType: tag & 7, start: at, payload, end: payload, value: 0 };
    if (field.wireType === VARINT) [field.value, field.end] = varint(bytes, payload, end);
    else if (field.wireType === LENGTH_DELIMITED) {
      const [length, start] = varint(bytes, payload, end);
      [field.payload, field.end] = [start, start + length];
    } else if (field.wireType === FIXED64 || field.wireType === FIXED32) field.end = payload + (field.wireType === FIXED64 ? 8 : 4);
    else throw new FormatError("E_FORMAT", `this is no ONNX model: wire type ${field.wireType} at byte ${at}`);
    if (field.end > end) throw new FormatError("E_FORMAT", `this is no ONNX model: a field at byte ${at} is longer than what is around it`);
    yield field;
    at = field.end;
  }
}

/** Whether any tensor of the model's graph has external data; false for bytes that are no model. */
export function hasExternalData(bytes: Uint8Array): boolean {
  const childFields = function* (of: Field, id: number): Generator<Field> {
    for (const each of fields(bytes, of.payload, of.end)) if (each.id === id) yield each;
  };
  try {
    for (const graph of fields(bytes, 0, bytes.length)) {
      if (graph.id !== GRAPH) continue;
      for (const tensor of childFields(graph, INITIALIZER)) for (const { value } of childFields(tensor, DATA_LOCATION)) if (value === 1) return true;
    }
  } catch {
    // the reader of the model reports the error
  }
  return false;
}
