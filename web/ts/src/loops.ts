// Kernels that users write as loops in the compiler's IR: they run on every device.
import { type Device, type Host, defaultHost } from "./device.js";
import type { DType } from "./dtype.js";
import { ShapeError, StateError, guard, guardAsync } from "./errors.js";
import { join } from "./parts.js";
import { Tensor, bind, grad, made } from "./tensor.js";

/** How a kernel is read. */
export interface IrKernelOptions {
  /** What messages call it. */
  name?: string;
  /** The same over tensors: what gradients are taken of. Without one there are none. */
  fallback?: (...inputs: Tensor[]) => Tensor;
  /** Where it runs; the default device unless told otherwise. */
  device?: Device;
  signal?: AbortSignal;
}

/** What a kernel reads or writes: elements in one row. */
export interface IrParameter {
  dtype: DType;
  size: number;
}

type Raw = ReturnType<Host["raw"]["readLoops"]>;

/** A kernel as loops, ready to be launched. `irKernel` makes it. */
export class IrKernel {
  /** What it writes, then what it reads. */
  readonly parameters: readonly IrParameter[];
  readonly #host: Host;
  readonly #name: string;
  readonly #fallback: IrKernelOptions["fallback"];
  #raw: Raw | undefined;

  /** @internal */
  constructor(host: Host, raw: Raw, name: string, fallback: IrKernelOptions["fallback"]) {
    [this.#host, this.#raw, this.#name, this.#fallback] = [host, raw, name, fallback];
    this.parameters = (raw.params() as [DType, number][]).map(([dtype, size]) => ({ dtype, size }));
  }

  /**
   * What it makes of these tensors, as lazy as any op: of their elements, in the order of its parameters, whatever their shapes. The result
   * has the shape that is asked for; one axis if none is.
   */
  launch(inputs: readonly Tensor[], shape: readonly number[] = [this.parameters[0]!.size]): Tensor {
    const raw = this.#raw;
    if (!raw) throw new StateError("E_STATE", `irKernel \`${this.#name}\` was disposed`);
    const ids = Uint32Array.from(inputs, (t) => bind(t, this.#host).id);
    const y = made(this.#host, guard(() => this.#host.raw.launchLoops(raw, ids, Uint32Array.from(shape))));
    const floats = inputs.filter((t) => t.dtype.includes("f"));
    const fallback = this.#fallback;
    if (!fallback || floats.length === 0 || !y.dtype.includes("f")) return y;
    const out = y.customGrad(floats, (dy) => {
      const same = fallback(...inputs);
      if (String(same.shape) !== String(shape)) {
        throw new ShapeError("E_SHAPE", `irKernel \`${this.#name}\`: the fallback gives ${same}, not [${shape.join(", ")}]`);
      }
      return grad(same.mul(dy).sum(), floats);
    });
    y.dispose();
    return out;
  }

  /** Lets it go; what it made stays. */
  dispose(): void {
    this.#raw?.free();
    this.#raw = undefined;
  }
}

/** As of the package. */
export async function irKernel(ir: string, options: IrKernelOptions = {}): Promise<IrKernel> {
  const { name = "ir", fallback, signal, device } = options;
  const host = (device as Host | undefined) ?? defaultHost();
  await guardAsync(() => join(host.engine, "loops"), signal);
  return new IrKernel(host, guard(() => host.raw.readLoops(name, ir)), name, fallback);
}
