// Data sets with random access to examples: arrays in memory, tensors on a device, and selections and mappings of
// these.
import type { Device } from "../device.js";
import { type DType, type Nested, type TypedArray, decode, dtypeOf, encode, flatten, isTypedArray, sizeOf } from "../dtype.js";
import { ValueError } from "../errors.js";
import { plainApi } from "../module.js";
import { Tensor } from "../tensor.js";

/** An array on the host, in row-major order. */
export interface HostArray {
  dtype: DType;
  shape: readonly number[];
  bytes: Uint8Array;
}

/** A data set: gives batches of examples by index. It may load or decode them on demand. */
export interface Dataset<Batch> {
  readonly length: number;
  batch(rows: readonly number[]): Batch | Promise<Batch>;
}

/** One field of an example: a number, nested arrays, a typed array or a tensor. */
export type Row = Nested | TypedArray | Tensor;

/**
 * One field of all examples: an array or tensor whose first axis indexes examples, or a list of values of one shape.
 */
export type Rows = HostArray | Tensor | TypedArray | readonly Row[];

/** Fields of all examples by name; all have the same length. */
export type Columns = Readonly<Record<string, Rows>>;

/** The base of data sets, with selection, shuffling and mapping. */
export abstract class Examples<Batch> implements Dataset<Batch> {
  abstract readonly length: number;
  abstract batch(rows: readonly number[]): Batch | Promise<Batch>;

  /** The examples with these indices, in this order. */
  select(rows: readonly number[]): Examples<Batch> {
    const outOfRange = rows.find((row) => !(Number.isInteger(row) && row >= 0 && row < this.length));
    if (outOfRange !== undefined) throw new ValueError("E_VALUE", `there is no example ${outOfRange} of ${this.length}`);
    const list = [...rows];
    return new FunctionDataset(list.length, (subset) => this.batch(subset.map((at) => list[at] as number)));
  }

  /** The first `count` examples. */
  take(count: number): Examples<Batch> {
    return this.select(Array.from({ length: Math.min(count, this.length) }, (_, at) => at));
  }

  /** All examples except the first `count`. */
  skip(count: number): Examples<Batch> {
    return this.select(Array.from({ length: Math.max(0, this.length - count) }, (_, at) => at + count));
  }

  /** The examples in a random order by the seed. A loader's `shuffle` uses a new order in each epoch. */
  shuffle(seed = 0): Examples<Batch> {
    return this.select([...plainApi().shuffled(this.length, seed, 0)]);
  }

  /** A data set with a function applied to each batch. */
  map<Other>(change: (batch: Batch) => Other | Promise<Other>): Examples<Other> {
    return new FunctionDataset(this.length, async (rows) => change(await this.batch(rows)));
  }
}

class FunctionDataset<Batch> extends Examples<Batch> {
  constructor(
    readonly length: number,
    readonly loadRows: (rows: readonly number[]) => Batch | Promise<Batch>,
  ) {
    super();
  }

  batch(rows: readonly number[]): Batch | Promise<Batch> {
    return this.loadRows(rows);
  }
}

/** Arrays in memory whose first axes index examples. A batch has one tensor per array. */
export class Arrays extends Examples<Record<string, Tensor>> {
  readonly length: number;
  readonly arrays: Readonly<Record<string, HostArray>>;
  readonly #tensors: Readonly<Record<string, Tensor>>;
  readonly #device: Device | undefined;

  constructor(arrays: Columns, options: { device?: Device } = {}) {
    super();
    const columns = Object.entries(arrays).map(([name, rows]) => [name, toColumn(rows, name)] as const);
    const counts = columns.map(([, { shape }]) => shape[0]);
    const [first] = counts;
    if (first === undefined || counts.some((n) => n !== first)) {
      throw new ValueError("E_VALUE", `a data set needs arrays of as many examples each, not of ${counts.join(", ")}`);
    }
    this.arrays = Object.fromEntries(columns.filter((each): each is readonly [string, HostArray] => !(each[1] instanceof Tensor)));
    this.#tensors = Object.fromEntries(columns.filter((each): each is readonly [string, Tensor] => each[1] instanceof Tensor));
    this.length = first;
    this.#device = options.device;
  }

  batch(rows: readonly number[]): Record<string, Tensor> {
    const outOfRange = rows.find((row) => !(Number.isInteger(row) && row >= 0 && row < this.length));
    if (outOfRange !== undefined) throw new ValueError("E_VALUE", `there is no example ${outOfRange} of ${this.length}`);
    const tensor = ({ dtype, shape, bytes }: HostArray): Tensor => {
      const size = bytes.length / Math.max(this.length, 1);
      const gathered = new Uint8Array(size * rows.length);
      rows.forEach((row, at) => gathered.set(bytes.subarray(row * size, (row + 1) * size), at * size));
      const options = { dtype, ...(this.#device && { device: this.#device }) };
      return new Tensor(decode(gathered, dtype), [rows.length, ...shape.slice(1)], options);
    };
    const out = Object.fromEntries(Object.entries(this.arrays).map(([name, a]) => [name, tensor(a)]));
    for (const [name, t] of Object.entries(this.#tensors)) {
      // the index stays on the host until the batch is used
      const index = new Tensor(Int32Array.from(rows), [rows.length], t.device ? { device: t.device } : {});
      out[name] = t.indexSelect(0, index);
    }
    return out;
  }
}

/** Converts one field of all examples to a host array; tensors stay where they are. */
function toColumn(rows: Rows, name: string): HostArray | Tensor {
  if (rows instanceof Tensor) {
    if (rows.rank > 0) return rows;
    throw new ValueError("E_VALUE", `${name}: a scalar has no examples`);
  }
  if (isTypedArray(rows)) {
    const dtype = dtypeOf(rows);
    return { dtype, shape: [rows.length], bytes: encode(rows, dtype) };
  }
  if (Array.isArray(rows)) return stackRows(rows as readonly Row[], name);
  const { dtype, shape, bytes } = (rows ?? {}) as Partial<HostArray>;
  if (dtype === undefined || !Array.isArray(shape) || !(bytes instanceof Uint8Array) || shape.length === 0) {
    const what = "a tensor, a typed array, nested arrays or { dtype, shape, bytes }";
    throw new ValueError("E_VALUE", `${name}: examples come in ${what}`);
  }
  return rows as HostArray;
}

/** Stacks a list of values of one shape. */
function stackRows(rows: readonly Row[], name: string): HostArray | Tensor {
  const [first] = rows;
  if (first instanceof Tensor) {
    const shape = first.shape.join();
    const mismatch = rows.find((each) => !(each instanceof Tensor) || each.shape.join() !== shape || each.dtype !== first.dtype);
    if (mismatch === undefined) return Tensor.stack(rows as readonly Tensor[]);
    throw new ValueError("E_VALUE", `${name}: ${String(mismatch)} is no example beside ${first}`);
  }
  if (isTypedArray(first)) {
    const dtype = dtypeOf(first);
    const size = first.length;
    const parts = rows.map((each) => {
      if (!isTypedArray(each) || each.length !== size || dtypeOf(each) !== dtype) {
        throw new ValueError("E_VALUE", `${name}: examples differ in length or dtype`);
      }
      return encode(each, dtype);
    });
    const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
    parts.reduce((at, part) => (bytes.set(part, at), at + part.length), 0);
    return { dtype, shape: [rows.length, size], bytes };
  }
  const { values, shape } = flatten(rows as Nested);
  const kinds = new Set(values.map((v) => typeof v));
  const dtype: DType = kinds.size === 1 && kinds.has("boolean") ? "bool" : kinds.size === 1 && kinds.has("bigint") ? "i64" : "f32";
  return { dtype, shape: shape.length > 0 && sizeOf(shape) > 0 ? shape : [rows.length], bytes: encode(values, dtype) };
}

const isRow = (value: unknown): boolean =>
  typeof value !== "object" || value === null || Array.isArray(value) || isTypedArray(value) || value instanceof Tensor;

/**
 * Makes a data set from: arrays by name (a batch has one tensor per name), a list of examples with the same names, a
 * single array or tensor whose first axis indexes examples, a list of values of one shape, an iterable of examples or
 * values (a generator, a `Set`), which is read at once, or an existing data set.
 * Plain numbers become f32; typed arrays and tensors keep their dtype. Fails with `E_VALUE` or `E_SHAPE` if lengths or
 * shapes are inconsistent.
 */
export function examples<Batch>(from: Dataset<Batch>): Examples<Batch>;
export function examples(from: Iterable<Readonly<Record<string, Row>>>): Examples<Record<string, Tensor>>;
export function examples(from: Rows | Iterable<Row>): Examples<Tensor>;
export function examples(from: Columns): Examples<Record<string, Tensor>>;
export function examples(from: unknown): Examples<unknown> {
  if (from instanceof Examples) return from;
  if (typeof from !== "object" || from === null) {
    throw new ValueError("E_VALUE", "a data set comes of arrays, tensors, lists of examples, or { length, batch }");
  }
  if (typeof (from as Dataset<unknown>).batch === "function") {
    const set = from as Dataset<unknown>;
    return new FunctionDataset(set.length, (rows) => set.batch(rows));
  }
  const isHost = typeof (from as HostArray).dtype === "string" && (from as HostArray).bytes instanceof Uint8Array;
  if (from instanceof Tensor || isTypedArray(from) || isHost || (Array.isArray(from) && (from.length === 0 || isRow(from[0])))) {
    return new Arrays({ all: from as Rows }).map(({ all }) => all);
  }
  if (Symbol.asyncIterator in from) {
    const hint = "new StreamLoader(source) makes batches of them as they come";
    throw new ValueError("E_VALUE", "a data set knows its examples: these come asynchronously", { hint });
  }
  if (!Array.isArray(from) && Symbol.iterator in from) return examples(Array.from(from as Iterable<Readonly<Record<string, Row>>>));
  if (!Array.isArray(from)) return new Arrays(from as Columns);
  const names = Object.keys(from[0] as object);
  const invalidIdx = from.findIndex((each: unknown) => typeof each !== "object" || each === null || Object.keys(each).join() !== names.join());
  if (invalidIdx >= 0) throw new ValueError("E_VALUE", `example ${invalidIdx} has not the names ${names.join(", ")}`);
  return new Arrays(Object.fromEntries(names.map((name) => [name, (from as Record<string, Row>[]).map((each) => each[name] as Row)])));
}
