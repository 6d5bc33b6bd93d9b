// Loads a model again whose worker or device was lost, a language model with its adapters.
import { DeviceError } from "../errors.js";
import type { FetchOptions } from "../progress.js";
import type { HeldSource } from "./kept.js";
import type { AdapterSource, Backend, LLMOptions, ModelSource } from "./options.js";

/** How a language model was loaded, and what became of it. */
export interface Origin {
  readonly from: HeldSource;
  readonly options: LLMOptions;
  /** The adapter in use. */
  adapter: string | null;
  /** Adapters that were trained since, by name. */
  readonly trained: Record<string, AdapterSource>;
}

function fileOf(held: unknown): unknown {
  if (!(held instanceof WeakRef)) return held;
  const found = held.deref() as ArrayBuffer | undefined;
  // bytes that were transferred to somebody else are still an object
  if (found && found.byteLength > 0) return found;
  const hint = "load the model again with its bytes; from an address, a File or a Blob the package does that itself";
  throw new DeviceError("E_DEVICE_LOST", "the model was lost, and the page no longer has the bytes that it was loaded from", { hint });
}

/** Loads a model with `load` as it was loaded before. */
export async function reload<O extends FetchOptions, M>(from: HeldSource, options: O, load: (from: ModelSource, options: O) => Promise<M>): Promise<M> {
  const { signal: _, onProgress: __, ...lasting } = options;
  const isRecord = Object.getPrototypeOf(from) === Object.prototype;
  const source = isRecord ? Object.fromEntries(Object.entries(from).map(([name, held]) => [name, fileOf(held)])) : fileOf(from);
  return load(source as ModelSource, lasting as O);
}

/** Loads a language model with `load`, and activates its adapter. */
export async function reloadAdapted(
  { from, options, adapter, trained }: Origin,
  load: (from: ModelSource, options: LLMOptions) => Promise<Backend>,
): Promise<Backend> {
  const model = await reload(from, { ...options, adapters: { ...options.adapters, ...trained } }, load);
  try {
    if (adapter !== null) await model.useAdapter(adapter);
    return model;
  } catch (error) {
    model.dispose();
    throw error;
  }
}
