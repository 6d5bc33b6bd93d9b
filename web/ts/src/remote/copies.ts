// Copies values that the caller keeps, in small portions, so that large copies do not block the page.
import type { TypedArray } from "../dtype.js";
import { allocate } from "../progress.js";
import { TimeSlices } from "../event-loop.js";

/** Bytes that are copied at a time. */
const PORTION_BYTES = 1 << 21;

type Numbers = TypedArray | Uint8ClampedArray;

/** Copies a typed array. */
export async function copyArray<T extends Numbers>(values: T, signal?: AbortSignal): Promise<T> {
  if (values.byteLength <= PORTION_BYTES) return values.slice() as T;
  const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
  const out = allocate(bytes.length);
  const slices = new TimeSlices();
  for (let at = 0; at < bytes.length; at += PORTION_BYTES) {
    out.set(bytes.subarray(at, at + PORTION_BYTES), at);
    await slices.yieldIfDue(signal);
  }
  return new (values.constructor as new (buffer: ArrayBuffer) => T)(out.buffer);
}

/** Copies bytes in parts, which the receiver concatenates. */
export async function copyInParts(bytes: Uint8Array, signal?: AbortSignal): Promise<Uint8Array[]> {
  const slices = new TimeSlices();
  const parts: Uint8Array[] = [];
  for (let at = 0; at < bytes.length || at === 0; at += PORTION_BYTES) {
    parts.push(bytes.slice(at, at + PORTION_BYTES));
    await slices.yieldIfDue(signal);
  }
  return parts;
}
