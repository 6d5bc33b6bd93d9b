// Training over epochs: progress, validation, an early end, checkpoints. The entry `gradloom/fit`; each part of it is public elsewhere.
import "./apart.js";
import { DataLoader } from "./data.js";
import { UnsupportedError, ValueError } from "./errors.js";
import { saveWeights } from "./files.js";
import type { Module } from "./nn.js";
import type { Optimizer } from "./optim.js";
import { Tensor, keep, realize, tidy } from "./tensor.js";

/** What became of an epoch. */
export interface Epoch {
  /** From 0. */
  epoch: number;
  /** The mean over the batches. */
  loss: number;
  /** The mean over the batches of `validation`, where there are any. */
  validation: number | undefined;
  seconds: number;
  /** Is this the best so far, by the validation, or else by the loss? */
  best: boolean;
}

/** What became of a step. */
export interface Step {
  epoch: number;
  /** Steps of all epochs so far, from 1. */
  step: number;
  /** Steps of all epochs, if the data say how many batches they have. */
  steps: number | undefined;
  loss: number;
}

/** How a network is trained. */
export interface FitOptions<Batch> {
  /** Its parameters are those that change. */
  optimizer: Optimizer;
  /** The loss of a batch, a scalar. It must not wait; what it makes on the way is freed. */
  loss: (batch: Batch) => Tensor;
  /** 1 unless told otherwise. */
  epochs?: number;
  /** Batches that the network does not learn from, which say how well it does. */
  validation?: AsyncIterable<Batch> | Iterable<Batch>;
  /** Ends after so many epochs that are not better than the best, and puts the best one's weights back. */
  patience?: number;
  /** An epoch is better if it is by more than this: 0. */
  leastGain?: number;
  onStep?: (step: Step) => void | Promise<void>;
  onEpoch?: (epoch: Epoch) => void | Promise<void>;
  /** Given a safetensors file of the network after each epoch that is the best so far; `opfsCheckpoint` keeps it in the browser. */
  checkpoint?: Checkpoint | ((file: Uint8Array, epoch: Epoch) => void | Promise<void>);
  /** Called after each step, as a scheduler's `step`. */
  scheduler?: { step(): void };
  /** Ends the training after the step that is under way: `fit` resolves, and says so. */
  signal?: AbortSignal;
}

/** A place for the weights of a network. */
export interface Checkpoint {
  save(file: Uint8Array): Promise<void>;
  /** What was saved last, if anything was: for `loadWeights` and `loadStateDict`. */
  load(): Promise<Uint8Array | undefined>;
  delete(): Promise<void>;
}

/** What became of the training. */
export interface Fitted {
  epochs: Epoch[];
  /** The number of the best epoch. */
  best: number;
  ended: "epochs" | "patience" | "signal";
}

/**
 * Trains a network on batches, epoch after epoch. Batches of a `DataLoader` are freed after their step, others are the caller's. Fails with
 * `E_VALUE` if there are no batches or the loss is not a number.
 */
export async function fit<Batch>(net: Module, batches: AsyncIterable<Batch> | Iterable<Batch>, options: FitOptions<Batch>): Promise<Fitted> {
  const { optimizer, loss, epochs = 1, validation, patience = Infinity, leastGain = 0, onStep, onEpoch, checkpoint, scheduler, signal } = options;
  if (!(epochs >= 1)) throw new ValueError("E_VALUE", `fit: ${epochs} epochs`);
  const length = (batches as { length?: unknown }).length;
  const steps = typeof length === "number" ? length * epochs : undefined;
  const done: Epoch[] = [];
  let [step, bestAt, bestValue] = [0, -1, Infinity];
  let kept: Record<string, Tensor> = {};
  let ended: Fitted["ended"] = "epochs";
  try {
    for (let epoch = 0; epoch < epochs; epoch += 1) {
      const start = performance.now();
      net.train();
      let [sum, count] = [0, 0];
      for await (const batch of batches) {
        const value = await optimizer.minimize(() => loss(batch));
        release(batches, batch);
        step += 1;
        if (Number.isNaN(value)) {
          const hint = "a smaller learning rate, or clipped gradients";
          throw new ValueError("E_VALUE", `fit: the loss of step ${step} is not a number`, { hint });
        }
        sum += value;
        count += 1;
        scheduler?.step();
        await onStep?.({ epoch, step, steps, loss: value });
        if (signal?.aborted) break;
      }
      if (signal?.aborted) ended = "signal";
      if (count === 0) {
        const hint = "a generator gives its batches once: give a DataLoader or an array";
        throw new ValueError("E_VALUE", "fit: there are no batches", { hint });
      }
      const checked = validation && ended !== "signal" ? await mean(net, validation, loss) : undefined;
      const value = checked ?? sum / count;
      const best = ended !== "signal" && value < bestValue - leastGain;
      if (best) [bestAt, bestValue] = [epoch, value];
      const row: Epoch = { epoch, loss: sum / count, validation: checked, seconds: (performance.now() - start) / 1000, best };
      done.push(row);
      if (best && Number.isFinite(patience)) kept = await copied(net, kept);
      if (best && checkpoint) {
        const file = await saveWeights(net.stateDict());
        await (typeof checkpoint === "function" ? checkpoint(file, row) : checkpoint.save(file));
      }
      await onEpoch?.(row);
      if (signal?.aborted) ended = "signal";
      else if (epoch - bestAt >= patience) ended = "patience";
      if (ended !== "epochs") break;
    }
    if (ended === "patience" && bestAt >= 0) await net.loadStateDict(kept);
  } finally {
    for (const t of Object.values(kept)) t.dispose();
    net.eval();
  }
  return { epochs: done, best: Math.max(0, bestAt), ended };
}

/** Frees the tensors of a batch that a loader made for us. */
function release(batches: unknown, batch: unknown): void {
  if (!(batches instanceof DataLoader)) return;
  const parts = batch instanceof Tensor ? [batch] : typeof batch === "object" && batch !== null ? Object.values(batch) : [];
  for (const part of parts) if (part instanceof Tensor) part.dispose();
}

async function mean<Batch>(net: Module, batches: AsyncIterable<Batch> | Iterable<Batch>, loss: (batch: Batch) => Tensor): Promise<number> {
  net.eval();
  let [sum, count] = [0, 0];
  for await (const batch of batches) {
    using value = tidy(() => loss(batch));
    sum += await value.item();
    count += 1;
    release(batches, batch);
  }
  if (count === 0) throw new ValueError("E_VALUE", "fit: there are no batches to validate with");
  return sum / count;
}

/** The values of a network's tensors in memory of their own. */
async function copied(net: Module, before: Record<string, Tensor>): Promise<Record<string, Tensor>> {
  // an addition, since a copy that is only a view would change with the weights
  const copy = (t: Tensor): Tensor => keep(t.dtype === "bool" ? t.logicalOr(t) : t.add(0).cast(t.dtype));
  const state = tidy(() => Object.fromEntries(Object.entries(net.stateDict()).map(([name, t]) => [name, copy(t)])));
  await realize(Object.values(state));
  for (const t of Object.values(before)) t.dispose();
  return state;
}

/** A checkpoint in the origin's private file system, which stays from visit to visit. Fails with `E_UNSUPPORTED` where there is none. */
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
      // nothing of it is there before `close`
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
