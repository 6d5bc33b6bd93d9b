// Functions whose code is loaded when they are first called.
import { FetchError } from "./errors.js";
import type { IrKernel, IrKernelOptions } from "./loops.js";
import type { LoadOptions } from "./model.js";
import { type FetchOptions, type FileSource, readSource } from "./progress.js";
import type { Expected } from "./sniff.js";
import type { Tensor } from "./tensor.js";
import type { Torch } from "./torch.js";

/** @internal The error for code that is not to be had. */
export const missing = (cause: Error): never => {
  throw new FetchError("E_FETCH", `a part of the package did not load: ${cause.message}`, { cause });
};

/** Runs what reads a file's bytes. Where that fails because the file is something else, the error says what it is. */
export async function reading<T>(expected: Expected, from: unknown, file: Uint8Array | { head: Uint8Array; size: number }, body: () => T): Promise<Awaited<T>> {
  try {
    return await body();
  } catch (error) {
    const sniff = await import("./sniff.js").catch(() => undefined);
    if (!sniff) throw error;
    throw file instanceof Uint8Array ? sniff.explained(error, expected, from, file) : sniff.explained(error, expected, from, file.head, file.size);
  }
}

/** Does its name say that a file is GGUF's? */
export const isNamedGguf = (from: FileSource): boolean => /\.gguf([?#]|$)/i.test(String((from as { name?: string }).name ?? from));

/** What `parse` makes of a file; of a GGUF file, which its name tells, only the beginning is read. */
export async function readHeader<T>(expected: Expected, from: FileSource, options: FetchOptions, parse: (file: Uint8Array) => T): Promise<Awaited<T>> {
  if (isNamedGguf(from)) {
    return await (await import("./gguf.js").catch(missing)).readMetadata(expected, from, options, parse);
  }
  const file = await readSource(from, options);
  return reading(expected, from, file, () => parse(file));
}

/** Files of tensors. */
export const weightsModule = (): Promise<typeof import("./weights.js")> => import("./weights.js").catch(missing);

/** How a file of weights is read. */
export interface WeightOptions extends FetchOptions {
  /** As of `load`. */
  device?: LoadOptions["device"];
  /** Only the tensors of these names, all of which must be there, or those whose names it says. */
  only?: readonly string[] | ((name: string) => boolean);
}

/**
 * The tensors of a file by name: safetensors, GGUF (its blocks stay packed, kernels that read them decode them), npz, or what
 * torch.save wrote (no code of it runs). Of a URL or path that ends in `.index.json`, those of all files it names. Of safetensors
 * only the tensors that are asked for are read, by ranges, where the server takes such requests.
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

/**
 * Every operator of the tensor library under the name that torch has for it: `const { linalg } = await torch()`, then
 * `linalg.inv(x)`. Arguments are torch's, in torch's order; those that have a default can be given by name in an object at
 * the end, `x => fft.rfft(x, { norm: "ortho" })`. Gradients flow through all that torch can differentiate. There is no complex
 * dtype: complex results are pairs along a last axis of 2, and transforms take such pairs with `{ complex: true }`. What has as many
 * results as the values say comes with their number.
 */
export async function torch(): Promise<Torch> {
  return (await import("./torch.js").catch(missing)).torch();
}

/**
 * Reads a kernel in the text that `init({ debug: 5 })` and the page that looks inside print as scheduled: one store into parameter 0 over
 * ranges of the kinds `loop` and `reduce`. It is optimised for the device and runs on all of them, without WebGPU too. Fails with `E_FORMAT`
 * for a text that is no graph, and with `E_VALUE`, naming the line, for a kernel that might read outside of its buffers or leaves out elements.
 */
export async function irKernel(ir: string, options: IrKernelOptions = {}): Promise<IrKernel> {
  return (await import("./loops.js").catch(missing)).irKernel(ir, options);
}
