// The worker's side of models: holds them by id and answers the page's calls.
import { type Device, type DeviceKind, type InitOptions, init, onDevice } from "../device.js";
import { DeviceError, InternalError, StateError, isLost } from "../errors.js";
import { type LoadOptions, type LocalModel, type ModelInput, type RawInput, loadLocal } from "../model.js";
import { type ModuleState, useModule } from "../module.js";
import type { FileSource } from "../progress.js";
import { Tensor, bind } from "../tensor.js";
import type { TuneOptions } from "../tune.js";
import { type ImageInputOptions, imageInput } from "../vision/input.js";
import type { ImageSource } from "../vision/pixels.js";
import { type Context, type Handlers, closePictures } from "./calls.js";
import { deviceHandlers } from "./devices.js";
import { acquireForLife } from "./lock.js";
import { isOnGpu } from "./sources.js";
import { type DeviceInfo, type PostedTensor, type RemoteModelInfo, type RunResult, type TensorRef, graphText, tensorOf } from "./model.js";

const models = new Map<number, LocalModel>();
/** Outputs that stay in the worker (`stay`). */
const tensors = new Map<number, Tensor>();
let lastId = 0;

/** A new id for an object that the page refers to. */
export const newId = (): number => (lastId += 1);

function modelOf(id: number): LocalModel {
  const found = models.get(id);
  if (!found) throw new InternalError("E_INTERNAL", `there is no model ${id}`);
  return found;
}

/** The devices of models, by index. */
const devices: Device[] = [];

function deviceInfo(device: Device): DeviceInfo {
  const { kind, threads, software, relaxedSimd, maxBufferBytes, notes } = device;
  const known = devices.indexOf(device);
  const index = known < 0 ? devices.push(device) - 1 : known;
  return { kind, threads, software, relaxedSimd, maxBufferBytes, notes: [...notes], index };
}

/** A device to start, with the options of the page's `init` if they have changed. */
export interface DeviceRequest {
  device: DeviceKind | "auto";
  settings?: InitOptions;
}

/** Starts a device with the options of the page's `init`. */
export async function startDevice({ device, settings }: DeviceRequest, { signal, notify }: Context): Promise<Device> {
  const debug = settings?.debug !== undefined && { log: (text: string) => notify("log", text) };
  return init({ ...settings, ...debug, device, signal });
}

/** Concatenates the parts of a file. */
function concatenated(parts: Uint8Array[]): Uint8Array {
  if (parts.length === 1) return parts[0] as Uint8Array;
  const out = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

/** Reads a tensor's bytes. */
async function readBytes(t: Tensor, signal: AbortSignal): Promise<Uint8Array> {
  const { host, id } = bind(t);
  return onDevice(host, () => host.raw.data(id, signal) as Promise<Uint8Array>, signal);
}

/** Reads a tensor for posting, and disposes it. */
async function readAndDispose(t: Tensor, signal: AbortSignal): Promise<PostedTensor> {
  const { dtype, shape } = t;
  try {
    return [dtype, [...shape], await readBytes(t, signal)];
  } finally {
    t.dispose();
  }
}

/** Registers a tensor that stays in the worker. */
function keepTensor(t: Tensor): TensorRef {
  const id = newId();
  tensors.set(id, t);
  return [t.dtype, [...t.shape], id];
}

function tensorAt(id: number): Tensor {
  const found = tensors.get(id);
  if (!found) throw new StateError("E_STATE", "this tensor was disposed");
  return found;
}

/** Registers a model and describes it to the page. */
export function registerModel(model: LocalModel): RemoteModelInfo {
  const id = newId();
  models.set(id, model);
  const { inputs, outputs, nodes, parameters, opset, graph } = model;
  return { id, inputs: [...inputs], outputs: [...outputs], nodes, parameters, opset, device: deviceInfo(model.device), graph: graphText(graph) };
}

/** Disposes a model. */
export function disposeModel(id: number): void {
  models.get(id)?.dispose();
  models.delete(id);
}

/** A picture that was posted, and the options of its conversion. */
interface PostedPicture {
  picture: ImageSource;
  options: ImageInputOptions;
}

/** The loss of a device while a picture that the GPU's process may hold was here; the page posts the picture again. */
export const pictureLoss = (): DeviceError =>
  new DeviceError("E_DEVICE_LOST", "the GPU was lost, and with it perhaps the picture", { hint: "draw it and call again" });

/** A request to run a model: inputs are values, posted tensors, ids of tensors in this worker, or pictures. */
interface RunRequest {
  id: number;
  inputs: [string, ModelInput | { tensor: PostedTensor } | { tensorId: number } | PostedPicture][];
  outputs?: string[];
  stay: boolean;
  /** Whether the page wants to be told of progress. */
  progress: boolean;
}

export const modelHandlers: Handlers = {
  ...deviceHandlers("models"),

  begin({ lock, ...state }: ModuleState & { lock: string }): Promise<boolean> {
    useModule(state);
    return acquireForLife(lock);
  },

  async load({ from, device, settings, ...options }: LoadOptions & DeviceRequest & { from: FileSource | Uint8Array[] }, context): Promise<RemoteModelInfo> {
    const { signal, notify } = context;
    await startDevice({ device, ...(settings && { settings }) }, context);
    const onProgress = (progress: unknown): void => notify("onProgress", progress);
    const model = await loadLocal(Array.isArray(from) ? concatenated(from) : from, { ...options, device, signal, onProgress });
    return registerModel(model);
  },

  async run({ id, inputs, outputs, stay, progress }: RunRequest, { signal, notify }): Promise<RunResult> {
    const model = modelOf(id);
    const postedTensors: Tensor[] = [];
    const bound = inputs.map(([name, value]) => {
      const { tensor, tensorId, picture, options } = (value ?? {}) as { tensor?: PostedTensor; tensorId?: number } & Partial<PostedPicture>;
      if (picture !== undefined) return [name, imageInput(picture, options)] as const;
      if (tensorId !== undefined) return [name, tensorAt(tensorId)] as const;
      if (!tensor) return [name, value as ModelInput] as const;
      postedTensors.push(tensorOf(tensor));
      return [name, postedTensors.at(-1) as Tensor] as const;
    });
    const onProgress = progress ? (phase: unknown): void => notify("onProgress", phase) : undefined;
    const hasPicture = inputs.some(([, value]) => isOnGpu((value as Partial<PostedPicture> | null)?.picture));
    const { device: before } = model;
    const runOnce = async (): Promise<RunResult> => {
      const outputTensors = await model.run(Object.fromEntries(bound), { signal, ...(onProgress && { onProgress }), ...(outputs && { outputs }) });
      if (hasPicture && model.device !== before) {
        Object.values(outputTensors).forEach((t) => t.dispose());
        throw pictureLoss();
      }
      const timing = model.timing as NonNullable<typeof model.timing>;
      const toPosted = async (t: Tensor): Promise<PostedTensor | TensorRef> => (stay ? keepTensor(t) : readAndDispose(t, signal));
      const posted = await Promise.all(Object.entries(outputTensors).map(async ([name, t]) => [name, await toPosted(t)] as const));
      return { outputs: Object.fromEntries(posted), timing, notes: model.notes, device: deviceInfo(model.device) };
    };
    try {
      return await runOnce().catch((error: unknown) => {
        if (isLost(error) && hasPicture) throw pictureLoss();
        // the GPU was lost: posted inputs are still here, and the run is repeated on another device
        const canRetry = isLost(error) && model.device.kind === "webgpu" && !signal?.aborted;
        if (!canRetry || bound.some(([, value]) => value instanceof Tensor && !postedTensors.includes(value))) throw error;
        onProgress?.({ phase: "device", loaded: 0, total: 0 });
        return runOnce();
      });
    } finally {
      postedTensors.forEach((t) => t.dispose());
      for (const [, value] of inputs) closePictures(value);
    }
  },

  drifts: ({ id, got, want, tolerance }: { id: number; got: RawInput[]; want: RawInput[]; tolerance: number }) => modelOf(id).drifts(got, want, tolerance),

  strings: ({ id, codes }: { id: number; codes: Int32Array }) => modelOf(id).strings(new Tensor(codes)),

  lost: (index: number) => devices[index]?.lost,

  tune: ({ id, options }: { id: number; options: TuneOptions }, { signal }) => modelOf(id).device.tune({ ...options, signal }),

  read: (id: number, { signal }) => readBytes(tensorAt(id), signal),

  free(id: number): void {
    tensors.get(id)?.dispose();
    tensors.delete(id);
  },

  dispose: disposeModel,
};
