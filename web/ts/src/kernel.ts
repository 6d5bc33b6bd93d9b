// User-written WGSL kernels. Devices without WGSL compute the kernel's fallback, a function over tensors, which also
// defines the gradient.
import { type Device, type Host, defaultHost } from "./device.js";
import type { DType } from "./dtype.js";
import { ShapeError, UnsupportedError, ValueError, guard } from "./errors.js";
import { Tensor, bind, grad, hostOf, made } from "./tensor.js";

type Shapes = Record<string, readonly number[]>;
type Groups = number | readonly number[];

/** A kernel in WGSL, with its inputs, outputs and launch size. */
export interface CustomKernel<I extends Record<string, Tensor>, O extends string> {
  /** The name that error messages use. */
  name?: string;
  /** The tensors that the kernel reads, by their variable names in the code. They are computed first if necessary. */
  inputs: I;
  /** The arrays that the kernel writes, by their variable names. Default dtype: f32. */
  outputs: Record<O, { shape: readonly number[]; dtype?: DType }>;
  /** Number of workgroups along x, y and z, or a function that computes it from the shapes of inputs and outputs. */
  workgroups: Groups | ((shapes: { [K in keyof I | O]: readonly number[] }) => Groups);
  /**
   * WGSL source with the entry point `main`. The arrays are already declared under their names: as `array<f32>`,
   * `array<i32>` or `array<u32>` for these dtypes, `array<i32>` for bool, `array<vec2<u32>>` for i64 and u64, and
   * `array<u32>` for narrower dtypes, several of which are packed into a word from the lowest bits up. The kernel has
   * to write every element of every output.
   */
  wgsl: string;
  /**
   * The same function in terms of tensors: computed on devices without WGSL, and differentiated for the gradient.
   * Without it the kernel runs on WebGPU alone and has no gradient.
   */
  fallback?: (inputs: I) => Tensor | Record<O, Tensor>;
  /** The device to run on if there are no inputs to determine it. */
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
