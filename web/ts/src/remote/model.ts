// The page's side of models in the worker, with the interface of local models.
import { type Device, type DeviceKind, type DeviceLost, type Timing, open, useByDefault } from "../device.js";
import { type DType, decode, isTypedArray } from "../dtype.js";
import { DeviceError, StateError, ValueError, guardAsync, isLost, withInputHint } from "../errors.js";
import {
  type Drift, type Graph, type LoadOptions, type Model, type ModelInput, type Port, type RawInput, type RunOptions, compareModels, isImageInput, rawOf,
} from "../model.js";
import { type FileSource, type Progress, checkSource, readSource } from "../progress.js";
import { type Away, Tensor, awayTensor, source } from "../tensor.js";
import { type TuneOptions, type TunedKernel } from "../tune.js";
import { type RpcClient, packValue } from "./calls.js";
import { copyArray, copyInParts } from "./copies.js";
import { fileForWorker as otherFile, pictureAfterLoss, pictureForWorker, pictureOfFile, pixelsForWorker } from "./sources.js";
import type { ImageSource } from "../vision/pixels.js";
import { deviceRequest, pageFunctions, prefersPage, updatePrefersPage, workerClient } from "../remote-start.js";

/** Converts a picture for posting. */
type PostPicture = (source: ImageSource, signal?: AbortSignal) => Promise<unknown>;

/** The worker's description of a model. */
export interface RemoteModelInfo {
  id: number;
  inputs: Port[];
  outputs: Port[];
  nodes: number;
  parameters: number;
  opset: number;
  device: DeviceInfo;
  /** The graph as JSON, see `graphText`. */
  graph: Uint8Array;
}

/** The properties of a device, and its index in the worker. */
export type DeviceInfo = Pick<Device, "kind" | "threads" | "software" | "relaxedSimd" | "maxBufferBytes" | "notes"> & { index: number };

/** A tensor for posting between threads. */
export type PostedTensor = readonly [dtype: DType, shape: readonly number[], bytes: Uint8Array];

/** A tensor that stays in the worker, by id. */
export type TensorRef = readonly [dtype: DType, shape: readonly number[], id: number];

/** The result of a run. */
export interface RunResult {
  outputs: Record<string, PostedTensor | TensorRef>;
  timing: Timing;
  notes: readonly string[];
  device: DeviceInfo;
}

const modelRegistry = new FinalizationRegistry(({ client, id }: { client: RpcClient; id: number }) => void client.call("dispose", id).catch(() => {}));

const tensorRegistry = new FinalizationRegistry(({ client, id }: { client: RpcClient; id: number }) => freeTensor(client, id));
const freeTensor = (client: RpcClient, id: number): void => void client.call("free", id).catch(() => {});

/** The value of a tensor that is in the worker. */
class WorkerTensor implements Away {
  readonly dtype: DType;
  readonly shape: readonly number[];
  readonly device: Device;
  readonly client: RpcClient;
  readonly id: number;

  constructor(client: RpcClient, device: Device, [dtype, shape, id]: TensorRef) {
    [this.client, this.device, this.dtype, this.shape, this.id] = [client, device, dtype, Object.freeze(shape), id];
  }

  bytes(signal?: AbortSignal): Promise<Uint8Array> {
    return this.client.call("read", this.id, { signal });
  }

  free(): void {
    tensorRegistry.unregister(this);
    freeTensor(this.client, this.id);
  }

  /** Wraps it as a tensor of this thread. */
  tensor(): Tensor {
    const t = awayTensor(this);
    tensorRegistry.register(t, { client: this.client, id: this.id }, this);
    return t;
  }
}

/** A device in the worker: a description only, as no tensor of the page can be on it. */
class RemoteDevice {
  constructor(client: RpcClient, id: number, { index, ...properties }: DeviceInfo) {
    Object.assign(this, properties);
    const tune = ({ signal, ...options }: TuneOptions = {}): Promise<TunedKernel[]> => client.call("tune", { id, options }, { signal });
    const dispose = (): void => {
      throw new StateError("E_STATE", "dispose: only isolated devices end");
    };
    const rejectUse = (): never => {
      throw new DeviceError("E_DEVICE", "this device is in a worker: tensors of the page cannot be on it", { hint: "load the model with `worker: false`" });
    };
    const members = { tune, gpuDevice: async () => rejectUse(), dispose, [Symbol.dispose]: dispose };
    for (const name of Reflect.ownKeys(members)) Object.defineProperty(this, name, { value: members[name as keyof typeof members] });
    Object.defineProperty(this, "raw", { get: rejectUse });
    let lost: Promise<DeviceLost> | undefined;
    // if the worker ends without an answer, its end is the reason
    const askWorker = (): Promise<DeviceLost> => client.call<DeviceLost>("lost", index).catch(({ message }: Error) => ({ reason: "unknown", message }));
    Object.defineProperty(this, "lost", { get: () => (lost ??= askWorker()) });
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
  #client: RpcClient;
  readonly #restore: Restore;
  #restoring: Promise<void> | undefined;
  #id: number | undefined;
  #device: Device;
  #deviceIndex: number;
  #timing: Timing | undefined;
  #notes: readonly string[] = [];
  #graph: Uint8Array | Graph;

  /** The object that owns and frees the model, if it is part of an opened task. */
  readonly owner: object | undefined;

  constructor(client: RpcClient, { id, device, graph, ...info }: RemoteModelInfo, restore: Restore, owner?: object) {
    this.inputs = info.inputs;
    this.outputs = info.outputs;
    this.nodes = info.nodes;
    this.parameters = info.parameters;
    this.opset = info.opset;
    this.#restore = restore;
    this.#client = client;
    this.#id = id;
    this.#device = new RemoteDevice(client, id, device) as unknown as Device;
    this.#deviceIndex = device.index;
    this.#graph = graph;
    this.owner = owner;
    if (!owner) modelRegistry.register(this, { client, id }, this);
  }

  get graph(): Graph {
    this.#liveId();
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
    await this.#ensureWorker(signal);
    const id = this.#liveId();
    if (typeof inputs !== "object" || inputs === null || inputs instanceof Tensor || ArrayBuffer.isView(inputs)) {
      throw new ValueError("E_VALUE", "run takes an object of inputs by name");
    }
    const callbacks = { onProgress: (progress: Progress): void => onProgress?.(progress) };
    const onLate = ({ outputs: tensors }: RunResult): void => Object.values(tensors).forEach((each) => isTensorRef(each) && freeTensor(this.#client, each[2]));
    const runInWorker = async (postPicture: PostPicture): Promise<RunResult> => {
      const post = async ([name, value]: [string, ModelInput]): Promise<[string, unknown]> => [name, await this.#toPosted(value, postPicture, signal)];
      const posted = await Promise.all(Object.entries(inputs).map(post));
      const transfer = new Set<Transferable>();
      const packed = posted.map(([name, each]) => [name, packValue(each, transfer).value]);
      const args = { id, inputs: packed, stay, progress: onProgress !== undefined, ...(outputs && { outputs }) };
      return this.#client.call<RunResult>("run", args, { signal, callbacks, transfer, onLate });
    };
    const result = await runInWorker(pictureForWorker).catch(async (error: unknown) => {
      const hasPicture = Object.values(inputs).some(isImageInput);
      if (isLost(error) && hasPicture && !this.#client.ended) return runInWorker((source) => pictureAfterLoss(source, error, signal));
      if ((error as Error).name !== "DataCloneError") throw await withInputHint(error);
      // a picture of another origin: reading it in this thread gives the proper error
      if (hasPicture) return runInWorker(pixelsForWorker);
      throw new ValueError("E_VALUE", `run: an input holds what is no number: ${(error as Error).message}`, { cause: error });
    });
    [this.#timing, this.#notes] = [result.timing, result.notes];
    if (result.device.index !== this.#deviceIndex) {
      this.#device = new RemoteDevice(this.#client, id, result.device) as unknown as Device;
      this.#deviceIndex = result.device.index;
    }
    const toTensor = (each: PostedTensor | TensorRef): Tensor =>
      isTensorRef(each) ? new WorkerTensor(this.#client, this.#device, each).tensor() : tensorOf(each);
    return Object.fromEntries(Object.entries(result.outputs).map(([name, each]) => [name, toTensor(each)]));
  }

  /**
   * Converts an input to a form that can be posted: by id if the tensor is in the worker. Values that the caller keeps
   * are copied.
   */
  async #toPosted(value: ModelInput, postPicture: PostPicture, signal?: AbortSignal): Promise<unknown> {
    if (isImageInput(value)) return { picture: await postPicture(value.source as ImageSource, signal), options: value.options };
    if (isTypedArray(value)) return copyArray(value, signal);
    if (!(value instanceof Tensor)) return value;
    const away = Tensor.away(value);
    if (away instanceof WorkerTensor && away.client === this.#client) return { tensorId: away.id };
    const [, dtype, shape, bytes] = await rawOf("", value, signal);
    return { tensor: [dtype, shape, source(value) ? await copyArray(bytes, signal) : bytes] };
  }

  /** Loads the model again if its worker has ended; one attempt for all who wait. */
  #ensureWorker(signal?: AbortSignal): Promise<void> | undefined {
    this.#liveId();
    if (!this.#client.ended) return undefined;
    const restore = async (): Promise<void> => {
      const restored = await this.#restore();
      if (!restored) return;
      if (this.#id === undefined) return void restored.client.call("dispose", restored.info.id).catch(() => {});
      this.moveTo(restored);
    };
    return guardAsync(() => (this.#restoring ??= restore().finally(() => (this.#restoring = undefined))), signal);
  }

  /** @internal Continues with the same model in another worker. */
  moveTo({ client, info }: Restored): void {
    if (!this.owner) modelRegistry.unregister(this);
    [this.#client, this.#id, this.#deviceIndex] = [client, info.id, info.device.index];
    this.#device = new RemoteDevice(client, info.id, info.device) as unknown as Device;
    if (!this.owner) modelRegistry.register(this, { client, id: info.id }, this);
  }

  compare(reference: Model, inputs: Record<string, ModelInput>, options: RunOptions & { tolerance?: number } = {}): Promise<Drift[]> {
    return compareModels(this, reference, inputs, options);
  }

  /** @internal */
  async drifts(got: RawInput[], want: RawInput[], tolerance: number): Promise<Drift[]> {
    await this.#ensureWorker();
    return this.#client.call("drifts", { id: this.#liveId(), got, want, tolerance });
  }

  async strings(output: Tensor): Promise<string[]> {
    const { value, transfer } = packValue(await output.data("i32"));
    return this.#client.call("strings", { id: this.#liveId(), codes: value }, { transfer });
  }

  #liveId(): number {
    if (this.#id === undefined) throw new StateError("E_STATE", "this model was disposed");
    return this.#id;
  }

  dispose(): void {
    if (this.#id === undefined) return;
    modelRegistry.unregister(this);
    void this.#client.call("dispose", this.#id).catch(() => {});
    this.#id = undefined;
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

const isTensorRef = (each: PostedTensor | TensorRef): each is TensorRef => typeof each[2] === "number";

/** Creates a tensor from a posted one. */
export function tensorOf([dtype, shape, bytes]: PostedTensor): Tensor {
  return new Tensor(decode(bytes, dtype), shape, { dtype });
}

/** Marks numbers that JSON lacks: BigInts, infinities and NaN. */
const NUMBER_KEY = "$number";

/** Serialises a graph as JSON text; the page parses it only on request. */
export function graphText(graph: Graph): Uint8Array {
  const replacer = (_: string, value: unknown): unknown => {
    const isPlain = typeof value !== "bigint" && !(typeof value === "number" && !Number.isFinite(value));
    return isPlain ? value : { [NUMBER_KEY]: typeof value === "bigint" ? `${value}n` : String(value) };
  };
  return new TextEncoder().encode(JSON.stringify(graph, replacer));
}

function graphOf(text: Uint8Array): Graph {
  const reviver = (_: string, value: unknown): unknown => {
    const mark = typeof value === "object" && value && (value as Record<string, unknown>)[NUMBER_KEY];
    if (typeof mark !== "string") return value;
    return mark.endsWith("n") ? BigInt(mark.slice(0, -1)) : Number(mark);
  };
  return JSON.parse(new TextDecoder().decode(text), reviver) as Graph;
}

/** Converts a file's source for the worker: an address, a file, or bytes in parts. */
async function fileForWorker(from: FileSource, options: LoadOptions): Promise<unknown> {
  checkSource(from);
  const isPath = typeof from === "string" || from instanceof URL;
  if (isPath && !options.fetch) return new URL(from, globalThis.location?.href).href;
  if (from instanceof Blob) return from;
  // a custom `fetch` runs in this thread, and its result is posted
  return copyInParts(await readSource(from, options), options.signal);
}

/**
 * The source of a file for a later load. Addresses, files and blobs are kept; of bytes only what the page itself still
 * holds, since they may be large.
 */
export function sourceForLater(from: FileSource): () => FileSource {
  const isBytes = from instanceof ArrayBuffer || ArrayBuffer.isView(from);
  if (!isBytes || typeof WeakRef === "undefined") return () => from;
  const bytes = new WeakRef(from);
  return () => {
    const found = bytes.deref();
    if (found && found.byteLength > 0) return found;
    const hint = "load the model again with its bytes; from an address, a File or a Blob the package does that itself";
    throw new DeviceError("E_DEVICE_LOST", "the worker that held this model has ended, and the page no longer has the bytes that it was loaded from", { hint });
  };
}

/** A model in a worker. */
export interface Restored {
  client: RpcClient;
  info: RemoteModelInfo;
}

/** Loads a model again in the page's present worker, and gives it unless the model has moved there already (`moveTo`). */
export type Restore = () => Promise<Restored | void>;

/** The error where the page has had a worker, and the browser refuses another one. */
export const noOtherWorker = (): DeviceError =>
  new DeviceError("E_DEVICE_LOST", "the worker of the page's models has ended, and the browser does not start another one", {
    hint: "reload the page, or load the model with `worker: false`",
  });

/** Loads a model in the page's worker; null if the browser refuses the worker. */
async function loadInWorker(from: FileSource, options: LoadOptions): Promise<Restored | null> {
  const { signal, onProgress, fetch: _, device, worker: __, files, ...rest } = options;
  const file = fileForWorker(from, options);
  file.catch(() => {});
  const client = await guardAsync(workerClient, signal);
  if (!client) return null;
  // files of pictures that only a page decodes
  Object.assign(pageFunctions, { pictureOfFile });
  const postedFiles = await Promise.all(Object.entries(files ?? {}).map(async ([name, each]) => [name, await otherFile(each, signal)] as const));
  const request = deviceRequest(device as DeviceKind | "auto" | undefined);
  const { value, transfer } = packValue({ ...rest, from: await file, ...(files && { files: Object.fromEntries(postedFiles) }), ...request });
  const callbacks = { onProgress: (progress: Progress): void => onProgress?.(progress) };
  const onLate = ({ id }: RemoteModelInfo): void => void client.call("dispose", id).catch(() => {});
  return { client, info: await client.call<RemoteModelInfo>("load", value, { signal, callbacks, transfer, onLate }) };
}

/** Loads a model in the page's worker; null if that is not possible. */
export async function loadRemote(from: FileSource, options: LoadOptions): Promise<Model | null> {
  const { signal, onProgress: _, files: given, ...lasting } = options;
  signal?.throwIfAborted();
  const kind = options.device as DeviceKind | "auto" | undefined;
  // the page's own device, for operators on the outputs
  const pageDevice = open(kind ?? "auto");
  pageDevice.catch(() => {});
  if (prefersPage()) return null;
  const loaded = await loadInWorker(from, options);
  if (!loaded) return null;
  const again = sourceForLater(from);
  const files = Object.entries(given ?? {}).map(([name, each]) => [name, sourceForLater(each)] as const);
  const restore = async (): Promise<Restored> => {
    const filesAgain = given && { files: Object.fromEntries(files.map(([name, each]) => [name, each()])) };
    const restored = await loadInWorker(again(), { ...lasting, ...filesAgain });
    if (!restored) throw noOtherWorker();
    return restored;
  };
  const model = new RemoteModel(loaded.client, loaded.info, restore);
  const pageHost = await guardAsync(() => pageDevice, signal);
  useByDefault(pageHost);
  if (!(await updatePrefersPage(kind, model.device.kind))) return model;
  model.dispose();
  return null;
}
