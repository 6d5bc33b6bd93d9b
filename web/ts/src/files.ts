// Reading and writing of files whose code is loaded when it is first needed.
import { missing } from "./errors.js";
import type { LoadOptions } from "./model.js";
import { piece } from "./pieces.js";
import { type FetchOptions, type FileSource, readSource } from "./progress.js";
import type { Expected } from "./sniff.js";
import type { Tensor } from "./tensor.js";

/** Runs what reads a file's bytes. Where that fails because the file is something else, the error says what it is. */
export async function reading<T>(expected: Expected, from: unknown, file: Uint8Array | { head: Uint8Array; size: number }, body: () => T): Promise<Awaited<T>> {
  try {
    return await body();
  } catch (error) {
    const sniff = await piece("sniff").catch(() => undefined);
    if (!sniff) throw error;
    throw file instanceof Uint8Array ? sniff.explained(error, expected, from, file) : sniff.explained(error, expected, from, file.head, file.size);
  }
}

/** Does its name say that a file is GGUF's? */
export const isNamedGguf = (from: FileSource): boolean => /\.gguf([?#]|$)/i.test(String((from as { name?: string }).name ?? from));

/** What `parse` makes of a file; of a GGUF file, which its name tells, only the beginning is read. */
export async function readHeader<T>(expected: Expected, from: FileSource, options: FetchOptions, parse: (file: Uint8Array) => T): Promise<Awaited<T>> {
  if (isNamedGguf(from)) {
    return await (await piece("gguf").catch(missing)).readMetadata(expected, from, options, parse);
  }
  const file = await readSource(from, options);
  return reading(expected, from, file, () => parse(file));
}

/** Files of tensors. */
export const weightsModule = (): Promise<typeof import("./weights.js")> => piece("weights").catch(missing);

/** How a file of weights is read. */
export interface WeightOptions extends FetchOptions {
  /** As of `load`. */
  device?: LoadOptions["device"];
  /** Only the tensors of these names, all of which must be there, or those whose names it says. */
  only?: readonly string[] | ((name: string) => boolean);
}

/**
 * The tensors of a file by name: safetensors, GGUF (its blocks stay packed, kernels that read them decode them), npz, or what
 * torch.save wrote (no code of it runs). Of a URL or path that ends in `.index.json`, those of all files it names. Only the
 * tensors that are asked for are read, by ranges, where the server takes such requests.
 */
export async function loadWeights(from: FileSource, options: WeightOptions = {}): Promise<Record<string, Tensor>> {
  return (await weightsModule()).loadWeights(from, options);
}

/** How a file of weights is written. */
export interface SaveOptions {
  format?: "safetensors" | "npz" | "gguf";
}

/** The bytes of a file with these tensors: safetensors, npz or GGUF. */
export async function saveWeights(tensors: Readonly<Record<string, Tensor>>, options: SaveOptions = {}): Promise<Uint8Array> {
  return (await weightsModule()).saveWeights(tensors, options);
}
