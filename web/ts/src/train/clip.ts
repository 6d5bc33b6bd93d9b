// Gradient clipping, between `backward` and an optimiser's step.
import { ValueError } from "../errors.js";
import { Tensor, accompany, companions, keep, tidy } from "../tensor.js";

/** The p-norm of all elements, a scalar; `p` is any number, including the infinities. */
export function vectorNorm(t: Tensor, p = 2): Tensor {
  const magnitudes = (): Tensor => t.abs();
  if (p === 2) return t.square().sum().sqrt();
  if (p === 1) return magnitudes().sum();
  if (p === 0) return t.ne(0).cast(t.dtype).sum();
  if (p === Infinity) return magnitudes().max();
  if (p === -Infinity) return magnitudes().min();
  return magnitudes().pow(p).sum().pow(1 / p);
}

/** The parameters that have a gradient, with it. */
function withGradients(name: string, parameters: Iterable<Tensor>): [Tensor, Tensor][] {
  const found = [...parameters].flatMap((p): [Tensor, Tensor][] => (p.grad ? [[p, p.grad]] : []));
  if (found.length === 0) throw new ValueError("E_VALUE", `${name}: there are no gradients`, { hint: "call loss.backward() first" });
  return found;
}

/**
 * Replaces a parameter's gradient; tensors that were to be computed together with the old one are computed with the new
 * one.
 */
function replaceGradient(p: Tensor, old: Tensor, gradient: Tensor, moreCompanions: readonly Tensor[] = []): void {
  accompany(gradient, [...companions(old), ...moreCompanions]);
  p.grad = keep(gradient);
  old.dispose();
}

/**
 * Scales all gradients so that their joint norm is at most `maxNorm`, and gives the norm before that, which the
 * optimiser's step computes in the same run.
 */
export function clipGradNorm(parameters: Iterable<Tensor>, maxNorm: number, normType = 2): Tensor {
  const all = withGradients("clipGradNorm", parameters);
  return tidy(() => {
    const norms = all.map(([, g]) => vectorNorm(g.cast("f32"), normType));
    const total = vectorNorm(Tensor.stack(norms), normType);
    const factor = total.add(1e-6).reciprocal().mul(maxNorm).minimum(1);
    for (const [p, g] of all) replaceGradient(p, g, g.mul(factor.cast(g.dtype)), [total]);
    return total;
  });
}

/** Clamps the elements of the gradients to the range from `-clipValue` to `clipValue`. */
export function clipGradValue(parameters: Iterable<Tensor>, clipValue: number): void {
  const all = withGradients("clipGradValue", parameters);
  for (const [p, g] of all) replaceGradient(p, g, g.clamp(-clipValue, clipValue));
}
