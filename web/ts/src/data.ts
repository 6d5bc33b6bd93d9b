// Data sets: files of images, and batches in a shuffled order, fetched ahead.
import type { Device } from "./device.js";
import type { DType } from "./dtype.js";
import { decode } from "./dtype.js";
import { ValueError, guard } from "./errors.js";
import { filesModule } from "./extras.js";
import { reading } from "./lazy.js";
import { plainApi } from "./module.js";
import { type FetchOptions, type FileSource, readSource } from "./progress.js";
import { Tensor } from "./tensor.js";

/** Elements on the host, row by row. */
export interface HostArray {
  dtype: DType;
  shape: readonly number[];
  bytes: Uint8Array;
}

/** Examples by number, some at once; it may fetch or decode them. */
export interface Dataset<Batch> {
  readonly length: number;
  batch(rows: readonly number[]): Batch | Promise<Batch>;
}

/** How a data loader puts examples into batches. */
export interface LoaderOptions {
  batchSize?: number;
  /** Shuffle by a seed, anew in each epoch: `true` is seed 0. */
  shuffle?: boolean | number;
  /** Leave a last batch out that is not full. */
  dropLast?: boolean;
  /** How many batches are under way while one is in use. */
  prefetch?: number;
}

type Parts = [dtype: DType, shape: number[], bytes: Uint8Array];
const array = ([dtype, shape, bytes]: Parts): HostArray => ({ dtype, shape, bytes });

/** The tensor of an IDX file, gzipped or not. */
export async function readIdx(from: FileSource, options: FetchOptions = {}): Promise<HostArray> {
  const [file, { idx }] = await Promise.all([readSource(from, options), filesModule()]);
  return reading("images", from, file, () => array(guard(() => idx(file) as Parts)));
}

/** MNIST, Fashion-MNIST or their kin: u8 images `[n, 1, rows, columns]` and labels `[n]`. */
export async function mnist(images: FileSource, labels: FileSource, options: FetchOptions = {}): Promise<Arrays> {
  const [x, y] = await Promise.all([readIdx(images, options), readIdx(labels, options)]);
  if (x.shape.length !== 3 || y.shape.length !== 1) {
    throw new ValueError("E_VALUE", `mnist: images [${x.shape.join(", ")}] and labels [${y.shape.join(", ")}]`);
  }
  const [n, ...rest] = x.shape as [number, ...number[]];
  return new Arrays({ x: { ...x, shape: [n, 1, ...rest] }, y });
}

/** CIFAR-10 or CIFAR-100 from one of its binary files: u8 images `[n, 3, 32, 32]` and labels `[n]`. */
export async function cifar(from: FileSource, classes: 10 | 100, options: FetchOptions = {}): Promise<Arrays> {
  const [file, module] = await Promise.all([readSource(from, options), filesModule()]);
  const [x, y] = await reading("images", from, file, () => guard(() => module.cifar(file, classes) as [Parts, Parts]));
  return new Arrays({ x: array(x), y: array(y) });
}

/** Arrays in memory whose first axes count the examples. A batch has one tensor for each. */
export class Arrays implements Dataset<Record<string, Tensor>> {
  readonly length: number;
  readonly arrays: Readonly<Record<string, HostArray>>;
  readonly #device: Device | undefined;

  constructor(arrays: Readonly<Record<string, HostArray>>, options: { device?: Device } = {}) {
    const counts = Object.values(arrays).map(({ shape }) => shape[0]);
    const [first] = counts;
    if (first === undefined || counts.some((n) => n !== first)) {
      throw new ValueError("E_VALUE", `a data set needs arrays of as many examples each, not of ${counts.join(", ")}`);
    }
    this.arrays = arrays;
    this.length = first;
    this.#device = options.device;
  }

  batch(rows: readonly number[]): Record<string, Tensor> {
    const missing = rows.find((row) => !(Number.isInteger(row) && row >= 0 && row < this.length));
    if (missing !== undefined) throw new ValueError("E_VALUE", `there is no example ${missing} of ${this.length}`);
    const tensor = ({ dtype, shape, bytes }: HostArray): Tensor => {
      const size = bytes.length / Math.max(this.length, 1);
      const picked = new Uint8Array(size * rows.length);
      rows.forEach((row, at) => picked.set(bytes.subarray(row * size, (row + 1) * size), at * size));
      const options = { dtype, ...(this.#device && { device: this.#device }) };
      return new Tensor(decode(picked, dtype), [rows.length, ...shape.slice(1)], options);
    };
    return Object.fromEntries(Object.entries(this.arrays).map(([name, a]) => [name, tensor(a)]));
  }
}

/** Batches of a data set: `for await (const batch of loader)` is an epoch. */
export class DataLoader<Batch> implements AsyncIterable<Batch> {
  readonly dataset: Dataset<Batch>;
  readonly #options: Required<LoaderOptions>;
  #epoch = 0;

  constructor(dataset: Dataset<Batch>, { batchSize = 1, shuffle = false, dropLast = false, prefetch = 2 }: LoaderOptions = {}) {
    if (!Number.isInteger(batchSize) || batchSize < 1) throw new ValueError("E_VALUE", `batches of ${batchSize} examples`);
    this.dataset = dataset;
    this.#options = { batchSize, shuffle, dropLast, prefetch };
  }

  /** How many batches an epoch has. */
  get length(): number {
    const { batchSize, dropLast } = this.#options;
    return (dropLast ? Math.floor : Math.ceil)(this.dataset.length / batchSize);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Batch> {
    const { batchSize, shuffle, prefetch } = this.#options;
    const epoch = this.#epoch++;
    const n = this.dataset.length;
    const order = shuffle === false ? Uint32Array.from({ length: n }, (_, i) => i) : plainApi().shuffled(n, Number(shuffle === true ? 0 : shuffle), epoch);
    const waiting: Promise<Batch>[] = [];
    let next = 0;
    const start = async (at: number): Promise<Batch> => this.dataset.batch([...order.subarray(at * batchSize, (at + 1) * batchSize)]);
    while (next < this.length || waiting.length > 0) {
      while (next < this.length && waiting.length <= Math.max(prefetch, 0)) {
        const batch = start(next++);
        // It is told to whoever takes the batch.
        batch.catch(() => {});
        waiting.push(batch);
      }
      yield await (waiting.shift() as Promise<Batch>);
    }
  }
}
