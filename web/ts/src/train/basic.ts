// Bilinear layers, two further kinds of dropout, and the adaptive softmax.
import { ShapeError, ValueError } from "../errors.js";
import { nextKey } from "../keys.js";
import { type LayerOptions, Linear, Module, Sequential } from "../nn.js";
import { Tensor } from "../tensor.js";
import { deviceOption, uniform } from "./parameters.js";

/** A bilinear layer: `x^T W_k y + b_k` for each output k. */
export class Bilinear extends Module {
  readonly weight: Tensor;
  readonly bias: Tensor | null;

  constructor(left: number, right: number, outputs: number, options: LayerOptions = {}) {
    super();
    const bound = 1 / Math.sqrt(left);
    this.weight = uniform([outputs, left, right], bound, options);
    this.bias = options.bias === false ? null : uniform([outputs], bound, options);
  }

  /** Maps `[.., left]` and `[.., right]` to `[.., out]`. */
  forward(x: Tensor, y: Tensor): Tensor {
    const [outputs, left, right] = this.weight.shape as [number, number, number];
    if (x.shape.at(-1) !== left || y.shape.at(-1) !== right) {
      throw new ShapeError("E_SHAPE", `bilinear: [${x.shape.join(", ")}] and [${y.shape.join(", ")}] with a weight of ${left} and ${right}`);
    }
    // x W_k for all k in one product, then the dot product of each with y
    const product = x.matmul(this.weight.permute([1, 0, 2]).reshape([left, outputs * right]));
    const sum = product.reshape([...x.shape.slice(0, -1), outputs, right]).mul(y.unsqueeze(-2)).sum(-1);
    return this.bias ? sum.add(this.bias) : sum;
  }
}

function probability(p: number): number {
  if (!(p >= 0 && p < 1)) throw new ValueError("E_VALUE", `dropout: probability ${p} is not in [0, 1)`);
  return p;
}

/** Sets whole channels of `[batch, channels, ..]` to zero in training: torch's `Dropout1d`, `2d` and `3d`. */
export class ChannelDropout extends Module {
  readonly p: number;

  constructor(p = 0.5) {
    super();
    this.p = probability(p);
  }

  forward(x: Tensor): Tensor {
    if (!this.training || this.p === 0) return x;
    const shape = x.shape.map((n, axis) => (axis < 2 ? n : 1));
    return x.mul(Tensor.ones(shape, { ...deviceOption(x), dtype: x.dtype }).dropout(this.p, new Tensor(nextKey())));
  }
}

/** The limit of SELU for large negative inputs. */
const SELU_MIN = -1.0507009873554805 * 1.6732632423543772;

/** Dropout that preserves mean and variance, for networks with SELU (Klambauer and others 2017). */
export class AlphaDropout extends Module {
  readonly p: number;

  constructor(p = 0.5) {
    super();
    this.p = probability(p);
  }

  forward(x: Tensor): Tensor {
    const { p } = this;
    if (!this.training || p === 0) return x;
    const scale = 1 / Math.sqrt((1 - p) * (1 + p * SELU_MIN * SELU_MIN));
    const kept = Tensor.ones(x.shape, deviceOption(x)).dropout(p, new Tensor(nextKey())).gt(0);
    return kept.where(x, SELU_MIN).mul(scale).sub(scale * SELU_MIN * p);
  }
}

/**
 * Adaptive softmax over many classes sorted by decreasing frequency (Grave and others 2017): a softmax over frequent
 * classes and clusters of rarer ones, each with its own softmax on a narrower projection of the input. Torch's
 * `AdaptiveLogSoftmaxWithLoss`.
 */
export class AdaptiveLogSoftmax extends Module {
  readonly head: Linear;
  readonly tail: readonly Sequential[];
  /** The first class of each cluster, followed by the number of classes. */
  readonly cutoffs: readonly number[];

  /** `cutoffs` are ascending and below `classes`; cluster `i` has an input of `inputs / divide ** (i + 1)` elements. */
  constructor(inputs: number, classes: number, cutoffs: readonly number[], options: LayerOptions & { divide?: number } = {}) {
    super();
    const { divide = 4 } = options;
    const clusterEnds = [...cutoffs, classes];
    if (cutoffs.length === 0 || clusterEnds.some((n, i) => !Number.isInteger(n) || n <= (clusterEnds[i - 1] ?? 0)) || divide < 1) {
      throw new ValueError("E_VALUE", `adaptive softmax: cutoffs [${cutoffs.join(", ")}] of ${classes}, division ${divide}`);
    }
    const projection = (from: number, to: number): Linear => new Linear(from, to, { ...deviceOption(options), bias: false });
    const [first] = cutoffs as readonly [number];
    this.head = new Linear(inputs, first + cutoffs.length, { ...deviceOption(options), bias: options.bias ?? false });
    this.tail = cutoffs.map((start, i) => {
      const width = Math.max(Math.floor(inputs / divide ** (i + 1)), 1);
      return new Sequential(projection(inputs, width), projection(width, (clusterEnds[i + 1] as number) - start));
    });
    this.cutoffs = clusterEnds;
  }

  /** Maps `[.., inputs]` to the log-probabilities of all classes, `[.., classes]`. */
  forward(x: Tensor): Tensor {
    const head = this.head.forward(x).logSoftmax();
    const first = this.cutoffs[0] as number;
    const tail = this.tail.map((cluster, i) => cluster.forward(x).logSoftmax().add(head.narrow(-1, first + i, 1)));
    return Tensor.cat([head.narrow(-1, 0, first), ...tail], -1);
  }

  /** The log-probability of each target `[..]`, and the mean loss. */
  run(x: Tensor, target: Tensor): [picked: Tensor, loss: Tensor] {
    const picked = this.forward(x).gather(-1, target.unsqueeze(-1)).squeeze(-1);
    return [picked, picked.mean().neg()];
  }
}
