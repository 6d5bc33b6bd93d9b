// Element types: their names, their typed arrays, and conversions of f16 and bf16, for which JavaScript has no typed
// array everywhere.
import { DTypeError, ShapeError, ValueError } from "./errors.js";

/** In the order of the core's `DType::ALL`: the dtype argument of an op is the index in this list. */
const NAMES = ["bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64"] as const;

/** An element type. */
export type DType = (typeof NAMES)[number];

/** The typed arrays from which tensors are created and into which they are read. */
export type TypedArray =
  | Float32Array
  | Float64Array
  | Int8Array
  | Int16Array
  | Int32Array
  | Uint8Array
  | Uint8ClampedArray
  | Uint16Array
  | Uint32Array
  | BigInt64Array
  | BigUint64Array
  | HalfArray;

/** The host's `Float16Array`, if its type definitions have one. */
export type HalfArray = typeof globalThis extends { Float16Array: { prototype: infer T } } ? T : never;

/** The typed array that `data()` returns for each dtype: f16 and bf16 as f32, bool as bytes 0 and 1. */
export interface DataOf {
  bool: Uint8Array;
  i8: Int8Array;
  i16: Int16Array;
  i32: Int32Array;
  i64: BigInt64Array;
  u8: Uint8Array;
  u16: Uint16Array;
  u32: Uint32Array;
  u64: BigUint64Array;
  f16: Float32Array;
  bf16: Float32Array;
  f32: Float32Array;
  f64: Float64Array;
}

/** Numbers in nested arrays of any depth. */
export type Nested = number | bigint | boolean | readonly Nested[];

/** @internal The dtype of an index in the core's `DType::ALL`. */
export const dtypeAt = (index: number): DType => NAMES[index]!;

type Store = new (buffer: ArrayBuffer) => TypedArray;

const STORES: Record<DType, Store> = {
  bool: Uint8Array,
  i8: Int8Array,
  i16: Int16Array,
  i32: Int32Array,
  i64: BigInt64Array,
  u8: Uint8Array,
  u16: Uint16Array,
  u32: Uint32Array,
  u64: BigUint64Array,
  f16: Uint16Array,
  bf16: Uint16Array,
  f32: Float32Array,
  f64: Float64Array,
};

const SIZES: Record<DType, number> = {
  bool: 1, i8: 1, i16: 2, i32: 4, i64: 8, u8: 1, u16: 2, u32: 4, u64: 8, f16: 2, bf16: 2, f32: 4, f64: 8,
};

/** Bytes per element. */
export const bytesOf = (dtype: DType): number => SIZES[dtype];

/** The index by which the core identifies a dtype. */
export function dtypeIndex(dtype: DType): number {
  const at = NAMES.indexOf(dtype);
  if (at < 0) {
    // the names of PyTorch, numpy and typed arrays
    const short = String(dtype).toLowerCase().replace(/^(b|u)?(float|int)(?=\d)/, (_, more = "", kind) => more === "u" ? "u" : more + kind[0]);
    const hint = NAMES.includes(short as DType) ? `it is called ${short} here` : undefined;
    throw new DTypeError("E_DTYPE", `there is no dtype \`${String(dtype)}\`; there are ${NAMES.join(", ")}`, { ...(hint && { hint }) });
  }
  return at;
}

/** Whether this is a `Float16Array`, which not every host has. */
const isHalves = (array: unknown): boolean => Object.prototype.toString.call(array) === "[object Float16Array]";

/** The dtype whose elements a typed array holds. */
export function dtypeOf(array: TypedArray): DType {
  if (isHalves(array)) return "f16";
  if (array instanceof Float32Array) return "f32";
  if (array instanceof Float64Array) return "f64";
  if (array instanceof Int32Array) return "i32";
  if (array instanceof BigInt64Array) return "i64";
  if (array instanceof Uint8Array || array instanceof Uint8ClampedArray) return "u8";
  if (array instanceof Int8Array) return "i8";
  if (array instanceof Int16Array) return "i16";
  if (array instanceof Uint16Array) return "u16";
  if (array instanceof Uint32Array) return "u32";
  if (array instanceof BigUint64Array) return "u64";
  throw new DTypeError("E_DTYPE", `${Object.prototype.toString.call(array)} holds no dtype of ours`);
}

/** Whether this is a typed array from which a tensor can be created. */
export function isTypedArray(value: unknown): value is TypedArray {
  return ArrayBuffer.isView(value) && !(value instanceof DataView);
}

/** The number of elements of a shape; throws `ShapeError` if it is not a valid shape. */
export function sizeOf(shape: readonly number[]): number {
  for (const n of shape) {
    if (!Number.isSafeInteger(n) || n < 0 || n > 0xffffffff) {
      throw new ShapeError("E_SHAPE", `[${shape.join(", ")}] is not a shape: ${n} is not a whole number of elements`);
    }
  }
  return shape.reduce((product, n) => product * n, 1);
}

/** Encodes elements as little-endian bytes of a dtype. A typed array that already has that dtype is not copied. */
export function encode(values: TypedArray | readonly (number | bigint | boolean)[], dtype: DType): Uint8Array {
  dtypeIndex(dtype);
  const half = dtype === "f16" || dtype === "bf16";
  if (isTypedArray(values) && (!half || isHalves(values))) {
    const same = dtypeOf(values) === dtype || (dtype === "bool" && dtypeOf(values) === "u8");
    if (same && dtype !== "bool") return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
  }
  const out = new STORES[dtype](new ArrayBuffer(values.length * SIZES[dtype]));
  if (out instanceof BigInt64Array || out instanceof BigUint64Array) {
    for (let at = 0; at < values.length; at += 1) out[at] = whole(values[at] as number | bigint | boolean);
  } else if (half) {
    const put = dtype === "f16" ? toHalf : toBrain;
    for (let at = 0; at < values.length; at += 1) out[at] = put(Number(values[at]));
  } else if (dtype === "bool") {
    for (let at = 0; at < values.length; at += 1) out[at] = values[at] ? 1 : 0;
  } else {
    for (let at = 0; at < values.length; at += 1) out[at] = Number(values[at]);
  }
  return new Uint8Array(out.buffer, out.byteOffset, out.byteLength);
}

function whole(value: number | bigint | boolean): bigint {
  if (typeof value === "number" && !Number.isInteger(value)) {
    throw new ValueError("E_VALUE", `${value} is not a whole number`);
  }
  return BigInt(value);
}

/** Decodes little-endian bytes into the typed array of a dtype. */
export function decode<D extends DType>(bytes: Uint8Array, dtype: D): DataOf[D] {
  const own = bytes.byteOffset === 0 && bytes.byteLength === bytes.buffer.byteLength;
  const buffer = (own ? bytes.buffer : new Uint8Array(bytes).buffer) as ArrayBuffer;
  const raw = new STORES[dtype](buffer);
  if (dtype === "f16") return Float32Array.from(raw as Uint16Array, fromHalf) as DataOf[D];
  if (dtype === "bf16") return Float32Array.from(raw as Uint16Array, fromBrain) as DataOf[D];
  return raw as DataOf[D];
}

/** Converts nested arrays to a flat list and a shape. */
export function flatten(nested: Nested): { values: (number | bigint | boolean)[]; shape: number[] } {
  const shape: number[] = [];
  for (let level = nested; Array.isArray(level); level = level[0] as Nested) {
    shape.push(level.length);
    if (level.length === 0) break;
  }
  const values: (number | bigint | boolean)[] = [];
  const walk = (value: Nested, depth: number): void => {
    if (!Array.isArray(value)) {
      if (depth !== shape.length) throw new ShapeError("E_SHAPE", "the nested arrays are not all equally deep");
      const kind = typeof value;
      if (kind !== "number" && kind !== "bigint" && kind !== "boolean") {
        throw new ValueError("E_VALUE", `a tensor holds numbers, not ${value === null ? "null" : kind}`);
      }
      values.push(value as number | bigint | boolean);
      return;
    }
    if (value.length !== shape[depth]) throw new ShapeError("E_SHAPE", "the nested arrays are not all equally long");
    for (const each of value) walk(each as Nested, depth + 1);
  };
  walk(nested, 0);
  return { values, shape };
}

/** Converts a flat list and a shape to nested arrays, the inverse of `flatten`. */
export function nest(values: ArrayLike<number | bigint>, shape: readonly number[]): Nested {
  let at = 0;
  const build = (depth: number): Nested => {
    if (depth === shape.length) return values[at++] as number | bigint;
    return Array.from({ length: shape[depth] as number }, () => build(depth + 1));
  };
  return build(0);
}

const float = new Float32Array(1);
const bits = new Uint32Array(float.buffer);

function toBrain(value: number): number {
  float[0] = value;
  const b = bits[0] as number;
  if (Number.isNaN(value)) return 0x7fc0;
  return ((b + 0x7fff + ((b >>> 16) & 1)) >>> 16) & 0xffff;
}

function fromBrain(b: number): number {
  bits[0] = b << 16;
  return float[0] as number;
}

function fromHalf(h: number): number {
  const sign = h & 0x8000 ? -1 : 1;
  const exponent = (h >>> 10) & 31;
  const fraction = h & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? Number.NaN : sign * Number.POSITIVE_INFINITY;
  return sign * (1024 + fraction) * 2 ** (exponent - 25);
}

/** The bits of the nearest f16, ties to even. */
function toHalf(value: number): number {
  if (Number.isNaN(value)) return 0x7e00;
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0;
  const x = Math.abs(value);
  if (x >= 65520) return sign | 0x7c00;
  const exponent = Math.max(-14, Math.floor(Math.log2(x || 2 ** -30)));
  const scaled = x / 2 ** (exponent - 10);
  let n = Math.floor(scaled);
  const rest = scaled - n;
  if (rest > 0.5 || (rest === 0.5 && n & 1)) n += 1;
  // a carry out of the fraction runs into the exponent, as it should; below 1024 the number is subnormal
  return sign | (n < 1024 ? n : ((exponent + 14) << 10) + n);
}
