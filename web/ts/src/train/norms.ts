// Instance norm, and reparametrised layers: weight norm (Salimans and Kingma 2016) and spectral norm (Miyato and others
// 2018), with the parameter names of torch's `nn.utils.parametrizations`.
import { ValueError } from "../errors.js";
import { Conv2d, type LayerOptions, Linear, Module, type StateDict } from "../nn.js";
import { Tensor, op, tidy } from "../tensor.js";
import { vectorNorm } from "./clip.js";
import { Conv, ConvTranspose } from "./conv.js";
import { buffer, constant, deviceOption } from "./parameters.js";

/** Options of instance norm. */
export interface InstanceNormOptions extends LayerOptions {
  eps?: number;
  momentum?: number;
  /** Whether it has a learned scale and shift. Default: true, as in the other norms but unlike torch. */
  affine?: boolean;
  /** Whether it keeps running statistics and uses them in inference. */
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
    this.running_mean = trackRunningStats ? buffer(Tensor.zeros([channels], deviceOption(options))) : null;
    this.running_var = trackRunningStats ? buffer(Tensor.ones([channels], deviceOption(options))) : null;
    this.eps = eps;
    this.momentum = momentum;
  }

  forward(x: Tensor): Tensor {
    const { weight, bias, running_mean: mean, running_var: variance, eps, momentum } = this;
    if (!mean || !variance) return x.instanceNorm(weight, bias, eps);
    if (!this.training) return op("batch_norm", [x, mean, variance, ...(weight && bias ? [weight, bias] : [])], [eps]);
    const axes = x.shape.map((_, axis) => axis).slice(2);
    tidy(() => {
      const detached = x.detach();
      const updateRunning = (old: Tensor, value: Tensor): void => void old.assign(old.mul(1 - momentum).add(value.mean(0).mul(momentum)));
      updateRunning(mean, detached.mean(axes));
      updateRunning(variance, detached.var(axes));
    });
    return x.instanceNorm(weight, bias, eps);
  }
}

/** A layer whose weight can be replaced by a computed one. */
export type Weighted = Linear | Conv2d | Conv | ConvTranspose;

function applyWith(layer: Weighted, weight: Tensor, x: Tensor): Tensor {
  if (layer instanceof Linear) return x.linear(weight, layer.bias);
  if (layer instanceof ConvTranspose) return x.convTranspose(weight, layer.bias, layer.options);
  return x.conv(weight, layer.bias, layer.options);
}

/** A layer's state without its weight, plus the tensors that the weight is computed from. */
function parametrizedState(layer: Weighted, parts: StateDict): StateDict {
  const { weight: _, ...rest } = layer.stateDict();
  const named = Object.entries(parts).map(([name, t]) => [`parametrizations.weight.${name}`, t]);
  return { ...rest, ...Object.fromEntries(named) };
}

/** The Euclidean norm over all axes but one; reduced axes stay with size 1. */
function normExcept(t: Tensor, axis: number): Tensor {
  const axes = t.shape.map((_, at) => at).filter((at) => at !== axis);
  // an empty list of axes would sum over all
  return axes.length === 0 ? t.abs() : t.square().sum(axes, true).sqrt();
}

/** A layer whose weight is reparametrised as `g v / |v|`, with one length `g` per index of `axis`. */
export class WeightNorm extends Module {
  /** The lengths `g`, with the rank of the weight. */
  readonly length: Tensor;
  /** The directions `v`, initially the layer's weight. */
  readonly direction: Tensor;

  constructor(readonly layer: Weighted, readonly axis = 0) {
    super();
    const { rank } = layer.weight;
    if (!Number.isInteger(axis) || axis < 0 || axis >= rank) throw new ValueError("E_VALUE", `weight norm: axis ${axis} of ${rank}`);
    this.direction = layer.weight;
    this.length = tidy(() => buffer(normExcept(layer.weight, axis)));
    this.length.requiresGrad = true;
  }

  /** The weight computed from both. */
  weight(): Tensor {
    return this.direction.mul(this.length.div(normExcept(this.direction, this.axis)));
  }

  forward(x: Tensor): Tensor {
    return applyWith(this.layer, this.weight(), x);
  }

  override stateDict(): StateDict {
    return parametrizedState(this.layer, { original0: this.length, original1: this.direction });
  }
}

/** The number of initial power iterations of a spectral norm. */
const INITIAL_ITERATIONS = 15;

/**
 * A layer whose weight, as a matrix, is divided by an estimate of its largest singular value. Each forward pass in
 * training refines the estimate by one power iteration.
 */
export class SpectralNorm extends Module {
  /** The weight before the division, initially the layer's weight. */
  readonly original: Tensor;
  /** Estimates of the singular vectors: `[outputs]` and `[others]`. */
  readonly vectors: readonly [Tensor, Tensor];
  /** A lower bound on a vector's norm, against division by 0. */
  readonly eps: number;

  constructor(readonly layer: Weighted, { eps = 1e-12 }: { eps?: number } = {}) {
    super();
    this.original = layer.weight;
    this.eps = eps;
    this.vectors = tidy(() => {
      const [rows, columns] = this.#matrix().shape as [number, number];
      const randomUnit = (n: number): Tensor => this.#unit(Tensor.randn([n], deviceOption(layer.weight)));
      let found: readonly [Tensor, Tensor] = [randomUnit(rows), randomUnit(columns)];
      for (let i = 0; i < INITIAL_ITERATIONS; i += 1) found = this.#iterate(found);
      return [buffer(found[0]), buffer(found[1])] as const;
    });
  }

  #unit(t: Tensor): Tensor {
    return t.div(vectorNorm(t).maximum(this.eps));
  }

  /** The weight as a matrix `[outputs, others]`. */
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

  /** The normalised weight by the current vectors, which are not updated. */
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
    return parametrizedState(this.layer, { original: this.original, "0._u": this.vectors[0], "0._v": this.vectors[1] });
  }
}
