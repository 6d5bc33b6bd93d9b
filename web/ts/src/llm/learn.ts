// Training of a low-rank adapter for a language model. The model's wasm module provides batches and the graph of the
// loss; gradients and the optimiser are the general ones of tensors.
import { type Host, onDevice } from "../device.js";
import { ValueError, guard, guardAsync } from "../errors.js";
import { AdamW } from "../optim.js";
import { join } from "../parts.js";
import { Tensor, bind, made } from "../tensor.js";
import { clipGradNorm } from "../train/clip.js";
import type { RawModel } from "./files.js";
import type { FinetuneOptions } from "./options.js";

type Made = [number: number, dtype: string, elements: number, bytes: Uint8Array | undefined];
type Loss = [bytes: Uint8Array, inputs: Uint32Array, buffers: Made[], tokens: number, targets: number, parameters: Uint32Array];

/** Access to a model's buffers on its device. */
export interface Place {
  host: Host;
  raw: RawModel;
  /** Create buffers, map a buffer to its tensor's id on the device, and free a buffer. */
  take(buffers: readonly Made[]): void;
  tensor(buffer: number): number;
  forget(buffer: number): void;
}

/** The factor on the learning rate at a step, as in Hugging Face's `get_scheduler`. */
function factor(step: number, { schedule = "constant", warmup = 0 }: FinetuneOptions, steps: number): number {
  if (step < warmup) return step / warmup;
  const share = (step - warmup) / Math.max(steps - warmup, 1);
  if (schedule === "cosine") return (1 + Math.cos(Math.PI * share)) / 2;
  return schedule === "linear" ? 1 - share : 1;
}

/** Serialises the state of a run (the adapter's matrices and the optimiser) in the format of native runs. */
async function stateOf(host: Host, own: readonly Tensor[], optimizer: AdamW): Promise<Uint8Array> {
  await join(host.engine, "weights");
  const all = { ...Object.fromEntries(own.map((t, at) => [`${at}.value`, t])), ...optimizer.stateDict() };
  const ids = Uint32Array.from(Object.values(all), (t) => bind(t, host).id);
  try {
    return await guardAsync(() => host.raw.saveWeights(Object.keys(all), ids) as Promise<Uint8Array>);
  } finally {
    all["step"]?.dispose();
  }
}

/** Restores the state of a run; returns the number of steps done. */
async function restore(host: Host, own: readonly Tensor[], optimizer: AdamW, file: Uint8Array): Promise<number> {
  await join(host.engine, "weights");
  type Entry = [name: string, dtype: string, shape: number[], start: number, end: number];
  const index = guard(() => host.engine.api.safetensorsIndex(file, file.length)) as Entry[];
  const made = index.map(([name, dtype, shape, start, end]): [string, Tensor] => {
    if (dtype !== "f32") throw new ValueError("E_VALUE", `finetune: the state's ${name} is of ${dtype}`);
    return [name, new Tensor(new Float32Array(file.slice(start, end).buffer), shape, { device: host })];
  });
  const given = Object.fromEntries(made);
  try {
    const values = own.map((t, at): [Tensor, Tensor | undefined] => [t, given[`${at}.value`]]);
    if (values.some(([t, value]) => String(value?.shape) !== String(t.shape))) {
      throw new ValueError("E_VALUE", "finetune: the state is of another adapter");
    }
    await optimizer.loadStateDict(given);
    for (const [t, value] of values) await onDevice(host, async () => host.raw.overwrite(bind(t, host).id, bytesOf(await (value as Tensor).data())));
    return await (given["step"] as Tensor).item();
  } finally {
    for (const [, t] of made) t.dispose();
  }
}

const bytesOf = ({ buffer, byteOffset, byteLength }: ArrayBufferView): Uint8Array => new Uint8Array(buffer as ArrayBuffer, byteOffset, byteLength);

/** The result of a run: the final values of the adapter's matrices, the loss of each step, and the serialised state. */
interface Run {
  values: Uint8Array[];
  losses: number[];
  state: Uint8Array;
}

export async function learn(
  place: Place,
  texts: readonly (readonly number[])[],
  options: FinetuneOptions,
  onStep: (step: number, loss: number) => void,
  from: number | undefined,
): Promise<Run> {
  const { host, raw } = place;
  const { rank = 8, alpha = 2 * rank, seed = 0, targets = [], batch = 4, length = 128, steps = 100, signal, state } = options;
  const { learningRate = 2e-4, weightDecay = 0, maxNorm = 1, schedule = "constant", warmup = 0 } = options;
  for (const [name, value] of Object.entries({ rank, batch, length, steps })) {
    if (!Number.isSafeInteger(value) || value < 1) throw new ValueError("E_VALUE", `finetune: ${name} is ${value}`);
  }
  if (!(learningRate >= 0 && weightDecay >= 0 && maxNorm > 0)) {
    throw new ValueError("E_VALUE", `finetune: a rate of ${learningRate}, a decay of ${weightDecay}, a norm of ${maxNorm}`);
  }
  if (!["constant", "linear", "cosine"].includes(schedule) || !Number.isSafeInteger(warmup) || warmup < 0) {
    throw new ValueError("E_VALUE", `finetune: the schedule ${schedule} after ${warmup} steps`);
  }
  if (state && from === undefined) throw new ValueError("E_VALUE", "finetune: a `state` is of an adapter that goes on: `resume`");
  const tokens = Uint32Array.from(texts.flat());
  const how = Float64Array.of(rank, alpha, seed, batch, length);
  const asked = guard(() => raw.learn(tokens, Uint32Array.from(texts, ({ length: n }) => n), [...targets], how, from)) as unknown as Loss;
  const [bytes, inputs, buffers, ids, wanted, parameters] = asked;
  place.take(buffers);
  const held = inputs.map(place.tensor);
  const own = Array.from(parameters, (buffer) => made(host, place.tensor(buffer)));
  for (const t of own) t.requiresGrad = true;
  const losses: number[] = [];
  const optimizer = new AdamW(own, { learningRate, weightDecay });
  try {
    const begin = state ? await restore(host, own, optimizer, state) : 0;
    if (begin >= steps) throw new ValueError("E_VALUE", `finetune: ${begin} steps are done, ${steps} are wanted in all`);
    for (let step = begin; step < steps; step += 1) {
      signal?.throwIfAborted();
      optimizer.learningRate = learningRate * factor(step, options, steps);
      const lesson = guard(() => raw.lesson(step)) as [Uint8Array, Uint8Array];
      for (const [at, buffer] of [ids, wanted].entries()) {
        await onDevice(host, () => host.raw.overwrite(place.tensor(buffer), lesson[at] as Uint8Array));
      }
      const loss = made(host, guard(() => host.raw.graph(bytes, held))[0] as number);
      try {
        loss.backward();
        clipGradNorm(own, maxNorm).dispose();
        await optimizer.step(signal ? { signal } : {});
        optimizer.zeroGrad();
        const value = await loss.item();
        if (!Number.isFinite(value)) {
          throw new ValueError("E_VALUE", `finetune: the loss is ${value} at step ${step}`, { hint: "a smaller learningRate may help" });
        }
        losses.push(value);
      } finally {
        loss.dispose();
      }
      onStep(step, losses.at(-1) as number);
    }
    const values: Uint8Array[] = [];
    for (const buffer of parameters) values.push((await onDevice(host, () => host.raw.data(place.tensor(buffer), signal))) as Uint8Array);
    return { values, losses, state: await stateOf(host, own, optimizer) };
  } finally {
    optimizer.dispose();
    // disposing a wrapper frees the tensor that it wraps
    for (const t of own) t.dispose();
    for (const buffer of parameters) place.forget(buffer);
    for (const buffer of [ids, wanted]) {
      host.raw.free(place.tensor(buffer));
      place.forget(buffer);
    }
  }
}
