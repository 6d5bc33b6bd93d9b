// Batches of examples that come one by one and whose number nobody knows: of generators, files that are read as they are used,
// or answers of a server.
import { ValueError } from "../errors.js";
import type { Tensor } from "../tensor.js";
import { type Random, seededRandom } from "./augment.js";
import { type Examples, type Row, examples } from "./examples.js";

/** Options of `StreamLoader`. */
export interface StreamOptions {
  batchSize?: number;
  /**
   * Draws each example at random from this many that were read ahead: an approximate shuffle, by `seed` and the number of
   * the epoch. Default: 0, the order in which they come.
   */
  shuffleBuffer?: number;
  /** Default: 0. */
  seed?: number;
  /** Drops the last batch of an epoch if it has fewer than `batchSize` examples. */
  dropLast?: boolean;
  /** How many batches are made ahead while one is in use. Default: 2. */
  prefetch?: number;
}

/** One example: fields by name, or a single value. */
export type Example = Row | Readonly<Record<string, Row>>;

/** Examples that come one by one, or a function that begins them anew for each epoch. */
export type ExampleSource = AsyncIterable<Example> | Iterable<Example> | (() => AsyncIterable<Example> | Iterable<Example>);

/**
 * Iterates over examples as they come, in batches: each `for await (const batch of loader)` is one epoch. A batch has one
 * tensor per field, or is a tensor (`StreamLoader<Tensor>`) where examples are single values. A generator gives its
 * examples once; give a function that makes one for more epochs.
 */
export class StreamLoader<Batch = Record<string, Tensor>> implements AsyncIterable<Batch> {
  readonly #source: ExampleSource;
  readonly #options: Required<StreamOptions>;
  readonly #change: ((batch: unknown) => unknown)[];
  #epoch = 0;

  constructor(source: ExampleSource, options: StreamOptions = {}, change: ((batch: unknown) => unknown)[] = []) {
    const { batchSize = 1, shuffleBuffer = 0, seed = 0, dropLast = false, prefetch = 2 } = options;
    if (!Number.isInteger(batchSize) || batchSize < 1) throw new ValueError("E_VALUE", `batches of ${batchSize} examples`);
    if (!isIterable(source) && typeof source !== "function") {
      throw new ValueError("E_VALUE", "a stream of examples is an iterable, an async iterable, or a function that returns one");
    }
    this.#source = source;
    this.#options = { batchSize, shuffleBuffer, seed, dropLast, prefetch };
    this.#change = change;
  }

  /** The number of the epoch that the next iteration gives, from 0: it determines the order with `shuffleBuffer`. */
  get epoch(): number {
    return this.#epoch;
  }

  set epoch(epoch: number) {
    if (!Number.isInteger(epoch) || epoch < 0) throw new ValueError("E_VALUE", `a loader has no epoch ${epoch}`);
    this.#epoch = epoch;
  }

  /** A loader with `change` applied to each batch. It runs ahead of use, like the reading. */
  map<Other>(change: (batch: Batch) => Other | Promise<Other>): StreamLoader<Other> {
    return new StreamLoader<Other>(this.#source, this.#options, [...this.#change, change as (batch: unknown) => unknown]);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Batch> {
    const batches = this.#batches(this.#epoch++);
    const pending: Promise<IteratorResult<Batch>>[] = [];
    try {
      for (;;) {
        while (pending.length <= Math.max(this.#options.prefetch, 0)) {
          const next = batches.next();
          // an error is thrown to the consumer of this batch, below; until then it must not count as unhandled
          next.catch(() => {});
          pending.push(next);
        }
        const { done, value } = await (pending.shift() as Promise<IteratorResult<Batch>>);
        if (done) return;
        yield value;
      }
    } finally {
      // ends the source, once it has given what was asked for
      void batches.return(undefined).catch(() => {});
    }
  }

  async *#batches(epoch: number): AsyncGenerator<Batch> {
    const { batchSize, shuffleBuffer, seed, dropLast } = this.#options;
    const source = typeof this.#source === "function" ? this.#source() : this.#source;
    const ordered = shuffleBuffer > 1 ? shuffled(source, shuffleBuffer, seededRandom(seed + 0x9e3779b1 * epoch)) : source;
    let rows: Example[] = [];
    for await (const row of ordered) {
      rows.push(row);
      if (rows.length < batchSize) continue;
      yield await this.#batchOf(rows);
      rows = [];
    }
    if (rows.length > 0 && !dropLast) yield await this.#batchOf(rows);
  }

  async #batchOf(rows: readonly Example[]): Promise<Batch> {
    const set: Examples<unknown> = examples(rows as readonly Readonly<Record<string, Row>>[]);
    let batch = await set.batch(rows.map((_, at) => at));
    for (const change of this.#change) batch = await change(batch);
    return batch as Batch;
  }
}

/** Whether a value can be iterated over. A string can, but is one value. */
export const isIterable = (value: unknown): value is AsyncIterable<unknown> | Iterable<unknown> =>
  typeof value === "object" && value !== null && (Symbol.asyncIterator in value || Symbol.iterator in value);

/** Each of the next `count` examples has the same chance to be next. */
async function* shuffled(source: AsyncIterable<Example> | Iterable<Example>, count: number, random: Random): AsyncGenerator<Example> {
  const ahead: Example[] = [];
  const draw = (): Example => {
    const at = Math.floor(random() * ahead.length);
    const drawn = ahead[at] as Example;
    ahead[at] = ahead.at(-1) as Example;
    ahead.pop();
    return drawn;
  };
  for await (const example of source) {
    ahead.push(example);
    if (ahead.length >= count) yield draw();
  }
  while (ahead.length > 0) yield draw();
}
