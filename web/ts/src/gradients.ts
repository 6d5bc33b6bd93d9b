// Bookkeeping for gradients: which tensors require one, and which other tensors are computed together with it. The core
// derives the gradients themselves.
import type { Host } from "./device.js";
import { ValueError, guard } from "./errors.js";
import { Tensor, bind, keep, op, ops } from "./tensor.js";

/** Tensors with `requiresGrad`, by their device. */
export const trainable = new WeakMap<Host, Set<WeakRef<Tensor>>>();

/** The gradient d(loss)/d(t) for each `t` of `targets`; `loss` is a scalar computed from these same tensor objects. */
export function grad(loss: Tensor, targets: readonly Tensor[]): Tensor[] {
  return ops("grad", [loss, ...targets]);
}

/**
 * Computes `f(...inputs)` but keeps only the inputs in memory for training: intermediate values are recomputed when the
 * gradient needs them (gradient checkpointing). Values and gradients are the same.
 */
export function checkpoint(inputs: readonly Tensor[], f: (...inputs: Tensor[]) => Tensor): Tensor {
  return op("checkpointed", [f(...inputs), ...inputs]);
}

const along = new WeakMap<Tensor, readonly WeakRef<Tensor>[]>();

/** The live tensors to be computed in one run with a gradient: the losses it came from, its norm. */
export function companions(gradient: Tensor): Tensor[] {
  return (along.get(gradient) ?? []).map((ref) => ref.deref()).filter((t): t is Tensor => !!t && !t.disposed);
}

/** Sets the tensors to be computed in one run with a gradient. */
export function accompany(gradient: Tensor, tensors: readonly Tensor[]): void {
  along.set(gradient, tensors.map((t) => new WeakRef(t)));
}

/** Adds the gradient of a scalar to `grad` of every tensor with `requiresGrad` that the scalar was computed from. */
export function backward(loss: Tensor): void {
  const { host, id } = bind(loss);
  const refs = trainable.get(host) ?? new Set();
  const live: Tensor[] = [];
  for (const ref of refs) {
    const t = ref.deref();
    if (!t || t.disposed) refs.delete(ref);
    else if (t.requiresGrad) live.push(t);
  }
  const reached = guard(() => host.raw.depends(id, live.map((t) => bind(t).id)));
  const targets = live.filter((_, at) => reached[at]);
  if (targets.length === 0) {
    const hint = "set requiresGrad on the parameters, and call backward() before computing the loss's value";
    throw new ValueError("E_VALUE", "backward: no tensor with requiresGrad leads to this loss", { hint });
  }
  grad(loss, targets).forEach((gradient, at) => {
    const t = targets[at] as Tensor;
    const sum = t.grad ? t.grad.add(gradient) : gradient;
    accompany(sum, [...(t.grad ? companions(t.grad) : []), loss]);
    t.grad = keep(sum);
  });
}
