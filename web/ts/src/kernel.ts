// Kernels that users write in WGSL. Devices that run none have the fallback, a function over tensors; it is the gradient's too.
import { type Device, type Host, defaultHost } from "./device.js";
import type { DType } from "./dtype.js";
import { ShapeError, UnsupportedError, ValueError, guard } from "./errors.js";
import { Tensor, bind, grad, hostOf, made } from "./tensor.js";

type Shapes = Record<string, readonly number[]>;
type Groups = number | readonly number[];

/** A kernel in WGSL, and what it is launched over. */
export interface CustomKernel<I extends Record<string, Tensor>, O extends string> {
  /** What messages call it. */
  name?: string;
  /** What it reads, by the names that the code has for them. Computed before, if they are not yet. */
  inputs: I;
  /** What it writes, by name; f32 where no dtype is said. */
  outputs: Record<O, { shape: readonly number[]; dtype?: DType }>;
  /** Workgroups along x, y and z, or what gives them from the shapes of inputs and outputs. */
  workgroups: Groups | ((shapes: { [K in keyof I | O]: readonly number[] }) => Groups);
  /**
   * Functions in WGSL, of which `main` is the entry point. The arrays are declared by their names: `array<f32>`, `array<i32>` and
   * `array<u32>` for these dtypes, `array<i32>` for bool, `array<vec2<u32>>` for i64 and u64, and `array<u32>` for narrower ones, of which
   * a word holds several, the first one lowest. Every element of every output has to be written.
   */
  wgsl: string;
  /** The same over tensors: what devices without WGSL compute, and what gradients are taken of. Without one there are none. */
  fallback?: (inputs: I) => Tensor | Record<O, Tensor>;
  /** Where it is computed if there are no inputs. */
  device?: Device;
}

export function customKernel<I extends Record<string, Tensor>, O extends string>(kernel: CustomKernel<I, O>): Record<O, Tensor> {
  const { name = "custom", inputs, outputs, workgroups, wgsl, fallback, device } = kernel;
  const list = Object.entries(inputs);
  const tensors = list.map(([, t]) => t);
  const host = tensors.length > 0 ? hostOf(tensors) : ((device as Host | undefined) ?? defaultHost());
  const wanted = Object.entries(outputs) as [O, { shape: readonly number[]; dtype?: DType }][];
  const plain = (): Record<O, Tensor> => {
    const out = fallback!(inputs);
    const all = (out instanceof Tensor ? { [wanted[0]?.[0] ?? ""]: out } : out) as Record<O, Tensor>;
    for (const [key, { shape, dtype = "f32" }] of wanted) {
      const { [key]: t } = all;
      if (t?.dtype === dtype && String(t.shape) === String(shape)) continue;
      throw new ShapeError("E_SHAPE", `customKernel \`${name}\`: the fallback gives ${t ?? "nothing"} for ${key}, which is ${dtype} [${shape.join(", ")}]`);
    }
    return all;
  };
  if (host.kind !== "webgpu") {
    if (fallback) return plain();
    throw new UnsupportedError("E_UNSUPPORTED", `customKernel \`${name}\`: device ${host.kind} runs no WGSL`, { hint: "give it a `fallback`" });
  }
  const shapes: Shapes = Object.fromEntries([...list, ...wanted].map(([key, { shape }]) => [key, shape]));
  const groups = [typeof workgroups === "function" ? workgroups(shapes as never) : workgroups].flat();
  if (groups.length > 3 || !groups.every((n) => Number.isInteger(n) && n > 0 && n < 2 ** 32)) {
    throw new ValueError("E_VALUE", `customKernel \`${name}\`: ${groups.join(", ")} are no workgroups along x, y and z`);
  }
  const given = list.map(([key, t]) => [key, bind(t, host).id]);
  const asked = wanted.map(([key, { shape, dtype = "f32" }]) => [key, dtype, shape]);
  const ids = guard(() => host.raw.customKernel(name, wgsl, Uint32Array.from(groups), given, asked));
  const floats = tensors.filter((t) => /f/.test(t.dtype));
  let again: Record<O, Tensor> | undefined;
  const one = (key: O, id: number): Tensor => {
    const y = made(host, id);
    if (!fallback || floats.length === 0 || !/f/.test(y.dtype)) return y;
    const out = y.customGrad(floats, (dy) => grad((again ??= plain())[key].mul(dy).sum(), floats));
    y.dispose();
    return out;
  };
  return Object.fromEntries(wanted.map(([key], at) => [key, one(key, ids[at]!)])) as Record<O, Tensor>;
}
