// The transformer decoder and the complete transformer (Vaswani and others 2017), as in torch with `batch_first`.
import { ValueError } from "../errors.js";
import { MultiheadAttention, type AttentionMask, TransformerEncoder, type TransformerOptions, init } from "../layers.js";
import { Dropout, LayerNorm, Linear, Module } from "../nn.js";
import { feedForward, residual } from "../residual.js";
import type { Tensor } from "../tensor.js";

/**
 * Self-attention, attention to the encoder's output (memory), and a feed-forward network. Dropout applies to the
 * outputs of these blocks, not to attention weights.
 */
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

  /**
   * Maps `[batch, n, width]` to the same shape, with a memory `[batch, m, width]`. `selfMask` restricts
   * self-attention, `memoryMask` attention to the memory.
   */
  forward(x: Tensor, memory: Tensor, selfMask: AttentionMask = {}, memoryMask: AttentionMask = {}): Tensor {
    const y = residual(this, x, this.norm1, (t) => this.self_attn.forward(t, t, selfMask));
    const z = residual(this, y, this.norm2, (t) => this.multihead_attn.forward(t, memory, memoryMask));
    return residual(this, z, this.norm3, (t) => feedForward(this, t));
  }
}

/** A stack of decoder layers. */
export class TransformerDecoder extends Module {
  readonly layers: readonly TransformerDecoderLayer[];
  /** A norm that is applied after the last layer, if any. */
  norm: LayerNorm | null = null;

  constructor(width: number, heads: number, depth: number, options: TransformerOptions = {}) {
    super();
    this.layers = Array.from({ length: depth }, () => new TransformerDecoderLayer(width, heads, options));
  }

  /** Maps `[batch, n, width]` to the same shape, with a memory `[batch, m, width]`. */
  forward(x: Tensor, memory: Tensor, selfMask: AttentionMask = {}, memoryMask: AttentionMask = {}): Tensor {
    const y = this.layers.reduce((t, layer) => layer.forward(t, memory, selfMask, memoryMask), x);
    return this.norm?.forward(y) ?? y;
  }
}

/** A transformer: an encoder and a decoder, each with a final norm. */
export class Transformer extends Module {
  /** Encodes the source. */
  readonly encoder: TransformerEncoder;
  /** Decodes the target, with the encoded source as memory. */
  readonly decoder: TransformerDecoder;

  /** `depth` is the number of encoder and of decoder layers. */
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
   * Maps a source `[batch, n, width]` and a target `[batch, m, width]` to `[batch, m, width]`. `masks` restricts
   * attention within the source, within the target, and from the target to the source (`memory`).
   */
  forward(source: Tensor, target: Tensor, masks: { source?: AttentionMask; target?: AttentionMask; memory?: AttentionMask } = {}): Tensor {
    return this.decoder.forward(target, this.encoder.forward(source, masks.source), masks.target, masks.memory);
  }
}
