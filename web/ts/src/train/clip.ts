// Limits on gradients, between `backward` and an optimiser's step.
import { ValueError } from "../errors.js";
import { Tensor, accompany, companions, keep, tidy } from "../tensor.js";

/** The p-norm of all elements, a scalar: `p` is any number, infinite ones too. */
export function vectorNorm(t: Tensor, p = 2): Tensor {
  const size = (): Tensor => t.abs();
  if (p === 2) return t.square().sum().sqrt();
  if (p === 1) return size().sum();
  if (p === 0) return t.ne(0).cast(t.dtype).sum();
  if (p === Infinity) return size().max();
  if (p === -Infinity) return size().min();
  return size().pow(p).sum().pow(1 / p);
}

/** Those of the parameters that have a gradient. */
function ready(name: string, parameters: Iterable<Tensor>): [Tensor, Tensor][] {
  const found = [...parameters].flatMap((p): [Tensor, Tensor][] => (p.grad ? [[p, p.grad]] : []));
  if (found.length === 0) throw new ValueError("E_VALUE", `${name}: there are no gradients`, { hint: "call loss.backward() first" });
  return found;
}

/** Puts another gradient in a parameter's place for it; what was to be computed with the old one is computed with the new one. */
function replace(p: Tensor, old: Tensor, gradient: Tensor, also: readonly Tensor[] = []): void {
  accompany(gradient, [...companions(old), ...also]);
  p.grad = keep(gradient);
  old.dispose();
}

/**
 * Scales the gradients so that their joint norm is at most `maxNorm`, and gives the norm they had, which the optimiser's step
 * computes as it does the loss.
 */
export function clipGradNorm(parameters: Iterable<Tensor>, maxNorm: number, normType = 2): Tensor {
  const all = ready("clipGradNorm", parameters);
  return tidy(() => {
    const norms = all.map(([, g]) => vectorNorm(g.cast("f32"), normType));
    const total = vectorNorm(Tensor.stack(norms), normType);
    const factor = total.add(1e-6).reciprocal().mul(maxNorm).minimum(1);
    for (const [p, g] of all) replace(p, g, g.mul(factor.cast(g.dtype)), [total]);
    return total;
  });
}

/** Limits the elements of the gradients to `-clipValue` to `clipValue`. */
export function clipGradValue(parameters: Iterable<Tensor>, clipValue: number): void {
  const all = ready("clipGradValue", parameters);
  for (const [p, g] of all) replace(p, g, g.clamp(-clipValue, clipValue));
}
