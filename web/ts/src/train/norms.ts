// Instance norm, and layers whose weight is computed of other tensors: weight norm (Salimans and Kingma 2016) and spectral norm
// (Miyato and others 2018), named as torch's `nn.utils.parametrizations`.
import { ValueError } from "../errors.js";
import { Conv2d, type LayerOptions, Linear, Module, type StateDict } from "../nn.js";
import { Tensor, op, tidy } from "../tensor.js";
import { vectorNorm } from "./clip.js";
import { Conv, ConvTranspose } from "./conv.js";
import { buffer, constant, on } from "./parameters.js";

/** What instance norm takes. */
export interface InstanceNormOptions extends LayerOptions {
  eps?: number;
  momentum?: number;
  /** Whether it has a learned scale and shift; as in the other norms, and unlike torch, it has unless told. */
  affine?: boolean;
  /** Whether it keeps running statistics, which are used outside of training. */
  trackRunningStats?: boolean;
}

/** Normalises each channel of each sample. */
export class InstanceNorm extends Module {
  readonly weight: Tensor | null;
  readonly bias: Tensor | null;
  readonly running_mean: Tensor | null;
  readonly running_var: Tensor | null;
  readonly eps: number;
  readonly momentum: number;

  constructor(channels: number, options: InstanceNormOptions = {}) {
    super();
    const { affine = true, trackRunningStats = false, eps = 1e-5, momentum = 0.1 } = options;
    this.weight = affine ? constant([channels], 1, options) : null;
    this.bias = affine ? constant([channels], 0, options) : null;
    this.running_mean = trackRunningStats ? buffer(Tensor.zeros([channels], on(options))) : null;
    this.running_var = trackRunningStats ? buffer(Tensor.ones([channels], on(options))) : null;
    this.eps = eps;
    this.momentum = momentum;
  }

  forward(x: Tensor): Tensor {
    const { weight, bias, running_mean: mean, running_var: variance, eps, momentum } = this;
    if (!mean || !variance) return x.instanceNorm(weight, bias, eps);
    if (!this.training) return op("batch_norm", [x, mean, variance, ...(weight && bias ? [weight, bias] : [])], [eps]);
    const axes = x.shape.map((_, axis) => axis).slice(2);
    tidy(() => {
      const still = x.detach();
      const blend = (old: Tensor, value: Tensor): void => void old.assign(old.mul(1 - momentum).add(value.mean(0).mul(momentum)));
      blend(mean, still.mean(axes));
      blend(variance, still.var(axes));
    });
    return x.instanceNorm(weight, bias, eps);
  }
}

/** A layer that can be applied with another weight. */
export type Weighted = Linear | Conv2d | Conv | ConvTranspose;

function applyWith(layer: Weighted, weight: Tensor, x: Tensor): Tensor {
  if (layer instanceof Linear) return x.linear(weight, layer.bias);
  if (layer instanceof ConvTranspose) return x.convTranspose(weight, layer.bias, layer.options);
  return x.conv(weight, layer.bias, layer.options);
}

/** What is left of a layer's tensors without its weight, and those that make it. */
function withParts(layer: Weighted, parts: StateDict): StateDict {
  const { weight: _, ...rest } = layer.stateDict();
  const named = Object.entries(parts).map(([name, t]) => [`parametrizations.weight.${name}`, t]);
  return { ...rest, ...Object.fromEntries(named) };
}

/** The root of the sum of squares along all axes but one, which stay with size 1. */
function length(t: Tensor, axis: number): Tensor {
  const axes = t.shape.map((_, at) => at).filter((at) => at !== axis);
  // a sum over no axes would be one over all
  return axes.length === 0 ? t.abs() : t.square().sum(axes, true).sqrt();
}

/** A layer whose weight is a direction times a length: `g v / |v|`, lengths along every axis but `axis`. */
export class WeightNorm extends Module {
  /** Lengths, with the weight's rank. */
  readonly length: Tensor;
  /** Directions: what was the layer's weight. */
  readonly direction: Tensor;

  constructor(readonly layer: Weighted, readonly axis = 0) {
    super();
    const { rank } = layer.weight;
    if (!Number.isInteger(axis) || axis < 0 || axis >= rank) throw new ValueError("E_VALUE", `weight norm: axis ${axis} of ${rank}`);
    this.direction = layer.weight;
    this.length = tidy(() => buffer(length(layer.weight, axis)));
    this.length.requiresGrad = true;
  }

  /** The weight that the two make. */
  weight(): Tensor {
    return this.direction.mul(this.length.div(length(this.direction, this.axis)));
  }

  forward(x: Tensor): Tensor {
    return applyWith(this.layer, this.weight(), x);
  }

  override stateDict(): StateDict {
    return withParts(this.layer, { original0: this.length, original1: this.direction });
  }
}

/** Power iterations that a spectral norm begins with. */
const WARM_UP = 15;

/**
 * A layer whose weight, seen as a matrix, has the largest singular value 1: it is divided by an estimate of its own, which each
 * application in training makes better by one power iteration.
 */
export class SpectralNorm extends Module {
  /** The weight before the division: what was the layer's weight. */
  readonly original: Tensor;
  /** The estimates of the singular vectors: `[outputs]` and `[the others]`. */
  readonly vectors: readonly [Tensor, Tensor];
  /** Keeps a vector's length from 0. */
  readonly eps: number;

  constructor(readonly layer: Weighted, { eps = 1e-12 }: { eps?: number } = {}) {
    super();
    this.original = layer.weight;
    this.eps = eps;
    this.vectors = tidy(() => {
      const [rows, columns] = this.#matrix().shape as [number, number];
      const start = (n: number): Tensor => this.#unit(Tensor.randn([n], on(layer.weight)));
      let found: readonly [Tensor, Tensor] = [start(rows), start(columns)];
      for (let i = 0; i < WARM_UP; i += 1) found = this.#iterate(found);
      return [buffer(found[0]), buffer(found[1])] as const;
    });
  }

  #unit(t: Tensor): Tensor {
    return t.div(vectorNorm(t).maximum(this.eps));
  }

  /** The weight as `[outputs, others]`. */
  #matrix(): Tensor {
    const w = this.layer instanceof ConvTranspose ? this.original.transpose(0, 1) : this.original;
    const rows = w.shape[0] as number;
    return w.reshape([rows, w.size / Math.max(rows, 1)]);
  }

  #iterate([, v]: readonly [Tensor, Tensor]): readonly [Tensor, Tensor] {
    const w = this.#matrix().detach();
    const next = this.#unit(w.matmul(v.detach()));
    return [next.contiguous(), this.#unit(w.transpose().matmul(next)).contiguous()];
  }

  /** The weight by the vectors of now, which it does not change. */
  weight([u, v]: readonly [Tensor, Tensor] = this.vectors): Tensor {
    return this.original.div(u.mul(this.#matrix().matmul(v)).sum());
  }

  forward(x: Tensor): Tensor {
    if (!this.training) return applyWith(this.layer, this.weight(), x);
    const next = this.#iterate(this.vectors);
    this.vectors.forEach((old, i) => void old.assign(next[i] as Tensor));
    return applyWith(this.layer, this.weight(next), x);
  }

  override stateDict(): StateDict {
    return withParts(this.layer, { original: this.original, "0._u": this.vectors[0], "0._v": this.vectors[1] });
  }
}
