// Data sets: readers of image data sets (IDX, MNIST, CIFAR), tables and pictures, and loaders of batches in shuffled
// order with prefetching. The entry `gradloom/data`.
import "./page-chunks.js";
import { Arrays, type Columns, type Dataset, Examples, type HostArray, type Row, type Rows, examples } from "./data/examples.js";
import { ValueError, guard } from "./errors.js";
import { filesModule } from "./lazy-wasm.js";
import { withFormatHint } from "./files.js";
import { plainApi } from "./module.js";
import { type FetchOptions, type FileSource, readSource } from "./progress.js";
import type { DType } from "./dtype.js";
import type { Tensor } from "./tensor.js";

export { type CropOptions, type JitterOptions, type MixupOptions, type Random, type RandomOptions } from "./data/augment.js";
export {
  colorJitter, mixup, randomCrop, randomHorizontalFlip, randomShift, randomVerticalFlip, seededRandom, softCrossEntropy,
} from "./data/augment.js";
export { type CsvOptions, Table, csv } from "./data/csv.js";
export { type LabelledPicture, Pictures, type PicturesOptions } from "./data/pictures.js";
export { type Example, type ExampleSource, StreamLoader, type StreamOptions } from "./data/stream.js";
export { Arrays, type Columns, type Dataset, Examples, type HostArray, type Row, type Rows, examples };

/** Options of `DataLoader`. */
export interface LoaderOptions {
  batchSize?: number;
  /** Shuffles the examples in each epoch, by this seed; `true` is seed 0. Default: false. */
  shuffle?: boolean | number;
  /** Drops the last batch of an epoch if it has fewer than `batchSize` examples. */
  dropLast?: boolean;
  /** How many batches are loaded ahead while one is in use. Default: 2. */
  prefetch?: number;
}

type ArrayParts = [dtype: DType, shape: number[], bytes: Uint8Array];
const array = ([dtype, shape, bytes]: ArrayParts): HostArray => ({ dtype, shape, bytes });

/** Reads an IDX file (the format of MNIST), gzipped or not. */
export async function readIdx(from: FileSource, options: FetchOptions = {}): Promise<HostArray> {
  const [file, { idx }] = await Promise.all([readSource(from, options), filesModule()]);
  return withFormatHint("images", from, file, () => array(guard(() => idx(file) as ArrayParts)));
}

/**
 * Reads MNIST or a data set in its format, such as Fashion-MNIST: u8 images `[n, 1, rows, columns]` as `x`, labels
 * `[n]` as `y`.
 */
export async function mnist(images: FileSource, labels: FileSource, options: FetchOptions = {}): Promise<Arrays> {
  const [x, y] = await Promise.all([readIdx(images, options), readIdx(labels, options)]);
  if (x.shape.length !== 3 || y.shape.length !== 1) {
    throw new ValueError("E_VALUE", `mnist: images [${x.shape.join(", ")}] and labels [${y.shape.join(", ")}]`);
  }
  const [n, ...rest] = x.shape as [number, ...number[]];
  return new Arrays({ x: { ...x, shape: [n, 1, ...rest] }, y });
}

/** Reads CIFAR-10 or CIFAR-100 from one of its binary files: u8 images `[n, 3, 32, 32]` as `x`, labels `[n]` as `y`. */
export async function cifar(from: FileSource, classes: 10 | 100, options: FetchOptions = {}): Promise<Arrays> {
  const [file, module] = await Promise.all([readSource(from, options), filesModule()]);
  const [x, y] = await withFormatHint("images", from, file, () => guard(() => module.cifar(file, classes) as [ArrayParts, ArrayParts]));
  return new Arrays({ x: array(x), y: array(y) });
}

/** What a loader accepts: a data set, or anything that `examples` converts to one. */
export type Loadable<Batch> =
  | Dataset<Batch>
  | (Tensor extends Batch ? Rows | Iterable<Row> : never)
  | (Record<string, Tensor> extends Batch ? Columns | Iterable<Readonly<Record<string, Row>>> : never);

/** Iterates over a data set in batches: each `for await (const batch of loader)` is one epoch. */
export class DataLoader<Batch = Record<string, Tensor>> implements AsyncIterable<Batch> {
  readonly dataset: Dataset<Batch>;
  readonly #options: Required<LoaderOptions>;
  #epoch = 0;

  /**
   * Takes a data set, arrays by name, a list or another iterable of examples, or (as `DataLoader<Tensor>`) a single
   * array. What is asynchronous or does not fit into memory is for `StreamLoader`.
   */
  constructor(from: Loadable<Batch>, { batchSize = 1, shuffle = false, dropLast = false, prefetch = 2 }: LoaderOptions = {}) {
    if (!Number.isInteger(batchSize) || batchSize < 1) throw new ValueError("E_VALUE", `batches of ${batchSize} examples`);
    this.dataset = examples(from as Dataset<Batch>);
    this.#options = { batchSize, shuffle, dropLast, prefetch };
  }

  /**
   * The number of the epoch that the next iteration gives, from 0. With `shuffle` it determines the order of examples;
   * setting it repeats or continues an earlier run.
   */
  get epoch(): number {
    return this.#epoch;
  }

  set epoch(epoch: number) {
    if (!Number.isInteger(epoch) || epoch < 0) throw new ValueError("E_VALUE", `a loader has no epoch ${epoch}`);
    this.#epoch = epoch;
  }

  /** The number of batches in an epoch. */
  get length(): number {
    const { batchSize, dropLast } = this.#options;
    return (dropLast ? Math.floor : Math.ceil)(this.dataset.length / batchSize);
  }

  /**
   * A loader with `change` applied to each batch, e.g. for random augmentation of images. It runs ahead of use, like
   * the loading.
   */
  map<Other>(change: (batch: Batch) => Other | Promise<Other>): DataLoader<Other> {
    const { dataset } = this;
    const mapped: Dataset<Other> = { length: dataset.length, batch: async (rows) => change(await dataset.batch(rows)) };
    return new DataLoader<Other>(mapped as Loadable<Other>, this.#options);
  }

  /** Iterates over the first `count` batches of an epoch. */
  async *take(count: number): AsyncGenerator<Batch> {
    let remaining = count;
    if (remaining <= 0) return;
    for await (const batch of this) {
      yield batch;
      if ((remaining -= 1) <= 0) return;
    }
  }

  [Symbol.asyncIterator](): AsyncGenerator<Batch> {
    return this.skip(0);
  }

  /** Iterates over an epoch without its first `count` batches, which are not loaded. */
  async *skip(count: number): AsyncGenerator<Batch> {
    const { batchSize, shuffle, prefetch } = this.#options;
    const epoch = this.#epoch++;
    const n = this.dataset.length;
    const order = shuffle === false ? Uint32Array.from({ length: n }, (_, i) => i) : plainApi().shuffled(n, Number(shuffle === true ? 0 : shuffle), epoch);
    const pending: Promise<Batch>[] = [];
    let nextIdx = Math.max(count, 0);
    const loadBatch = async (at: number): Promise<Batch> => this.dataset.batch([...order.subarray(at * batchSize, (at + 1) * batchSize)]);
    while (nextIdx < this.length || pending.length > 0) {
      while (nextIdx < this.length && pending.length <= Math.max(prefetch, 0)) {
        const batch = loadBatch(nextIdx++);
        // an error is thrown to the consumer of this batch, below; until then it must not count as unhandled
        batch.catch(() => {});
        pending.push(batch);
      }
      yield await (pending.shift() as Promise<Batch>);
    }
  }
}
