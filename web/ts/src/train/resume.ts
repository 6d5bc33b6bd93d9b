// The state of a training in one safetensors file: the network's weights, those of the best epoch, the optimiser's
// state, and how far the training is. `fit` writes and reads it.
import { DataLoader, StreamLoader } from "../data.js";
import { FormatError } from "../errors.js";
import { loadWeights, saveWeights } from "../files.js";
import type { Epoch } from "../fit.js";
import { keys } from "../keys.js";
import type { Module } from "../nn.js";
import type { Optimizer } from "../optim.js";
import { Tensor, bind } from "../tensor.js";

/** How far a training is. */
export interface Progress {
  /** The epoch that goes on, from 0. */
  epoch: number;
  /** How many of its batches are done, and the sum of their losses. */
  batch: number;
  sum: number;
  /** The steps done in all epochs. */
  step: number;
  /** The best epoch, -1 if there is none, and its loss. */
  best: number;
  bestLoss: number;
  /** The results of the epochs that are done. */
  epochs: Epoch[];
  /** The number that each loader gives this epoch, which determines the order of its examples; null for other sources. */
  orders: (number | null)[];
}

/** What takes part in a training. */
export interface Training {
  net: Module;
  optimizer: Optimizer;
  scheduler: { step(): void } | undefined;
  /** Where batches come from: for training and for validation. */
  sources: readonly unknown[];
}

/** Version of the file's form. */
const VERSION = 1;
/** The name of a tensor of bytes that has the progress as JSON. */
const PROGRESS = "progress.json";

/** The progress as it is saved, with the position in the streams of random numbers: their seeds, and how many were drawn. */
type Saved = Progress & { version: number; bestLoss: number | null; learningRate: number; keys: [number, number]; random: [number, number] };

const isLoader = (source: unknown): source is { epoch: number } => source instanceof DataLoader || source instanceof StreamLoader;

/** The numbers that loaders give their next epochs. */
export const ordersOf = ({ sources }: Training): (number | null)[] => sources.map((each) => (isLoader(each) ? each.epoch : null));

const hostOf = ({ optimizer }: Training) => bind(optimizer.parameters[0] as Tensor).host;

/** Writes the state to a file. */
export async function stateFile(training: Training, at: Progress, bestWeights: Readonly<Record<string, Tensor>>): Promise<Uint8Array> {
  const host = hostOf(training);
  const [seed = 0, draws = 0] = host.raw.random();
  const { learningRate } = training.optimizer;
  // JSON has no infinity
  const bestLoss = Number.isFinite(at.bestLoss) ? at.bestLoss : null;
  const saved: Saved = { ...at, bestLoss: bestLoss as number, version: VERSION, learningRate, keys: [...keys] as Saved["keys"], random: [seed, draws] };
  const state = training.optimizer.stateDict();
  using text = new Tensor(new TextEncoder().encode(JSON.stringify(saved)), null, { device: host });
  const groups = { network: training.net.stateDict(), optimizer: state, best: bestWeights };
  const named = Object.entries(groups).flatMap(([group, tensors]) => Object.entries(tensors).map(([name, t]) => [`${group}.${name}`, t] as const));
  try {
    return await saveWeights({ ...Object.fromEntries(named), [PROGRESS]: text });
  } finally {
    state["step"]?.dispose();
  }
}

/** Restores the state of a file; returns the progress, and the weights of the best epoch, which the caller disposes. */
export async function restore(training: Training, file: Uint8Array): Promise<{ at: Progress; bestWeights: Record<string, Tensor> }> {
  const { net, optimizer, scheduler, sources } = training;
  const host = hostOf(training);
  const tensors = await loadWeights(file, { device: host });
  const group = (name: string): Record<string, Tensor> =>
    Object.fromEntries(Object.entries(tensors).flatMap(([key, t]) => (key.startsWith(`${name}.`) ? [[key.slice(name.length + 1), t]] : [])));
  const bestWeights = group("best");
  try {
    const text = tensors[PROGRESS];
    if (!text) {
      const hint = "the files of `checkpoint` have only weights: `loadWeights` reads those";
      throw new FormatError("E_FORMAT", "fit: the file of `resume` is not the state of a training", { hint });
    }
    const saved = JSON.parse(new TextDecoder().decode((await text.data()) as unknown as Uint8Array)) as Saved;
    const { version, learningRate, keys: savedKeys, random, bestLoss, ...at } = saved;
    if (version !== VERSION) throw new FormatError("E_FORMAT", `fit: the state has version ${version}, not ${VERSION}`);
    await net.loadStateDict(group("network"));
    await optimizer.loadStateDict(group("optimizer"));
    // A scheduler is as far as its calls, whatever it is made of.
    for (let step = 0; step < at.step; step += 1) scheduler?.step();
    optimizer.learningRate = learningRate;
    at.orders.forEach((order, i) => {
      const source = sources[i];
      if (order !== null && isLoader(source)) source.epoch = order;
    });
    keys.set(savedKeys);
    const [seed, draws] = random;
    host.raw.seed(seed);
    for (let i = 0; i < draws; i += 1) Tensor.rand([1], { device: host }).dispose();
    return { at: { ...at, bestLoss: bestLoss ?? Infinity }, bestWeights };
  } catch (error) {
    for (const t of Object.values(bestWeights)) t.dispose();
    throw error;
  } finally {
    const kept = new Set(Object.values(bestWeights));
    for (const t of Object.values(tensors)) if (!kept.has(t)) t.dispose();
  }
}
