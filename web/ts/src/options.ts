// What methods of tensors take.
import type { Device } from "./device.js";
import type { DType } from "./dtype.js";
import type { Tensor } from "./tensor.js";

/** How a tensor is made. */
export interface TensorOptions {
  dtype?: DType;
  /** A device that `init` returned; by default the one in use when the tensor is first computed with. */
  device?: Device;
  /** Whether `backward` fills `grad`. */
  requiresGrad?: boolean;
}

/** How a tensor is read from a file. */
export interface FileOptions extends TensorOptions {
  /** Of raw bytes; by default they are one axis. */
  shape?: readonly number[];
  /** The file is gzipped. */
  gunzip?: boolean;
}

/** A tensor or a number. */
export type Operand = Tensor | number;

/** Which axes an op works on: one, several, or all when left out. */
export type Axes = number | readonly number[];

/** What convolutions take; a number counts for every axis. */
export interface ConvOptions {
  stride?: number | readonly number[];
  padding?: number | readonly number[];
  dilation?: number | readonly number[];
  groups?: number;
}

/** What pooling takes. The stride is the kernel where it is left out. */
export interface PoolOptions {
  stride?: number | readonly number[];
  padding?: number | readonly number[];
}

/** How `sample` chooses a token. */
export interface SampleOptions {
  /** Divides the logits; 0 takes the most likely token. */
  temperature?: number;
  /** Only so many of the most likely tokens. */
  topK?: number;
  /** Only the most likely tokens that together have this probability. */
  topP?: number;
  /** Only tokens with at least this share of the most likely one's probability. */
  minP?: number;
  /** Makes the tokens of `seen` less likely if above 1. */
  repetitionPenalty?: number;
  /** Tokens that are there already, `[.., n]`; negative ones count for nothing. */
  seen?: Tensor;
  /** Two u32: the choice is the key's, and one plan serves every step. */
  key?: Tensor;
}

/** One axis of a slice: an index range `[start, end, step]`; `null` is an open end. */
export type SliceRange = readonly [start?: number | null, end?: number | null, step?: number];
