// How the layers of this folder make their tensors.
import type { Device } from "../device.js";
import type { LayerOptions } from "../nn.js";
import { Tensor, op } from "../tensor.js";

/** Where a layer's tensors are made: where its options or another tensor say. */
export const on = ({ device }: { device?: Device | undefined }): { device?: Device } => (device ? { device } : {});

/** Uniform within `bound` of 0, trained. */
export function uniform(shape: readonly number[], bound: number, options: LayerOptions): Tensor {
  return Tensor.uniform(shape, -bound, bound, { ...on(options), requiresGrad: true });
}

/** The same number everywhere, trained. */
export function constant(shape: readonly number[], value: number, options: LayerOptions): Tensor {
  return Tensor.full(shape, value, { ...on(options), requiresGrad: true });
}

/** State that training changes in passing. */
export function buffer(value: Tensor): Tensor {
  return op("to_storage", [value]);
}

let drawn = 0;

/** A key for a random choice in training. It comes as data, so that every step is the same plan; no two are the same. */
export function key(): Tensor {
  drawn += 1;
  return new Tensor(Uint32Array.of(0x7f4a7c15, drawn));
}
