// Recurrent, normalisation, attention and transformer layers, and initialisers. Fields have the names of PyTorch's
// state dicts.
import { ValueError } from "./errors.js";
import { Dropout, Embedding, LayerNorm, type LayerOptions, Linear, Module, type StateDict } from "./nn.js";
import { feedForward, residual } from "./residual.js";
import { Tensor, op, ops } from "./tensor.js";

const on = ({ device }: LayerOptions): { device?: NonNullable<LayerOptions["device"]> } => (device ? { device } : {});
const trained = (options: LayerOptions): { requiresGrad: true } => ({ ...on(options), requiresGrad: true });

/** Options of recurrent layers. */
export interface RecurrentOptions extends LayerOptions {
  layers?: number;
  bidirectional?: boolean;
  /** Dropout probability between layers in training. */
  dropout?: number;
  /** True (default) for sequences `[batch, time, ..]`, false for `[time, batch, ..]`. */
  batchFirst?: boolean;
}

/** Additional options of an LSTM. */
export interface LSTMOptions extends RecurrentOptions {
  /**
   * Width to which the hidden state is projected at each step, smaller than the hidden size: torch's `proj_size`. 0 is
   * no projection.
   */
  projection?: number;
}

/** The base of RNN, LSTM and GRU: `[batch, time, in]` to `[batch, time, hidden * directions]`. */
abstract class Recurrent extends Module {
  readonly #weights: StateDict = {};
  readonly #numbers: number[];
  readonly #kind: number;

  constructor(kind: number, gates: number, inputs: number, hidden: number, options: LSTMOptions) {
    super();
    const { layers = 1, bidirectional = false, bias = true, dropout = 0, batchFirst = true, projection = 0 } = options;
    if (!(projection >= 0 && projection < hidden)) throw new ValueError("E_VALUE", `a projection of ${hidden} to ${projection}`);
    this.#kind = kind;
    this.#numbers = [layers, Number(bidirectional), Number(bias), dropout, Number(batchFirst), projection];
    const out = projection || hidden;
    const bound = 1 / Math.sqrt(hidden);
    const rows = gates * hidden;
    for (let layer = 0; layer < layers; layer += 1) {
      for (const side of bidirectional ? ["", "_reverse"] : [""]) {
        const width = layer === 0 ? inputs : out * (bidirectional ? 2 : 1);
        const shapes: [string, number[]][] = [["weight_ih", [rows, width]], ["weight_hh", [rows, out]]];
        if (bias) shapes.push(["bias_ih", [rows]], ["bias_hh", [rows]]);
        if (projection) shapes.push(["weight_hr", [projection, hidden]]);
        for (const [name, shape] of shapes) this.#weights[`${name}_l${layer}${side}`] = Tensor.uniform(shape, -bound, bound, trained(options));
      }
    }
  }

  /**
   * The outputs, followed by the tensors of the final state, `[layers * directions, batch, hidden]` each. Starts from
   * `state`, or zeros.
   */
  run(x: Tensor, state: readonly Tensor[] = []): Tensor[] {
    const numbers = [this.#kind, state.length, ...this.#numbers, Number(this.training)];
    return ops("recurrent", [x, ...state, ...Object.values(this.#weights)], numbers);
  }

  /** The outputs. */
  forward(x: Tensor): Tensor {
    const [y, ...state] = this.run(x) as [Tensor, ...Tensor[]];
    for (const t of state) t.dispose();
    return y;
  }

  override stateDict(): StateDict {
    return { ...this.#weights };
  }
}

/** Elman recurrent network. */
export class RNN extends Recurrent {
  constructor(inputs: number, hidden: number, options: RecurrentOptions & { nonlinearity?: "tanh" | "relu" } = {}) {
    super(options.nonlinearity === "relu" ? 1 : 0, 1, inputs, hidden, options);
  }
}

/**
 * Long short-term memory. Its state is two tensors; the first, like the outputs, has the width of the projection if
 * there is one.
 */
export class LSTM extends Recurrent {
  constructor(inputs: number, hidden: number, options: LSTMOptions = {}) {
    super(2, 4, inputs, hidden, options);
  }
}

/** Gated recurrent unit. */
export class GRU extends Recurrent {
  constructor(inputs: number, hidden: number, options: RecurrentOptions = {}) {
    super(3, 3, inputs, hidden, options);
  }
}

/**
 * Normalises each channel of `[batch, channels, ..]` over the batch in training, and by running statistics otherwise.
 */
export class BatchNorm extends Module {
  readonly weight: Tensor;
  readonly bias: Tensor;
  readonly running_mean: Tensor;
  readonly running_var: Tensor;
  readonly eps: number;
  readonly momentum: number;

  constructor(channels: number, options: LayerOptions & { eps?: number; momentum?: number } = {}) {
    super();
    this.weight = Tensor.ones([channels], trained(options));
    this.bias = Tensor.zeros([channels], trained(options));
    this.running_mean = op("to_storage", [Tensor.zeros([channels], on(options))]);
    this.running_var = op("to_storage", [Tensor.ones([channels], on(options))]);
    this.eps = options.eps ?? 1e-5;
    this.momentum = options.momentum ?? 0.1;
  }

  forward(x: Tensor): Tensor {
    const { weight, bias, eps, momentum } = this;
    if (!this.training) return op("batch_norm", [x, this.running_mean, this.running_var, weight, bias], [eps]);
    const [mean, variance] = ops("batch_stats", [x]) as [Tensor, Tensor];
    const n = x.size / Math.max(mean.size, 1);
    const blend = (old: Tensor, value: Tensor): void => void old.assign(old.mul(1 - momentum).add(value.mul(momentum)));
    blend(this.running_mean, mean.detach());
    blend(this.running_var, variance.detach().mul(n / Math.max(n - 1, 1)));
    return op("batch_norm", [x, mean, variance, weight, bias], [eps]);
  }
}

/** Normalises each group of channels of each sample. */
export class GroupNorm extends Module {
  readonly weight: Tensor;
  readonly bias: Tensor;

  constructor(readonly groups: number, channels: number, readonly options: LayerOptions & { eps?: number } = {}) {
    super();
    this.weight = Tensor.ones([channels], trained(options));
    this.bias = Tensor.zeros([channels], trained(options));
  }

  forward(x: Tensor): Tensor {
    return x.groupNorm(this.groups, this.weight, this.bias, this.options.eps ?? 1e-5);
  }
}

/** Divides the last axis by its root mean square, and multiplies it with a learned weight. */
export class RMSNorm extends Module {
  readonly weight: Tensor;

  constructor(width: number, readonly options: LayerOptions & { eps?: number } = {}) {
    super();
    this.weight = Tensor.ones([width], trained(options));
  }

  forward(x: Tensor): Tensor {
    return x.rmsNorm(1, this.weight, this.options.eps ?? 1e-6);
  }
}

/** ReLU with a learned slope for negative inputs: one slope, or one per channel. */
export class PReLU extends Module {
  readonly weight: Tensor;

  constructor(count = 1, options: LayerOptions = {}) {
    super();
    this.weight = Tensor.full([count], 0.25, trained(options));
  }

  forward(x: Tensor): Tensor {
    const each = this.weight.size > 1 && x.rank > 1;
    return op("prelu", [x, each ? this.weight.reshape([1, this.weight.size, ...x.shape.slice(2).map(() => 1)]) : this.weight]);
  }
}

/**
 * Which keys a query may attend to. A mask broadcasts to `[batch, heads, queries, keys]`: booleans allow where true,
 * numbers are added to the scores.
 */
export interface AttentionMask {
  mask?: Tensor;
  causal?: boolean;
}

/** Multi-head attention over `[batch, n, width]`. */
export class MultiheadAttention extends Module {
  readonly in_proj_weight: Tensor;
  readonly in_proj_bias: Tensor | null;
  readonly out_proj: Linear;

  constructor(readonly width: number, readonly heads: number, options: LayerOptions = {}) {
    super();
    if (heads < 1 || width % heads !== 0) throw new ValueError("E_VALUE", `${heads} heads do not divide width ${width}`);
    const bound = Math.sqrt(6 / (4 * width));
    this.in_proj_weight = Tensor.uniform([3 * width, width], -bound, bound, trained(options));
    this.in_proj_bias = options.bias === false ? null : Tensor.zeros([3 * width], trained(options));
    this.out_proj = new Linear(width, width, options);
    if (this.out_proj.bias) init.constant(this.out_proj.bias, 0);
  }

  /** Attention of a sequence to itself, or to the sequence `to`. */
  forward(x: Tensor, to: Tensor = x, seen: AttentionMask = {}): Tensor {
    const [y, weights] = this.run(x, to, to, { ...seen, averageWeights: false });
    weights.dispose();
    return y;
  }

  /**
   * Maps queries `[batch, n, width]`, keys and values `[batch, m, width]` to the outputs `[batch, n, width]` and the
   * attention weights: their mean over the heads `[batch, n, m]`, or without `averageWeights` all of them `[batch,
   * heads, n, m]`.
   */
  run(x: Tensor, keys: Tensor = x, values: Tensor = keys, options: AttentionMask & { averageWeights?: boolean } = {}): [Tensor, Tensor] {
    const { width, heads } = this;
    const project = (t: Tensor, i: number): Tensor =>
      t.linear(this.in_proj_weight.narrow(0, i * width, width), this.in_proj_bias?.narrow(0, i * width, width))
        .reshape([t.shape[0] as number, t.shape[1] as number, heads, width / heads]).transpose(1, 2);
    const [y, weights] = project(x, 0).attentionWeighted(project(keys, 1), project(values, 2), options);
    const out = this.out_proj.forward(y.transpose(1, 2).flatten(2, 3));
    return [out, options.averageWeights === false ? weights : weights.mean(1)];
  }
}

/** Options of transformer layers. */
export interface TransformerOptions extends LayerOptions {
  feedForward?: number;
  dropout?: number;
  activation?: (x: Tensor) => Tensor;
  normFirst?: boolean;
  eps?: number;
}

/**
 * Self-attention followed by a feed-forward network at each position. Dropout applies to the outputs of both, not to
 * attention weights.
 */
export class TransformerEncoderLayer extends Module {
  readonly self_attn: MultiheadAttention;
  readonly linear1: Linear;
  readonly linear2: Linear;
  readonly norm1: LayerNorm;
  readonly norm2: LayerNorm;
  readonly dropout: Dropout;
  readonly options: TransformerOptions;

  constructor(width: number, heads: number, options: TransformerOptions = {}) {
    super();
    const inner = options.feedForward ?? 2048;
    this.self_attn = new MultiheadAttention(width, heads, options);
    this.linear1 = new Linear(width, inner, options);
    this.linear2 = new Linear(inner, width, options);
    this.norm1 = new LayerNorm(width, options);
    this.norm2 = new LayerNorm(width, options);
    this.dropout = new Dropout(options.dropout ?? 0.1);
    this.options = options;
  }

  forward(x: Tensor, seen: AttentionMask = {}): Tensor {
    const y = residual(this, x, this.norm1, (t) => this.self_attn.forward(t, t, seen));
    return residual(this, y, this.norm2, (t) => feedForward(this, t));
  }
}

/** A stack of encoder layers. */
export class TransformerEncoder extends Module {
  readonly layers: readonly TransformerEncoderLayer[];
  /** A norm that is applied after the last layer, if any. */
  norm: LayerNorm | null = null;

  constructor(width: number, heads: number, depth: number, options: TransformerOptions = {}) {
    super();
    this.layers = Array.from({ length: depth }, () => new TransformerEncoderLayer(width, heads, options));
  }

  forward(x: Tensor, seen: AttentionMask = {}): Tensor {
    const y = this.layers.reduce((t, layer) => layer.forward(t, seen), x);
    return this.norm?.forward(y) ?? y;
  }
}

/** Reduces the embeddings of each bag of indices `[bags, n]` to one vector by `mode`. */
export class EmbeddingBag extends Embedding {
  constructor(count: number, size: number, readonly mode: "sum" | "mean" | "max" = "mean", options: LayerOptions = {}) {
    super(count, size, options);
  }

  override forward(ids: Tensor): Tensor {
    return super.forward(ids)[this.mode](1);
  }
}

/** Initialisers under PyTorch's names. Each overwrites a tensor when it is next computed. */
export const init = {
  constant: (t: Tensor, value: number): Tensor => put(t, [0, value]),
  uniform: (t: Tensor, low = 0, high = 1): Tensor => put(t, [1, low, high]),
  normal: (t: Tensor, mean = 0, std = 1): Tensor => put(t, [2, mean, std]),
  truncNormal: (t: Tensor, mean = 0, std = 1, low = -2, high = 2): Tensor => put(t, [3, mean, std, low, high]),
  xavierUniform: (t: Tensor, gain = 1): Tensor => put(t, [4, gain]),
  xavierNormal: (t: Tensor, gain = 1): Tensor => put(t, [5, gain]),
  /** `slope` is that of the leaky ReLU that follows the layer. */
  kaimingUniform: (t: Tensor, slope = 0, mode: "in" | "out" = "in"): Tensor => put(t, [6, Number(mode === "out"), slope]),
  kaimingNormal: (t: Tensor, slope = 0, mode: "in" | "out" = "in"): Tensor => put(t, [7, Number(mode === "out"), slope]),
  orthogonal: (t: Tensor, gain = 1): Tensor => put(t, [8, gain]),
  eye: (t: Tensor): Tensor => put(t, [9]),
  dirac: (t: Tensor, groups = 1): Tensor => put(t, [10, groups]),
  sparse: (t: Tensor, sparsity: number, std = 0.01): Tensor => put(t, [11, sparsity, std]),
} as const;

function put(t: Tensor, numbers: readonly number[]): Tensor {
  op("init", [t], numbers).dispose();
  return t;
}
