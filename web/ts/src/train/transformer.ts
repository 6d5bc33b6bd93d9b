// The decoder's half of a transformer, and both halves together (Vaswani and others 2017), as torch builds them, batch first.
import { ValueError } from "../errors.js";
import { MultiheadAttention, type Seen, TransformerEncoder, type TransformerOptions, init } from "../layers.js";
import { Dropout, LayerNorm, Linear, Module } from "../nn.js";
import { around, places } from "../residual.js";
import type { Tensor } from "../tensor.js";

/** Attention of a sequence to itself and to a memory, and a network at each place; dropout is outside of attention. */
export class TransformerDecoderLayer extends Module {
  readonly self_attn: MultiheadAttention;
  readonly multihead_attn: MultiheadAttention;
  readonly linear1: Linear;
  readonly linear2: Linear;
  readonly norm1: LayerNorm;
  readonly norm2: LayerNorm;
  readonly norm3: LayerNorm;
  readonly dropout: Dropout;
  readonly options: TransformerOptions;

  constructor(width: number, heads: number, options: TransformerOptions = {}) {
    super();
    const inner = options.feedForward ?? 2048;
    this.self_attn = new MultiheadAttention(width, heads, options);
    this.multihead_attn = new MultiheadAttention(width, heads, options);
    this.linear1 = new Linear(width, inner, options);
    this.linear2 = new Linear(inner, width, options);
    this.norm1 = new LayerNorm(width, options);
    this.norm2 = new LayerNorm(width, options);
    this.norm3 = new LayerNorm(width, options);
    this.dropout = new Dropout(options.dropout ?? 0.1);
    this.options = options;
  }

  /** `[batch, n, width]` with a memory `[batch, m, width]`, same shape out. What the places may see of their own, and of the memory. */
  forward(x: Tensor, memory: Tensor, own: Seen = {}, of: Seen = {}): Tensor {
    const y = around(this, x, this.norm1, (t) => this.self_attn.forward(t, t, own));
    const z = around(this, y, this.norm2, (t) => this.multihead_attn.forward(t, memory, of));
    return around(this, z, this.norm3, (t) => places(this, t));
  }
}

/** Decoder layers one after another. */
export class TransformerDecoder extends Module {
  readonly layers: readonly TransformerDecoderLayer[];
  /** After the last layer. */
  norm: LayerNorm | null = null;

  constructor(width: number, heads: number, depth: number, options: TransformerOptions = {}) {
    super();
    this.layers = Array.from({ length: depth }, () => new TransformerDecoderLayer(width, heads, options));
  }

  /** `[batch, n, width]` with a memory `[batch, m, width]`, same shape out. */
  forward(x: Tensor, memory: Tensor, own: Seen = {}, of: Seen = {}): Tensor {
    const y = this.layers.reduce((t, layer) => layer.forward(t, memory, own, of), x);
    return this.norm?.forward(y) ?? y;
  }
}

/** An encoder and a decoder, each with a norm at the end. */
export class Transformer extends Module {
  /** Of the source. */
  readonly encoder: TransformerEncoder;
  /** Of the target, with the encoded source as memory. */
  readonly decoder: TransformerDecoder;

  /** `depth` layers on each side. */
  constructor(width = 512, heads = 8, depth: readonly [number, number] = [6, 6], options: TransformerOptions = {}) {
    super();
    if (depth.some((n) => !(n > 0))) throw new ValueError("E_VALUE", "Transformer: no layers");
    this.encoder = new TransformerEncoder(width, heads, depth[0], options);
    this.decoder = new TransformerDecoder(width, heads, depth[1], options);
    this.encoder.norm = new LayerNorm(width, options);
    this.decoder.norm = new LayerNorm(width, options);
    for (const p of this.parameters()) if (p.rank > 1) init.xavierUniform(p);
  }

  /**
   * Source `[batch, n, width]` and target `[batch, m, width]` to `[batch, m, width]`: what the source's places may see of the source,
   * the target's of the target, and the target's of the source.
   */
  forward(source: Tensor, target: Tensor, seen: { source?: Seen; target?: Seen; memory?: Seen } = {}): Tensor {
    return this.decoder.forward(target, this.encoder.forward(source, seen.source), seen.target, seen.memory);
  }
}
