// The page's side of models in the worker, with the interface of local models.
import { type Device, type DeviceKind, type DeviceLost, type Timing, open, useByDefault } from "../device.js";
import { type DType, decode, isTypedArray } from "../dtype.js";
import { DeviceError, StateError, ValueError, guardAsync } from "../errors.js";
import { type Drift, type Graph, type LoadOptions, type Model, type ModelInput, type Port, type RawInput, type RunOptions, compared, rawOf } from "../model.js";
import { type FileSource, type Progress, checkSource, readSource } from "../progress.js";
import { type Away, Tensor, awayTensor, source } from "../tensor.js";
import { type TuneOptions, type TunedKernel } from "../tune.js";
import { type Calls, packed } from "./calls.js";
import { copied, inParts } from "./copies.js";
import { fileFor as otherFile } from "./sources.js";
import { becomesBetterHere, deviceIn, isBetterHere, worker } from "../remote-start.js";

/** The worker's description of a model. */
export interface Told {
  id: number;
  inputs: Port[];
  outputs: Port[];
  nodes: number;
  parameters: number;
  opset: number;
  device: Facts;
  /** The graph as JSON, see `graphText`. */
  graph: Uint8Array;
}

/** The properties of a device, and its index in the worker. */
export type Facts = Pick<Device, "kind" | "threads" | "software" | "relaxedSimd" | "maxBufferBytes" | "notes"> & { number: number };

/** A tensor for posting between threads. */
export type Sent = readonly [dtype: DType, shape: readonly number[], bytes: Uint8Array];

/** A tensor that stays in the worker, by id. */
export type Held = readonly [dtype: DType, shape: readonly number[], id: number];

/** The result of a run. */
export interface Ran {
  outputs: Record<string, Sent | Held>;
  timing: Timing;
  notes: readonly string[];
  device: Facts;
}

const lost = new FinalizationRegistry(({ calls, id }: { calls: Calls; id: number }) => void calls.ask("dispose", id).catch(() => {}));

const forgotten = new FinalizationRegistry(({ calls, id }: { calls: Calls; id: number }) => free(calls, id));
const free = (calls: Calls, id: number): void => void calls.ask("free", id).catch(() => {});

/** The value of a tensor that is in the worker. */
class Elsewhere implements Away {
  readonly dtype: DType;
  readonly shape: readonly number[];
  readonly device: Device;
  readonly calls: Calls;
  readonly id: number;

  constructor(calls: Calls, device: Device, [dtype, shape, id]: Held) {
    [this.calls, this.device, this.dtype, this.shape, this.id] = [calls, device, dtype, Object.freeze(shape), id];
  }

  bytes(signal?: AbortSignal): Promise<Uint8Array> {
    return this.calls.ask("read", this.id, { signal });
  }

  free(): void {
    forgotten.unregister(this);
    free(this.calls, this.id);
  }

  /** Wraps it as a tensor of this thread. */
  tensor(): Tensor {
    const t = awayTensor(this);
    forgotten.register(t, { calls: this.calls, id: this.id }, this);
    return t;
  }
}

/** A device in the worker: a description only, as no tensor of the page can be on it. */
class RemoteDevice {
  constructor(calls: Calls, id: number, { number, ...facts }: Facts) {
    Object.assign(this, facts);
    const tune = ({ signal, ...options }: TuneOptions = {}): Promise<TunedKernel[]> => calls.ask("tune", { id, options }, { signal });
    const dispose = (): void => {
      throw new StateError("E_STATE", "dispose: only isolated devices end");
    };
    const elsewhere = (): never => {
      throw new DeviceError("E_DEVICE", "this device is in a worker: tensors of the page cannot be on it", { hint: "load the model with `worker: false`" });
    };
    const own = { tune, gpuDevice: async () => elsewhere(), dispose, [Symbol.dispose]: dispose };
    for (const name of Reflect.ownKeys(own)) Object.defineProperty(this, name, { value: own[name as keyof typeof own] });
    Object.defineProperty(this, "raw", { get: elsewhere });
    let lost: Promise<DeviceLost> | undefined;
    // if the worker ends without an answer, its end is the reason
    const ask = (): Promise<DeviceLost> => calls.ask<DeviceLost>("lost", number).catch(({ message }: Error) => ({ reason: "unknown", message }));
    Object.defineProperty(this, "lost", { get: () => (lost ??= ask()) });
    Object.freeze(this);
  }
}

/** A model that runs in the worker. */
export class RemoteModel implements Model {
  readonly inputs: readonly Port[];
  readonly outputs: readonly Port[];
  readonly nodes: number;
  readonly parameters: number;
  readonly opset: number;
  readonly #calls: Calls;
  #id: number | undefined;
  #device: Device;
  #deviceNumber: number;
  #timing: Timing | undefined;
  #notes: readonly string[] = [];
  #graph: Uint8Array | Graph;

  /** The object that owns and frees the model, if it is part of an opened task. */
  readonly owner: object | undefined;

  constructor(calls: Calls, { id, device, graph, ...info }: Told, owner?: object) {
    this.inputs = info.inputs;
    this.outputs = info.outputs;
    this.nodes = info.nodes;
    this.parameters = info.parameters;
    this.opset = info.opset;
    this.#calls = calls;
    this.#id = id;
    this.#device = new RemoteDevice(calls, id, device) as unknown as Device;
    this.#deviceNumber = device.number;
    this.#graph = graph;
    this.owner = owner;
    if (!owner) lost.register(this, { calls, id }, this);
  }

  get graph(): Graph {
    this.#live();
    if (this.#graph instanceof Uint8Array) this.#graph = graphOf(this.#graph);
    return this.#graph;
  }

  get device(): Device {
    return this.#device;
  }

  get timing(): Timing | undefined {
    return this.#timing;
  }

  get notes(): readonly string[] {
    return this.#notes;
  }

  async run(inputs: Record<string, ModelInput>, options: RunOptions = {}): Promise<Record<string, Tensor>> {
    const { signal, onProgress, outputs, stay = false } = options;
    signal?.throwIfAborted();
    const id = this.#live();
    if (typeof inputs !== "object" || inputs === null || inputs instanceof Tensor || ArrayBuffer.isView(inputs)) {
      throw new ValueError("E_VALUE", "run takes an object of inputs by name");
    }
    const given = await Promise.all(Object.entries(inputs).map(async ([name, value]) => [name, await this.#sent(value, signal)] as const));
    const transfer = new Set<Transferable>();
    const args = { id, inputs: given.map(([name, each]) => [name, packed(each, transfer).value]), stay, ...(outputs && { outputs }) };
    const told = { onProgress: (progress: Progress): void => onProgress?.(progress) };
    const late = ({ outputs: all }: Ran): void => Object.values(all).forEach((each) => isHeld(each) && free(this.#calls, each[2]));
    const ran = await this.#calls.ask<Ran>("run", args, { signal, told, transfer, late }).catch((error: unknown) => {
      if ((error as Error).name !== "DataCloneError") throw error;
      throw new ValueError("E_VALUE", `run: an input holds what is no number: ${(error as Error).message}`, { cause: error });
    });
    [this.#timing, this.#notes] = [ran.timing, ran.notes];
    if (ran.device.number !== this.#deviceNumber) {
      this.#device = new RemoteDevice(this.#calls, id, ran.device) as unknown as Device;
      this.#deviceNumber = ran.device.number;
    }
    const here = (each: Sent | Held): Tensor => (isHeld(each) ? new Elsewhere(this.#calls, this.#device, each).tensor() : tensorOf(each));
    return Object.fromEntries(Object.entries(ran.outputs).map(([name, each]) => [name, here(each)]));
  }

  /**
   * Converts an input to a form that can be posted: by id if the tensor is in the worker. Values that the caller keeps
   * are copied.
   */
  async #sent(value: ModelInput, signal?: AbortSignal): Promise<unknown> {
    if (isTypedArray(value)) return copied(value, signal);
    if (!(value instanceof Tensor)) return value;
    const away = Tensor.away(value);
    if (away instanceof Elsewhere && away.calls === this.#calls) return { held: away.id };
    const [, dtype, shape, bytes] = await rawOf("", value, signal);
    return { tensor: [dtype, shape, source(value) ? await copied(bytes, signal) : bytes] };
  }

  compare(reference: Model, inputs: Record<string, ModelInput>, options: RunOptions & { tolerance?: number } = {}): Promise<Drift[]> {
    return compared(this, reference, inputs, options);
  }

  /** @internal */
  drifts(got: RawInput[], want: RawInput[], tolerance: number): Promise<Drift[]> {
    return this.#calls.ask("drifts", { id: this.#live(), got, want, tolerance });
  }

  async strings(output: Tensor): Promise<string[]> {
    const { value, transfer } = packed(await output.data("i32"));
    return this.#calls.ask("strings", { id: this.#live(), codes: value }, { transfer });
  }

  #live(): number {
    if (this.#id === undefined) throw new StateError("E_STATE", "this model was disposed");
    return this.#id;
  }

  dispose(): void {
    if (this.#id === undefined) return;
    lost.unregister(this);
    void this.#calls.ask("dispose", this.#id).catch(() => {});
    this.#id = undefined;
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

const isHeld = (each: Sent | Held): each is Held => typeof each[2] === "number";

/** Creates a tensor from a posted one. */
export function tensorOf([dtype, shape, bytes]: Sent): Tensor {
  return new Tensor(decode(bytes, dtype), shape, { dtype });
}

/** Marks numbers that JSON lacks: BigInts, infinities and NaN. */
const MARK = "$number";

/** Serialises a graph as JSON text; the page parses it only on request. */
export function graphText(graph: Graph): Uint8Array {
  const written = (_: string, value: unknown): unknown => {
    const plain = typeof value !== "bigint" && !(typeof value === "number" && !Number.isFinite(value));
    return plain ? value : { [MARK]: typeof value === "bigint" ? `${value}n` : String(value) };
  };
  return new TextEncoder().encode(JSON.stringify(graph, written));
}

function graphOf(text: Uint8Array): Graph {
  const read = (_: string, value: unknown): unknown => {
    const mark = typeof value === "object" && value && (value as Record<string, unknown>)[MARK];
    if (typeof mark !== "string") return value;
    return mark.endsWith("n") ? BigInt(mark.slice(0, -1)) : Number(mark);
  };
  return JSON.parse(new TextDecoder().decode(text), read) as Graph;
}

/** Converts a file's source for the worker: an address, a file, or bytes in parts. */
async function fileFor(from: FileSource, options: LoadOptions): Promise<unknown> {
  checkSource(from);
  const isPath = typeof from === "string" || from instanceof URL;
  if (isPath && !options.fetch) return new URL(from, globalThis.location?.href).href;
  if (from instanceof Blob) return from;
  // a custom `fetch` runs in this thread, and its result is posted
  return inParts(await readSource(from, options), options.signal);
}

/** Loads a model in the page's worker; null if that is not possible. */
export async function loadRemote(from: FileSource, options: LoadOptions): Promise<Model | null> {
  const { signal, onProgress, fetch: _, device, worker: __, files, ...rest } = options;
  signal?.throwIfAborted();
  const kind = device as DeviceKind | "auto" | undefined;
  // the page's own device, for operators on the outputs
  const here = open(kind ?? "auto");
  here.catch(() => {});
  const file = fileFor(from, options);
  file.catch(() => {});
  if (isBetterHere()) return null;
  const calls = await guardAsync(worker, signal);
  if (!calls) return null;
  const others = await Promise.all(Object.entries(files ?? {}).map(async ([name, each]) => [name, await otherFile(each, signal)] as const));
  const { value, transfer } = packed({ ...rest, from: await file, ...(files && { files: Object.fromEntries(others) }), ...deviceIn(kind) });
  const told = { onProgress: (progress: Progress): void => onProgress?.(progress) };
  const late = ({ id }: Told): void => void calls.ask("dispose", id).catch(() => {});
  const model = new RemoteModel(calls, await calls.ask<Told>("load", value, { signal, told, transfer, late }));
  const host = await guardAsync(() => here, signal);
  useByDefault(host);
  if (!(await becomesBetterHere(kind, model.device.kind))) return model;
  model.dispose();
  return null;
}
