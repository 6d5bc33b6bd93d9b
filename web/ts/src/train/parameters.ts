// Creation of parameters and buffers for the layers in this folder.
import type { Device } from "../device.js";
import type { LayerOptions } from "../nn.js";
import { Tensor, op } from "../tensor.js";

/** The device option for a layer's tensors, taken from its options or from another tensor. */
export const deviceOption = ({ device }: { device?: Device | undefined }): { device?: Device } => (device ? { device } : {});

/** A trained parameter, uniform in `[-bound, bound)`. */
export function uniform(shape: readonly number[], bound: number, options: LayerOptions): Tensor {
  return Tensor.uniform(shape, -bound, bound, { ...deviceOption(options), requiresGrad: true });
}

/** A trained parameter with one value throughout. */
export function constant(shape: readonly number[], value: number, options: LayerOptions): Tensor {
  return Tensor.full(shape, value, { ...deviceOption(options), requiresGrad: true });
}

/** A buffer: state that training updates without a gradient. */
export function buffer(value: Tensor): Tensor {
  return op("to_storage", [value]);
}
