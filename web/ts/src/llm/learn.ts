// Training of a low-rank adapter for a language model. The model's wasm module provides batches and the graph of the
// loss; gradients and the optimiser are the general ones of tensors.
import { type Host, onDevice } from "../device.js";
import { ValueError, guard, guardAsync } from "../errors.js";
import { AdamW } from "../optim.js";
import { loadPart } from "../wasm-parts.js";
import { Tensor, bind, made } from "../tensor.js";
import { clipGradNorm } from "../train/clip.js";
import type { BufferSpec, ModelBuffers } from "./buffers.js";
import type { RawModel } from "./module.js";
import type { FinetuneOptions } from "./options.js";

type LossGraph = [bytes: Uint8Array, inputs: Uint32Array, buffers: BufferSpec[], tokens: number, targets: number, parameters: Uint32Array];

/** The factor on the learning rate at a step, as in Hugging Face's `get_scheduler`. */
function learningRateFactor(step: number, { schedule = "constant", warmup = 0 }: FinetuneOptions, steps: number): number {
  if (step < warmup) return step / warmup;
  const fraction = (step - warmup) / Math.max(steps - warmup, 1);
  if (schedule === "cosine") return (1 + Math.cos(Math.PI * fraction)) / 2;
  return schedule === "linear" ? 1 - fraction : 1;
}

/** Serialises the state of a run (the adapter's matrices and the optimiser) in the format of native runs. */
async function stateOf(host: Host, parameterTensors: readonly Tensor[], optimizer: AdamW): Promise<Uint8Array> {
  await loadPart(host.engine, "weights");
  const tensors = { ...Object.fromEntries(parameterTensors.map((t, at) => [`${at}.value`, t])), ...optimizer.stateDict() };
  const ids = Uint32Array.from(Object.values(tensors), (t) => bind(t, host).id);
  try {
    return await guardAsync(() => host.raw.saveWeights(Object.keys(tensors), ids) as Promise<Uint8Array>);
  } finally {
    tensors["step"]?.dispose();
  }
}

/** Restores the state of a run; returns the number of steps done. */
async function restoreState(host: Host, parameterTensors: readonly Tensor[], optimizer: AdamW, file: Uint8Array): Promise<number> {
  await loadPart(host.engine, "weights");
  type Entry = [name: string, dtype: string, shape: number[], start: number, end: number];
  const index = guard(() => host.engine.api.safetensorsIndex(file, file.length)) as Entry[];
  const loaded = index.map(([name, dtype, shape, start, end]): [string, Tensor] => {
    if (dtype !== "f32") throw new ValueError("E_VALUE", `finetune: the state's ${name} is of ${dtype}`);
    return [name, new Tensor(new Float32Array(file.slice(start, end).buffer), shape, { device: host })];
  });
  const saved = Object.fromEntries(loaded);
  try {
    const values = parameterTensors.map((t, at): [Tensor, Tensor | undefined] => [t, saved[`${at}.value`]]);
    if (values.some(([t, value]) => String(value?.shape) !== String(t.shape))) {
      throw new ValueError("E_VALUE", "finetune: the state is of another adapter");
    }
    await optimizer.loadStateDict(saved);
    for (const [t, value] of values) await onDevice(host, async () => host.raw.overwrite(bind(t, host).id, bytesOf(await (value as Tensor).data())));
    return await (saved["step"] as Tensor).item();
  } finally {
    for (const [, t] of loaded) t.dispose();
  }
}

const bytesOf = ({ buffer, byteOffset, byteLength }: ArrayBufferView): Uint8Array => new Uint8Array(buffer as ArrayBuffer, byteOffset, byteLength);

/** The result of a run: the final values of the adapter's matrices, the loss of each step, and the serialised state. */
interface TrainingResult {
  values: Uint8Array[];
  losses: number[];
  state: Uint8Array;
}

export async function trainAdapter(
  raw: RawModel,
  modelBuffers: ModelBuffers,
  texts: readonly (readonly number[])[],
  options: FinetuneOptions,
  onStep: (step: number, loss: number) => void,
  resumedAdapter: number | undefined,
): Promise<TrainingResult> {
  const { host } = modelBuffers;
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
  if (state && resumedAdapter === undefined) throw new ValueError("E_VALUE", "finetune: a `state` is of an adapter that goes on: `resume`");
  const tokens = Uint32Array.from(texts.flat());
  const settings = Float64Array.of(rank, alpha, seed, batch, length);
  const lengths = Uint32Array.from(texts, ({ length: n }) => n);
  const lossGraph = guard(() => raw.learn(tokens, lengths, [...targets], settings, resumedAdapter)) as unknown as LossGraph;
  const [bytes, inputs, buffers, ids, targetIds, parameters] = lossGraph;
  modelBuffers.create(buffers);
  const inputIds = inputs.map((buffer) => modelBuffers.tensor(buffer));
  const parameterTensors = Array.from(parameters, (buffer) => made(host, modelBuffers.tensor(buffer)));
  for (const t of parameterTensors) t.requiresGrad = true;
  const losses: number[] = [];
  const optimizer = new AdamW(parameterTensors, { learningRate, weightDecay });
  try {
    const firstStep = state ? await restoreState(host, parameterTensors, optimizer, state) : 0;
    if (firstStep >= steps) throw new ValueError("E_VALUE", `finetune: ${firstStep} steps are done, ${steps} are wanted in all`);
    for (let step = firstStep; step < steps; step += 1) {
      signal?.throwIfAborted();
      optimizer.learningRate = learningRate * learningRateFactor(step, options, steps);
      const batchData = guard(() => raw.lesson(step)) as [Uint8Array, Uint8Array];
      for (const [at, buffer] of [ids, targetIds].entries()) {
        await modelBuffers.overwrite(buffer, batchData[at] as Uint8Array);
      }
      const loss = made(host, guard(() => host.raw.graph(bytes, inputIds))[0] as number);
      try {
        loss.backward();
        clipGradNorm(parameterTensors, maxNorm).dispose();
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
    for (const buffer of parameters) values.push((await onDevice(host, () => host.raw.data(modelBuffers.tensor(buffer), signal))) as Uint8Array);
    return { values, losses, state: await stateOf(host, parameterTensors, optimizer) };
  } finally {
    optimizer.dispose();
    // disposing a wrapper frees the tensor that it wraps
    for (const t of parameterTensors) t.dispose();
    for (const buffer of parameters) modelBuffers.remove(buffer);
    for (const buffer of [ids, targetIds]) {
      host.raw.free(modelBuffers.tensor(buffer));
      modelBuffers.remove(buffer);
    }
    // the device keeps the memory of training steps for the next ones, unless it is told that none follow
    await host.raw.collect();
  }
}
