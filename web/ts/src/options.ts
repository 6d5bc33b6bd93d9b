// Options of the methods of `Tensor`.
import type { Device } from "./device.js";
import type { DType } from "./dtype.js";
import { ValueError } from "./errors.js";
import type { Tensor } from "./tensor.js";

/** Options for creating a tensor. */
export interface TensorOptions {
  dtype?: DType;
  /**
   * A device that `init` returned. Default: the default device at the time when the tensor is first used in a
   * computation.
   */
  device?: Device;
  /** Whether `backward` sets `grad`. */
  requiresGrad?: boolean;
}

/** Options for reading a tensor from a file. */
export interface FileOptions extends TensorOptions {
  /** The shape of raw data. Default: one axis. */
  shape?: readonly number[];
  /** Whether the file is gzipped. */
  gunzip?: boolean;
}

/** A tensor or a number. */
export type Operand = Tensor | number;

/** The axes that an op applies to: one, several, or all if omitted. */
export type Axes = number | readonly number[];

/** Options of convolutions; a number applies to every axis. */
export interface ConvOptions {
  stride?: number | readonly number[];
  padding?: number | readonly number[];
  dilation?: number | readonly number[];
  groups?: number;
}

/** Options of pooling. Default stride: the kernel size. */
export interface PoolOptions {
  stride?: number | readonly number[];
  padding?: number | readonly number[];
}

/** Options of `sample`. */
export interface SampleOptions {
  /** Divides the logits before sampling; 0 always takes the most likely token. */
  temperature?: number;
  /** Samples only from this many of the most likely tokens. */
  topK?: number;
  /** Samples only from the smallest set of most likely tokens whose probabilities add up to this. */
  topP?: number;
  /** Samples only from tokens with at least this fraction of the highest probability. */
  minP?: number;
  /** Makes the tokens in `seen` less likely if above 1. */
  repetitionPenalty?: number;
  /** Tokens so far, `[.., n]`; negative entries are ignored. */
  seen?: Tensor;
  /** A random key of two u32. The same key gives the same choice, and one plan serves all keys. */
  key?: Tensor;
}

/** The index range of one axis in a slice: `[start, end, step]`; `null` leaves an end open. */
export type SliceRange = readonly [start?: number | null, end?: number | null, step?: number];

/**
 * Rejects options under the names that other libraries give them, since they would have no effect: those in `foreign`,
 * and all with underscores.
 */
export function rejectForeignNames(what: string, options: object | undefined, foreign: Readonly<Record<string, string>>): void {
  const name = Object.keys(options ?? {}).find((each) => each in foreign || each.includes("_"));
  if (name === undefined) return;
  const own = foreign[name] ?? name.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase());
  throw new ValueError("E_VALUE", `${what} has no option \`${name}\``, { hint: `it is called ${own} here` });
}

/** The learning rate in the options of an optimiser, or the usual one. */
export function learningRateOf(options: { learningRate?: number }, usual = NaN): number {
  rejectForeignNames("an optimiser", options, { lr: "learningRate" });
  return options?.learningRate ?? usual;
}
