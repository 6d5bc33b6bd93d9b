// Convolutions over any number of axes.
import { ValueError } from "../errors.js";
import { type LayerOptions, Module } from "../nn.js";
import type { ConvOptions, Tensor } from "../tensor.js";
import { uniform } from "./parameters.js";

/** Options of transposed convolutions. */
export type ConvTransposeOptions = ConvOptions & { outputPadding?: number | readonly number[] };

function weightShape(name: string, first: number, second: number, kernel: readonly number[], groups: number): number[] {
  const arePositive = [first, second, groups, ...kernel].every((n) => Number.isInteger(n) && n > 0);
  if (!arePositive || kernel.length === 0 || first % groups !== 0 || second % groups !== 0) {
    throw new ValueError("E_VALUE", `${name}: ${groups} groups, channels ${first} and ${second}, kernel [${kernel.join(", ")}] do not fit`);
  }
  return [first, second / groups, ...kernel];
}

/** The base of both kinds of convolution. */
abstract class ConvBase<Options extends ConvOptions> extends Module {
  readonly weight: Tensor;
  readonly bias: Tensor | null;
  readonly options: Options;

  constructor(shape: readonly number[], outputs: number, { bias, device, ...options }: LayerOptions & Options) {
    super();
    const deviceOption = device ? { device } : {};
    const bound = 1 / Math.sqrt(shape.slice(1).reduce((a, b) => a * b, 1));
    this.weight = uniform(shape, bound, deviceOption);
    this.bias = bias === false ? null : uniform([outputs], bound, deviceOption);
    this.options = options as unknown as Options;
  }
}

/** A convolution over as many axes as `kernel` has sizes: `[batch, in, n..]` to `[batch, out, o..]`. */
export class Conv extends ConvBase<ConvOptions> {
  constructor(inputs: number, outputs: number, kernel: readonly number[], options: ConvOptions & LayerOptions = {}) {
    super(weightShape("conv", outputs, inputs, kernel, options.groups ?? 1), outputs, options);
  }

  forward(x: Tensor): Tensor {
    return x.conv(this.weight, this.bias, this.options);
  }
}

/** A transposed convolution over as many axes as `kernel` has sizes: `[batch, in, n..]` to `[batch, out, o..]`. */
export class ConvTranspose extends ConvBase<ConvTransposeOptions> {
  constructor(inputs: number, outputs: number, kernel: readonly number[], options: ConvTransposeOptions & LayerOptions = {}) {
    super(weightShape("conv_transpose", inputs, outputs, kernel, options.groups ?? 1), outputs, options);
  }

  forward(x: Tensor): Tensor {
    return x.convTranspose(this.weight, this.bias, this.options);
  }
}

/** Expands a single kernel size to every axis. */
const kernelSizes = (kernel: number | readonly number[], rank: number): readonly number[] => {
  if (typeof kernel === "number") return new Array<number>(rank).fill(kernel);
  if (kernel.length !== rank) throw new ValueError("E_VALUE", `a kernel of ${kernel.length} sizes for ${rank} axes`);
  return kernel;
};

/** Over `[batch, channels, length]`. */
export class Conv1d extends Conv {
  constructor(inputs: number, outputs: number, kernel: number | readonly [number], options: ConvOptions & LayerOptions = {}) {
    super(inputs, outputs, kernelSizes(kernel, 1), options);
  }
}

/** Over `[batch, channels, depth, height, width]`. */
export class Conv3d extends Conv {
  constructor(inputs: number, outputs: number, kernel: number | readonly [number, number, number], options: ConvOptions & LayerOptions = {}) {
    super(inputs, outputs, kernelSizes(kernel, 3), options);
  }
}

/** Over `[batch, channels, length]`. */
export class ConvTranspose1d extends ConvTranspose {
  constructor(inputs: number, outputs: number, kernel: number | readonly [number], options: ConvTransposeOptions & LayerOptions = {}) {
    super(inputs, outputs, kernelSizes(kernel, 1), options);
  }
}

/** Over `[batch, channels, height, width]`. */
export class ConvTranspose2d extends ConvTranspose {
  constructor(inputs: number, outputs: number, kernel: number | readonly [number, number], options: ConvTransposeOptions & LayerOptions = {}) {
    super(inputs, outputs, kernelSizes(kernel, 2), options);
  }
}

/** Over `[batch, channels, depth, height, width]`. */
export class ConvTranspose3d extends ConvTranspose {
  constructor(
    inputs: number,
    outputs: number,
    kernel: number | readonly [number, number, number],
    options: ConvTransposeOptions & LayerOptions = {},
  ) {
    super(inputs, outputs, kernelSizes(kernel, 3), options);
  }
}
