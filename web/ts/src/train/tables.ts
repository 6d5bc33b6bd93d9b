// Embedding layers with the full options of torch: padding rows, bags by offsets, per-sample weights.
import { ValueError } from "../errors.js";
import { EmbeddingBag as PlainBag } from "../layers.js";
import { type LayerOptions, Embedding as PlainEmbedding } from "../nn.js";
import { Tensor, tidy } from "../tensor.js";
import { deviceOption } from "./parameters.js";

/** Options of embedding layers. */
export interface TableOptions extends LayerOptions {
  /** The index of a padding row, which is not trained: zeros in an `Embedding`, ignored in an `EmbeddingBag`. */
  padding?: number;
}

function checkPadding({ padding }: TableOptions, rows: number): number | undefined {
  if (padding === undefined || (Number.isInteger(padding) && padding >= 0 && padding < rows)) return padding;
  throw new ValueError("E_VALUE", `embedding: padding row ${padding} of ${rows}`);
}

/** A lookup table of vectors; indices out of range give zeros. */
export class Embedding extends PlainEmbedding {
  readonly padding: number | undefined;

  constructor(count: number, size: number, options: TableOptions = {}) {
    super(count, size, options);
    const padding = checkPadding(options, count);
    this.padding = padding;
    if (padding === undefined) return;
    const { weight } = this;
    tidy(() => void weight.assign(Tensor.arange(0, count, 1, deviceOption(weight)).eq(padding).unsqueeze(-1).where(0, weight)));
  }

  override forward(ids: Tensor): Tensor {
    const y = super.forward(ids);
    return this.padding === undefined ? y : ids.eq(this.padding).unsqueeze(-1).where(y.detach(), y);
  }
}

/** Reduces the vectors of each bag of indices to one vector. Empty bags give zeros. */
export class EmbeddingBag extends PlainBag {
  readonly padding: number | undefined;

  constructor(count: number, size: number, mode: "sum" | "mean" | "max" = "mean", options: TableOptions = {}) {
    super(count, size, mode, options);
    this.padding = checkPadding(options, count);
  }

  /** Maps indices `[bags, n]` to `[bags, width]`. `factors` `[bags, n]` weight the vectors, for mode `sum` only. */
  override forward(ids: Tensor, factors?: Tensor): Tensor {
    return this.#bags(ids, ids.eq(ids), factors);
  }

  /**
   * Maps indices `[n]` and the start of each bag, `[bags]` (ascending, the first is 0), to `[bags, width]`; factors are
   * `[n]`.
   */
  forwardOffsets(ids: Tensor, offsets: Tensor, factors?: Tensor): Tensor {
    const [n, bags] = [ids.size, offsets.size];
    const perBag = (t: Tensor): Tensor => t.reshape([1, n]).expand([bags, n]);
    const position = Tensor.arange(0, n, 1, { ...deviceOption(ids), dtype: "i32" }).unsqueeze(0);
    const first = offsets.cast("i32").reshape([bags, 1]);
    const end = Tensor.full([Math.min(bags, 1), 1], n, { ...deviceOption(ids), dtype: "i32" });
    const isMember = position.ge(first).logicalAnd(position.lt(Tensor.cat([first.slice([1]), end])));
    return this.#bags(perBag(ids), isMember, factors && perBag(factors));
  }

  /** Reduces the vectors of indices `[bags, n]`; `members` marks the members of each bag. */
  #bags(ids: Tensor, members: Tensor, factors: Tensor | undefined): Tensor {
    if (factors && this.mode !== "sum") throw new ValueError("E_VALUE", "EmbeddingBag: factors are for sums");
    const isMember = this.padding === undefined ? members : members.logicalAnd(ids.ne(this.padding));
    const embeddings = this.weight.embedding(ids);
    const vectors = factors ? embeddings.mul(factors.unsqueeze(-1)) : embeddings;
    const memberMask = isMember.unsqueeze(-1);
    const count = isMember.cast(vectors.dtype).sum(1).unsqueeze(-1);
    if (this.mode === "max") return count.gt(0).where(memberMask.where(vectors, -Infinity).max(1), 0);
    const sum = memberMask.where(vectors, 0).sum(1);
    return this.mode === "mean" ? sum.div(count.maximum(1)) : sum;
  }
}
