// The worker's side of models: holds them by id and answers the page's calls.
import { type Device, type DeviceKind, type InitOptions, clearCache, flushCache, init, memory, onDevice, stats } from "../device.js";
import { InternalError, StateError, isLost } from "../errors.js";
import { type LoadOptions, type LocalModel, type ModelInput, type RawInput, loadLocal } from "../model.js";
import { type ModuleState, useModule } from "../module.js";
import type { FileSource } from "../progress.js";
import { Tensor, bind } from "../tensor.js";
import type { TuneOptions } from "../tune.js";
import type { Answers, Context } from "./calls.js";
import { type Facts, type Held, type Ran, type Sent, type Told, graphText, tensorOf } from "./model.js";

const models = new Map<number, LocalModel>();
/** Outputs that stay in the worker (`stay`). */
const tensors = new Map<number, Tensor>();
let next = 0;

/** A new id for an object that the page refers to. */
export const newNumber = (): number => (next += 1);

function modelOf(id: number): LocalModel {
  const found = models.get(id);
  if (!found) throw new InternalError("E_INTERNAL", `there is no model ${id}`);
  return found;
}

/** The devices of models, by index. */
const devices: Device[] = [];

function facts(device: Device): Facts {
  const { kind, threads, software, relaxedSimd, maxBufferBytes, notes } = device;
  const known = devices.indexOf(device);
  const number = known < 0 ? devices.push(device) - 1 : known;
  return { kind, threads, software, relaxedSimd, maxBufferBytes, notes: [...notes], number };
}

/** A device to start, with the options of the page's `init` if they have changed. */
export interface Start {
  device: DeviceKind | "auto";
  settings?: InitOptions;
}

/** Starts a device with the options of the page's `init`. */
export async function started({ device, settings }: Start, { signal, tell }: Context): Promise<Device> {
  const debug = settings?.debug !== undefined && { log: (text: string) => tell("log", text) };
  return init({ ...settings, ...debug, device, signal });
}

/** Concatenates the parts of a file. */
function whole(parts: Uint8Array[]): Uint8Array {
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
async function bytesOf(t: Tensor, signal: AbortSignal): Promise<Uint8Array> {
  const { host, id } = bind(t);
  return onDevice(host, () => host.raw.data(id, signal) as Promise<Uint8Array>, signal);
}

/** Reads a tensor for posting, and disposes it. */
async function taken(t: Tensor, signal: AbortSignal): Promise<Sent> {
  const { dtype, shape } = t;
  try {
    return [dtype, [...shape], await bytesOf(t, signal)];
  } finally {
    t.dispose();
  }
}

/** Registers a tensor that stays in the worker. */
function held(t: Tensor): Held {
  const id = newNumber();
  tensors.set(id, t);
  return [t.dtype, [...t.shape], id];
}

function tensorAt(id: number): Tensor {
  const found = tensors.get(id);
  if (!found) throw new StateError("E_STATE", "this tensor was disposed");
  return found;
}

/** Registers a model and describes it to the page. */
export function told(model: LocalModel): Told {
  const id = newNumber();
  models.set(id, model);
  const { inputs, outputs, nodes, parameters, opset, graph } = model;
  return { id, inputs: [...inputs], outputs: [...outputs], nodes, parameters, opset, device: facts(model.device), graph: graphText(graph) };
}

/** Disposes a model. */
export function disposed(id: number): void {
  models.get(id)?.dispose();
  models.delete(id);
}

/**
 * Acquires the lock by which the page detects the end of this thread, and holds it for life; false if the browser has
 * no locks.
 */
function holds(lock: string): Promise<boolean> {
  const { locks } = globalThis.navigator;
  if (!locks) return Promise.resolve(false);
  return new Promise((done) => {
    const forever = new Promise<void>(() => {});
    locks.request(lock, () => {
      done(true);
      return forever;
    }).catch(() => done(false));
  });
}

/** A request to run a model: inputs are values, posted tensors, or ids of tensors in this worker. */
interface Run {
  id: number;
  inputs: [string, ModelInput | { tensor: Sent } | { held: number }][];
  outputs?: string[];
  stay: boolean;
}

const marked = <T>(rows: T[]): (T & { worker: true })[] => rows.map((row) => ({ ...row, worker: true }));

export const answers: Answers = {
  stats: async () => marked(await stats()),
  memory: async () => marked(await memory()),
  flushCache,
  clearCache,

  begin({ lock, ...state }: ModuleState & { lock: string }): Promise<boolean> {
    useModule(state);
    return holds(lock);
  },

  async load({ from, device, settings, ...options }: LoadOptions & Start & { from: FileSource | Uint8Array[] }, context): Promise<Told> {
    const { signal, tell } = context;
    await started({ device, ...(settings && { settings }) }, context);
    const onProgress = (progress: unknown): void => tell("onProgress", progress);
    const model = await loadLocal(Array.isArray(from) ? whole(from) : from, { ...options, device, signal, onProgress });
    return told(model);
  },

  async run({ id, inputs, outputs, stay }: Run, { signal, tell }): Promise<Ran> {
    const model = modelOf(id);
    const own: Tensor[] = [];
    const given = inputs.map(([name, value]) => {
      const { tensor, held: number } = (value ?? {}) as { tensor?: Sent; held?: number };
      if (number !== undefined) return [name, tensorAt(number)] as const;
      if (!tensor) return [name, value as ModelInput] as const;
      own.push(tensorOf(tensor));
      return [name, own.at(-1) as Tensor] as const;
    });
    const onProgress = (progress: unknown): void => tell("onProgress", progress);
    const once = async (): Promise<Ran> => {
      const all = await model.run(Object.fromEntries(given), { signal, onProgress, ...(outputs && { outputs }) });
      const timing = model.timing as NonNullable<typeof model.timing>;
      const sent = await Promise.all(Object.entries(all).map(async ([name, t]) => [name, stay ? held(t) : await taken(t, signal)] as const));
      return { outputs: Object.fromEntries(sent), timing, notes: model.notes, device: facts(model.device) };
    };
    try {
      return await once().catch((error: unknown) => {
        // the GPU was lost: posted inputs are still here, and the run is repeated on another device
        const mayAgain = isLost(error) && model.device.kind === "webgpu" && !signal?.aborted;
        if (!mayAgain || given.some(([, value]) => value instanceof Tensor && !own.includes(value))) throw error;
        onProgress({ phase: "device", loaded: 0, total: 0 });
        return once();
      });
    } finally {
      own.forEach((t) => t.dispose());
    }
  },

  drifts: ({ id, got, want, tolerance }: { id: number; got: RawInput[]; want: RawInput[]; tolerance: number }) => modelOf(id).drifts(got, want, tolerance),

  strings: ({ id, codes }: { id: number; codes: Int32Array }) => modelOf(id).strings(new Tensor(codes)),

  lost: (number: number) => devices[number]?.lost,

  tune: ({ id, options }: { id: number; options: TuneOptions }, { signal }) => modelOf(id).device.tune({ ...options, signal }),

  read: (id: number, { signal }) => bytesOf(tensorAt(id), signal),

  free(id: number): void {
    tensors.get(id)?.dispose();
    tensors.delete(id);
  },

  dispose: disposed,
};
