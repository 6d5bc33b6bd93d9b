// Class scores on the host: softmax and ranking.
import { ValueError } from "../errors.js";

/** A class and its score. */
export interface Ranked {
  index: number;
  score: number;
  /** The name of the class, if labels were given. */
  label: string | undefined;
}

/** Converts logits to probabilities, which sum to 1. */
export function softmax(logits: ArrayLike<number>): Float32Array {
  const values = Float64Array.from(logits, Number);
  // an infinite maximum takes all the probability
  const max = values.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY);
  const exponentials = values.map((v) => (v === max ? 1 : Math.exp(v - max)));
  const sum = exponentials.reduce((a, b) => a + b, 0);
  return Float32Array.from(exponentials, (v) => v / sum);
}

/**
 * The `k` largest values in descending order, with the names of their classes. Equal values keep their order; NaNs are
 * left out.
 */
export function topK(scores: ArrayLike<number>, k = 5, labels?: readonly string[]): Ranked[] {
  if (!Number.isInteger(k) || k < 1) throw new ValueError("E_VALUE", `topK: the ${k} largest`);
  if (labels && labels.length !== scores.length) throw new ValueError("E_VALUE", `topK: ${labels.length} labels for ${scores.length} scores`);
  const ranked = Array.from({ length: scores.length }, (_, index) => ({ index, score: Number(scores[index]), label: labels?.[index] }));
  return ranked.filter(({ score }) => !Number.isNaN(score)).sort((a, b) => b.score - a.score || a.index - b.index).slice(0, k);
}
