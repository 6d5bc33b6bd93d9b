// Fine-tuning of models from files: all weights, some of them, or low-rank adapters beside them. The entry
// `gradloom/finetune`.
import "./page-chunks.js";
import type { Host } from "./device.js";
import { type DType, isTypedArray } from "./dtype.js";
import { InputError, StateError, ValueError, guard, guardAsync } from "./errors.js";
import { type ImageInput, type LoadOptions, LocalModel, type ModelInput, type Port, inferShape, loadRaw } from "./model.js";
import { Module } from "./nn.js";
import { loadPart, prefetch } from "./wasm-parts.js";
import type { FileSource } from "./progress.js";
import { Tensor, bind, made, realize, source } from "./tensor.js";

/** A value for an input of a network. Pictures are tensors first, by `fromImage`. */
export type NetworkInput = Exclude<ModelInput, ImageInput>;

/** Low-rank adapters (LoRA): the effective weight is `W + alpha / rank * B A`, and only `A` and `B` are trained. */
export interface LoraOptions {
  /** The number of columns of `B` and rows of `A`. */
  rank: number;
  /** Numerator of the scale `alpha / rank`. Default: the rank, for a scale of 1. */
  alpha?: number;
  /**
   * Names of the weights that get an adapter; `*` matches any characters. Default: all weights of matrix products and
   * convolutions.
   */
  weights?: readonly string[];
}

/**
 * Options of `loadNetwork`. The network lives in the thread that calls `loadNetwork`: the page's, or that of your own
 * worker.
 */
export interface NetworkOptions extends Omit<LoadOptions, "worker" | "everyValue"> {
  /** Which weights are trained: `all` (default), or those of these names, in which `*` matches any characters. */
  train?: "all" | readonly string[];
  /** Trains adapters instead; the weights of the file stay as they are. Excludes `train`. */
  lora?: LoraOptions;
}

/** A weight that can be trained. */
export interface Weight {
  name: string;
  dtype: DType;
  shape: readonly number[];
}

type Raw = ReturnType<Host["raw"]["train"]>;
type NamedIds = [name: string, id: number][];

/**
 * A trainable model from a file, made by `loadNetwork`. It is a `Module`: optimisers take its `parameters()`, `fit`
 * takes the network itself. Operators compute what they compute in inference: batch norms keep using the running mean
 * and variance of the file.
 */
export class Network extends Module {
  readonly inputs: readonly Port[];
  readonly outputs: readonly Port[];
  /** All weights that can be trained, whether or not they are. */
  readonly weights: readonly Weight[];
  readonly #host: Host;
  readonly #state: Record<string, Tensor> = {};
  #raw: Raw | undefined;

  /** @internal */
  constructor(host: Host, model: LocalModel, raw: Raw) {
    super();
    [this.inputs, this.outputs] = [model.inputs, model.outputs];
    this.#host = host;
    this.#raw = raw;
    this.weights = (raw.weights() as [string, DType, number[]][]).map(([name, dtype, shape]) => ({ name, dtype, shape }));
    for (const [name, id] of raw.parameters() as NamedIds) {
      this.#state[name] = made(host, id);
      this.#state[name].requiresGrad = true;
    }
  }

  /** The trained tensors by name: weights, or for each weight with an adapter `name.lora_A` and `name.lora_B`. */
  override stateDict(): Record<string, Tensor> {
    return { ...this.#state };
  }

  /** The first output, as a lazy tensor through which gradients flow. A single tensor stands for the first input. */
  forward(inputs: Tensor | Record<string, NetworkInput>): Tensor {
    const [first, ...others] = Object.values(this.all(inputs));
    for (const t of others) t.dispose();
    if (!first) throw new StateError("E_STATE", "the model has no output");
    return first;
  }

  /** All outputs by name, as lazy tensors through which gradients flow. */
  all(inputs: Tensor | Record<string, NetworkInput>): Record<string, Tensor> {
    const raw = this.#requireRaw();
    const [port] = this.inputs;
    const inputsByName = inputs instanceof Tensor ? { [port?.name ?? ""]: inputs } : inputs;
    if (typeof inputsByName !== "object" || inputsByName === null || ArrayBuffer.isView(inputsByName)) {
      throw new ValueError("E_VALUE", "forward takes a tensor, or an object of inputs by name");
    }
    const temporaries: Tensor[] = [];
    try {
      const list = Object.entries(inputsByName).map(([name, value]) => this.#rawInput(name, value, temporaries));
      const out = guard(() => raw.forward(list)) as NamedIds;
      return Object.fromEntries(out.map(([name, id]) => [name, made(this.#host, id)]));
    } finally {
      for (const t of temporaries) t.dispose();
    }
  }

  /** Computes the outputs and gives them by name. */
  async run(inputs: Tensor | Record<string, NetworkInput>, options: { signal?: AbortSignal } = {}): Promise<Record<string, Tensor>> {
    options.signal?.throwIfAborted();
    // outputs of models in the page's worker may still be in that thread
    const inputList = inputs instanceof Tensor ? [inputs] : Object.values(inputs ?? {});
    await Promise.all(inputList.map((t) => (t instanceof Tensor ? Tensor.landed(t, options.signal) : undefined)));
    const out = this.all(inputs);
    try {
      await realize(Object.values(out), options);
    } catch (error) {
      for (const t of Object.values(out)) t.dispose();
      throw error;
    }
    return out;
  }

  /**
   * Serialises the model to an ONNX file with the current weights, adapters merged into theirs. `load` reads it, and so
   * does any other runtime.
   */
  async save(): Promise<Uint8Array> {
    const raw = this.#requireRaw();
    const host = this.#host;
    const namedTensors = (guard(() => raw.values()) as NamedIds).map(([name, id]) => [name, made(host, id)] as const);
    try {
      await realize(namedTensors.map(([, t]) => t));
      const values: [string, DType, readonly number[], Uint8Array][] = [];
      for (const [name, t] of namedTensors) {
        values.push([name, t.dtype, t.shape, await guardAsync(() => host.raw.data(bind(t).id, undefined) as Promise<Uint8Array>)]);
      }
      return guard(() => raw.file(values));
    } finally {
      for (const [, t] of namedTensors) t.dispose();
    }
  }

  #rawInput(name: string, value: NetworkInput, temporaries: Tensor[]): readonly unknown[] {
    const port = this.inputs.find((each) => each.name === (each.sequence ? name.replace(/\[\d+\]$/, "") : name));
    let t = value as Tensor;
    if (!(value instanceof Tensor)) {
      if (port?.dtype === "string") throw new InputError("E_INPUT", `input \`${name}\`: a network that learns takes no strings`);
      const dtype = port?.dtype ? { dtype: port.dtype } : {};
      t = new Tensor(value as number[], isTypedArray(value) ? inferShape(name, port, value.length) : null, dtype);
      temporaries.push(t);
    }
    const bytes = source(t);
    // a few integers may determine shapes: pass them as bytes while their values are on the host
    if (bytes && !bytes.dtype.includes("f") && t.size <= 16) return [name, bytes.dtype, bytes.shape, bytes.bytes];
    return [name, bind(t, this.#host).id];
  }

  #requireRaw(): Raw {
    if (!this.#raw) throw new StateError("E_STATE", "this network was disposed");
    return this.#raw;
  }

  override dispose(): void {
    super.dispose();
    this.#raw?.free();
    this.#raw = undefined;
  }
}

/**
 * Loads an ONNX or TensorFlow Lite model for training. Fails with `E_DTYPE`, which names them, if weights to be trained
 * are quantised, and with `E_VALUE` for a name that matches no weight.
 */
export async function loadNetwork(from: FileSource, options: NetworkOptions = {}): Promise<Network> {
  const { train = "all", lora } = options;
  if (lora && !(Number.isInteger(lora.rank) && lora.rank > 0)) throw new ValueError("E_VALUE", `lora: a rank of ${lora.rank}`);
  if (lora && options.train) throw new ValueError("E_VALUE", "loadNetwork: `train` and `lora` exclude each other");
  if (train !== "all" && train.length === 0) throw new ValueError("E_VALUE", "loadNetwork: `train` names no weight");
  prefetch("learn");
  const { host, id } = await loadRaw(from, options);
  const model = new LocalModel(host, id, false, false);
  try {
    await guardAsync(() => loadPart(host.engine, "learn"), options.signal);
    const patterns = [...(lora ? (lora.weights ?? []) : train === "all" ? [] : train)];
    const raw = guard(() => host.raw.train(id, patterns, lora?.rank ?? 0, lora?.alpha ?? lora?.rank ?? 0));
    const network = new Network(host, model, raw);
    await realize(Object.values(network.stateDict()), options.signal ? { signal: options.signal } : {});
    return network;
  } finally {
    model.dispose();
  }
}
