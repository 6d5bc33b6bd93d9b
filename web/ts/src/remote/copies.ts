// Copies values that the caller keeps, in small portions, so that large copies do not block the page.
import type { TypedArray } from "../dtype.js";
import { room } from "../progress.js";
import { Slices } from "../turns.js";

/** Bytes that are copied at a time. */
const PART_BYTES = 1 << 21;

type Numbers = TypedArray | Uint8ClampedArray;

/** Copies a typed array. */
export async function copied<T extends Numbers>(values: T, signal?: AbortSignal): Promise<T> {
  if (values.byteLength <= PART_BYTES) return values.slice() as T;
  const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
  const out = room(bytes.length);
  const slices = new Slices();
  for (let at = 0; at < bytes.length; at += PART_BYTES) {
    out.set(bytes.subarray(at, at + PART_BYTES), at);
    await slices.breathe(signal);
  }
  return new (values.constructor as new (buffer: ArrayBuffer) => T)(out.buffer);
}

/** Copies bytes in parts, which the receiver concatenates. */
export async function inParts(bytes: Uint8Array, signal?: AbortSignal): Promise<Uint8Array[]> {
  const slices = new Slices();
  const parts: Uint8Array[] = [];
  for (let at = 0; at < bytes.length || at === 0; at += PART_BYTES) {
    parts.push(bytes.slice(at, at + PART_BYTES));
    await slices.breathe(signal);
  }
  return parts;
}
