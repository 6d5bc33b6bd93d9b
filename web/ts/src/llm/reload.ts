// Loads a language model again whose worker or device was lost, with its adapters.
import { DeviceError } from "../errors.js";
import type { FileSource } from "../progress.js";
import type { AdapterSource, Backend, LLMOptions, ModelSource } from "./options.js";

/** A file, or a weak reference to its bytes. */
export type HeldFile = FileSource | WeakRef<object>;

/** How a model was loaded, and what became of it. */
export interface Origin {
  readonly from: HeldFile | readonly File[] | Readonly<Record<string, HeldFile>>;
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
  throw new DeviceError("E_DEVICE_LOST", "the language model was lost, and the page no longer has the bytes that it was loaded from", { hint });
}

/** Loads the model with `load`, and activates its adapter. */
export async function reload(
  { from, options, adapter, trained }: Origin,
  load: (from: ModelSource, options: LLMOptions) => Promise<Backend>,
): Promise<Backend> {
  const { signal: _, onProgress: __, adapters, ...lasting } = options;
  const isRecord = Object.getPrototypeOf(from) === Object.prototype;
  const source = isRecord ? Object.fromEntries(Object.entries(from).map(([name, held]) => [name, fileOf(held)])) : fileOf(from);
  const model = await load(source as ModelSource, { ...lasting, adapters: { ...adapters, ...trained } });
  try {
    if (adapter !== null) await model.useAdapter(adapter);
    return model;
  } catch (error) {
    model.dispose();
    throw error;
  }
}
