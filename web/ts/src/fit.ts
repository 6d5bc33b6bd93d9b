// Training over epochs, with progress, validation, early stopping, checkpoints, and runs that resume after an
// interruption. The entry `gradloom/fit`.
import "./page-chunks.js";
import { DataLoader, StreamLoader } from "./data.js";
import { FetchError, UnsupportedError, ValueError } from "./errors.js";
import { saveWeights } from "./files.js";
import { builtin } from "./module.js";
import type { Module } from "./nn.js";
import type { Optimizer } from "./optim.js";
import { Tensor, keep, realize, tidy } from "./tensor.js";
import { type Progress, ordersOf, restore, stateFile } from "./train/resume.js";

/** The results of one epoch. */
export interface Epoch {
  /** The number of the epoch, from 0. */
  epoch: number;
  /** The mean loss over the batches. */
  loss: number;
  /** The mean loss over the batches of `validation`; undefined without any. */
  validation: number | undefined;
  seconds: number;
  /** Whether this epoch is the best so far, by `validation` if there is one, else by `loss`. */
  best: boolean;
}

/** The results of one optimiser step. */
export interface Step {
  epoch: number;
  /** The number of the step, counted over all epochs from 1. */
  step: number;
  /** The total number of steps of all epochs; undefined if the number of batches is not known. */
  steps: number | undefined;
  loss: number;
}

/** Options of `fit`. */
export interface FitOptions<Batch> {
  /** Updates the parameters that it was created with. */
  optimizer: Optimizer;
  /**
   * Computes the loss of a batch, a scalar. It must not be asynchronous; the intermediate tensors it creates are freed.
   */
  loss: (batch: Batch) => Tensor;
  /** Number of epochs. Default: 1. */
  epochs?: number;
  /** Batches for validation, from which the network is not trained. */
  validation?: AsyncIterable<Batch> | Iterable<Batch>;
  /**
   * Ends training after this many consecutive epochs without a new best one, and restores the weights of the best.
   * Default: never.
   */
  patience?: number;
  /** How much lower its loss must be for an epoch to count as a new best. Default: 0. */
  leastGain?: number;
  /** Called after each step; training waits for a promise that it returns. */
  onStep?: (step: Step) => unknown;
  /** Called after each epoch, as `onStep`. */
  onEpoch?: (epoch: Epoch) => unknown;
  /**
   * Receives a safetensors file of the network after each epoch that is the best so far. `opfsCheckpoint` stores it in
   * the browser.
   */
  checkpoint?: Checkpoint | ((file: Uint8Array, epoch: Epoch) => unknown);
  /**
   * Storage for the state of the training, in one file: weights, the optimiser's state, epoch and step, the learning
   * rate, the order of the data and the streams of random numbers. If it holds a state, training continues there, and
   * the losses are those of a run without interruption: give `fit` a network, optimiser, scheduler and loader as in the
   * beginning. The state is saved after each epoch, when `signal` fires, and every `saveEvery` steps. Random functions
   * of your own (an augmentation's `random`) are not part of it. Fails with `E_FORMAT` if the file is another one, with
   * `E_VALUE` or `E_SHAPE` if it is of another network or optimiser.
   */
  resume?: Checkpoint;
  /** Saves the state for `resume` after so many steps too. Default: only after epochs. */
  saveEvery?: number;
  /** A learning-rate scheduler, whose `step` is called after each step. */
  scheduler?: { step(): void };
  /** Ends training after the current step; `fit` then resolves with `ended: "signal"`. */
  signal?: AbortSignal;
}

/** Storage for the weights of a network. */
export interface Checkpoint {
  save(file: Uint8Array): Promise<void>;
  /** The file that was saved last, or undefined: for `loadWeights` and `loadStateDict`. */
  load(): Promise<Uint8Array | undefined>;
  delete(): Promise<void>;
}

/** The results of `fit`. */
export interface Fitted {
  /** All epochs, with those before an interruption. */
  epochs: Epoch[];
  /** The number of the best epoch. */
  best: number;
  ended: "epochs" | "patience" | "signal";
}

/**
 * Trains a network on batches for a number of epochs. Batches of a `DataLoader` or `StreamLoader` are freed after their
 * step; other batches remain the caller's. Fails with `E_VALUE` if there are no batches or the loss becomes NaN.
 */
export async function fit<Batch>(net: Module, batches: AsyncIterable<Batch> | Iterable<Batch>, options: FitOptions<Batch>): Promise<Fitted> {
  const { optimizer, loss, epochs = 1, validation, patience = Infinity, leastGain = 0, saveEvery = Infinity } = options;
  const { onStep, onEpoch, checkpoint, resume, scheduler, signal } = options;
  if (!(epochs >= 1)) throw new ValueError("E_VALUE", `fit: ${epochs} epochs`);
  if (!(saveEvery >= 1)) throw new ValueError("E_VALUE", `fit: a save every ${saveEvery} steps`);
  const length = (batches as { length?: unknown }).length;
  const steps = typeof length === "number" ? length * epochs : undefined;
  const training = { net, optimizer, scheduler, sources: [batches, validation] };
  let at: Progress = { epoch: 0, batch: 0, step: 0, sum: 0, best: -1, bestLoss: Infinity, epochs: [], orders: [] };
  let bestWeights: Record<string, Tensor> = {};
  let ended: Fitted["ended"] = "epochs";
  const save = async (): Promise<void> => await resume?.save(await stateFile(training, at, bestWeights));
  const isPatienceOver = (): boolean => at.epoch > 0 && at.epoch - 1 - at.best >= patience;
  try {
    const file = await resume?.load();
    if (file) ({ at, bestWeights } = await restore(training, file));
    while (at.epoch < epochs && !isPatienceOver()) {
      const start = performance.now();
      at.orders = ordersOf(training);
      net.train();
      for await (const batch of without(batches, at.batch)) {
        const value = await optimizer.minimize(() => loss(batch));
        disposeBatch(batches, batch);
        at.step += 1;
        if (Number.isNaN(value)) {
          const hint = "a smaller learning rate, or clipped gradients";
          throw new ValueError("E_VALUE", `fit: the loss of step ${at.step} is not a number`, { hint });
        }
        at.sum += value;
        at.batch += 1;
        scheduler?.step();
        await onStep?.({ epoch: at.epoch, step: at.step, steps, loss: value });
        if (signal?.aborted) break;
        if (at.step % saveEvery === 0) await save();
      }
      if (at.batch === 0) {
        const hint = "a generator gives its batches once: give a DataLoader or an array";
        throw new ValueError("E_VALUE", "fit: there are no batches", { hint });
      }
      const isStopped = signal?.aborted === true;
      if (isStopped) await save();
      const validationLoss = validation && !isStopped ? await meanLoss(net, validation, loss) : undefined;
      const mean = at.sum / at.batch;
      const value = validationLoss ?? mean;
      const best = !isStopped && value < at.bestLoss - leastGain;
      if (best) [at.best, at.bestLoss] = [at.epoch, value];
      const result: Epoch = { epoch: at.epoch, loss: mean, validation: validationLoss, seconds: (performance.now() - start) / 1000, best };
      at.epochs.push(result);
      if (best && Number.isFinite(patience)) bestWeights = await copyWeights(net, bestWeights);
      if (best && checkpoint) {
        const weights = await saveWeights(net.stateDict());
        await (typeof checkpoint === "function" ? checkpoint(weights, result) : checkpoint.save(weights));
      }
      if (!isStopped) {
        Object.assign(at, { epoch: at.epoch + 1, batch: 0, sum: 0, orders: ordersOf(training) });
        await save();
      }
      await onEpoch?.(result);
      if (!signal?.aborted) continue;
      ended = "signal";
      break;
    }
    if (ended !== "signal" && isPatienceOver()) ended = "patience";
    if (ended === "patience" && at.best >= 0) await net.loadStateDict(bestWeights);
  } finally {
    for (const t of Object.values(bestWeights)) t.dispose();
    net.eval();
  }
  return { epochs: at.epochs, best: Math.max(0, at.best), ended };
}

/** The batches of an epoch after the first `count`, which a `DataLoader` does not load. */
async function* without<Batch>(batches: AsyncIterable<Batch> | Iterable<Batch>, count: number): AsyncGenerator<Batch> {
  if (batches instanceof DataLoader) return yield* batches.skip(count) as AsyncGenerator<Batch>;
  let remaining = count;
  for await (const batch of batches) if ((remaining -= 1) < 0) yield batch;
}

/** Frees the tensors of a batch that a loader created. */
function disposeBatch(batches: unknown, batch: unknown): void {
  if (!(batches instanceof DataLoader || batches instanceof StreamLoader)) return;
  const parts = batch instanceof Tensor ? [batch] : typeof batch === "object" && batch !== null ? Object.values(batch) : [];
  for (const part of parts) if (part instanceof Tensor) part.dispose();
}

async function meanLoss<Batch>(net: Module, batches: AsyncIterable<Batch> | Iterable<Batch>, loss: (batch: Batch) => Tensor): Promise<number> {
  net.eval();
  let [sum, count] = [0, 0];
  for await (const batch of batches) {
    using value = tidy(() => loss(batch));
    sum += await value.item();
    count += 1;
    disposeBatch(batches, batch);
  }
  if (count === 0) throw new ValueError("E_VALUE", "fit: there are no batches to validate with");
  return sum / count;
}

/** Copies the values of a network's tensors to memory of their own, and frees the copies made before. */
async function copyWeights(net: Module, previous: Record<string, Tensor>): Promise<Record<string, Tensor>> {
  // an addition, since a copy that is only a view would change with the weights
  const copy = (t: Tensor): Tensor => keep(t.dtype === "bool" ? t.logicalOr(t) : t.add(0).cast(t.dtype));
  const state = tidy(() => Object.fromEntries(Object.entries(net.stateDict()).map(([name, t]) => [name, copy(t)])));
  await realize(Object.values(state));
  for (const t of Object.values(previous)) t.dispose();
  return state;
}

/**
 * A checkpoint in the origin private file system, which persists across visits. Fails with `E_UNSUPPORTED` where the
 * host has none.
 */
export function opfsCheckpoint(name: string): Checkpoint {
  const folder = async (): Promise<FileSystemDirectoryHandle> => {
    const storage = (globalThis.navigator as Navigator | undefined)?.storage;
    if (typeof storage?.getDirectory !== "function") throw new UnsupportedError("E_UNSUPPORTED", "there is no private file system here");
    return (await storage.getDirectory()).getDirectoryHandle("gradloom-checkpoints", { create: true });
  };
  const file = encodeURIComponent(name);
  return {
    async save(bytes) {
      const handle = await (await folder()).getFileHandle(file, { create: true });
      // the file is replaced only on `close`, so a failed write leaves the old one intact
      const writer = await handle.createWritable();
      await writer.write(bytes as Uint8Array<ArrayBuffer>);
      await writer.close();
    },
    async load() {
      const handle = await (await folder()).getFileHandle(file).catch(() => undefined);
      const found = await handle?.getFile();
      return found && found.size > 0 ? new Uint8Array(await found.arrayBuffer()) : undefined;
    },
    async delete() {
      await (await folder()).removeEntry(file).catch(() => {});
    },
  };
}

/**
 * A checkpoint in a file of Node's disk. The file is replaced only once the new one is written, so an interruption never
 * leaves half of one. Fails with `E_UNSUPPORTED` in pages.
 */
export function fileCheckpoint(path: string): Checkpoint {
  const files = () => builtin("node:fs/promises");
  return {
    async save(bytes) {
      const { rename, writeFile } = await files();
      await writeFile(`${path}.part`, bytes);
      await rename(`${path}.part`, path);
    },
    async load() {
      const { readFile } = await files();
      return await readFile(path).then((bytes: Uint8Array) => new Uint8Array(bytes), (error: unknown) => {
        if ((error as { code?: unknown }).code === "ENOENT") return undefined;
        throw new FetchError("E_FETCH", `${path} could not be read: ${(error as Error).message}`, { cause: error });
      });
    },
    async delete() {
      const { rm } = await files();
      await rm(path, { force: true });
    },
  };
}
