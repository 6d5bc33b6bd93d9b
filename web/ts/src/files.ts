// Entry points for reading and writing files; the code behind them is loaded on first use.
import type { LoadOptions } from "./model.js";
import { loadChunk } from "./chunks.js";
import { type FetchOptions, type FileSource, readSource } from "./progress.js";
import type { Expected } from "./sniff.js";
import type { Tensor } from "./tensor.js";

/** Runs a reader of a file's bytes. If it fails because the file has another format, the error names that format. */
export async function withFormatHint<T>(
  expected: Expected,
  from: unknown,
  file: Uint8Array | { head: Uint8Array; size: number },
  body: () => T,
): Promise<Awaited<T>> {
  try {
    return await body();
  } catch (error) {
    const sniff = await loadChunk("sniff").catch(() => undefined);
    if (!sniff) throw error;
    throw file instanceof Uint8Array ? sniff.explainError(error, expected, from, file) : sniff.explainError(error, expected, from, file.head, file.size);
  }
}

/** Whether the file's name ends in `.gguf`. */
export const hasGgufName = (from: FileSource): boolean => /\.gguf([?#]|$)/i.test(String((from as { name?: string }).name ?? from));

/** Reads a file and parses it; of a file named `.gguf` only the beginning (the metadata) is read. */
export async function readHeader<T>(expected: Expected, from: FileSource, options: FetchOptions, parse: (file: Uint8Array) => T): Promise<Awaited<T>> {
  if (hasGgufName(from)) {
    return await (await loadChunk("gguf")).readMetadata(expected, from, options, parse);
  }
  const file = await readSource(from, options);
  return withFormatHint(expected, from, file, () => parse(file));
}

/** Loads the code for files of tensors. */
export const weightsModule = (): Promise<typeof import("./weights.js")> => loadChunk("weights");

/** Options of `loadWeights`. */
export interface WeightOptions extends FetchOptions {
  /** The device of the tensors, as for `load`. */
  device?: LoadOptions["device"];
  /** Loads only these tensors: a list of names, all of which must exist, or a predicate on the name. */
  only?: readonly string[] | ((name: string) => boolean);
}

/**
 * The tensors of a file by name: safetensors, GGUF (blocks stay quantised on the device, kernels decode them as they
 * read), npz, or torch.save (code in the file is never run). If the URL or path ends in `.index.json`, the tensors of
 * all files that the index lists. If the server supports range requests, only the requested tensors are downloaded.
 */
export async function loadWeights(from: FileSource, options: WeightOptions = {}): Promise<Record<string, Tensor>> {
  return (await weightsModule()).loadWeights(from, options);
}

/** Options of `saveWeights`. */
export interface SaveOptions {
  format?: "safetensors" | "npz" | "gguf";
}

/** Serialises tensors to the bytes of a safetensors (default), npz or GGUF file. */
export async function saveWeights(tensors: Readonly<Record<string, Tensor>>, options: SaveOptions = {}): Promise<Uint8Array> {
  return (await weightsModule()).saveWeights(tensors, options);
}
