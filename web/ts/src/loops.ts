// User-written kernels as loops in the compiler's IR: they run on every device.
import { type Device, type Host, defaultHost } from "./device.js";
import type { DType } from "./dtype.js";
import { ShapeError, StateError, guard, guardAsync } from "./errors.js";
import { loadPart } from "./wasm-parts.js";
import { Tensor, bind, grad, made } from "./tensor.js";

/** Options of `irKernel`. */
export interface IrKernelOptions {
  /** The name that error messages use. */
  name?: string;
  /**
   * The same function in terms of tensors, which is differentiated for the gradient. Without it the kernel has no
   * gradient.
   */
  fallback?: (...inputs: Tensor[]) => Tensor;
  /** The device to run on. Default: that of new tensors. */
  device?: Device;
  signal?: AbortSignal;
}

/** A kernel's parameter: a flat array. */
export interface IrParameter {
  dtype: DType;
  size: number;
}

type Raw = ReturnType<Host["raw"]["parseIrKernel"]>;

/** A compiled IR kernel, made by `irKernel`. */
export class IrKernel {
  /** The output, then the inputs. */
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
   * Applies the kernel to tensors, lazily like any op. They are bound to its input parameters in order, as flat arrays
   * whatever their shapes. The result has the given shape, by default one axis.
   */
  launch(inputs: readonly Tensor[], shape: readonly number[] = [this.parameters[0]!.size]): Tensor {
    const raw = this.#raw;
    if (!raw) throw new StateError("E_STATE", `irKernel \`${this.#name}\` was disposed`);
    const ids = Uint32Array.from(inputs, (t) => bind(t, this.#host).id);
    const y = made(this.#host, guard(() => this.#host.raw.launchIrKernel(raw, ids, Uint32Array.from(shape))));
    const floats = inputs.filter((t) => t.dtype.includes("f"));
    const fallback = this.#fallback;
    if (!fallback || floats.length === 0 || !y.dtype.includes("f")) return y;
    const out = y.customGrad(floats, (dy) => {
      const reference = fallback(...inputs);
      if (String(reference.shape) !== String(shape)) {
        throw new ShapeError("E_SHAPE", `irKernel \`${this.#name}\`: the fallback gives ${reference}, not [${shape.join(", ")}]`);
      }
      return grad(reference.mul(dy).sum(), floats);
    });
    y.dispose();
    return out;
  }

  /** Frees the kernel; its results stay valid. */
  dispose(): void {
    this.#raw?.free();
    this.#raw = undefined;
  }
}

/** The implementation of the package's `irKernel`. */
export async function irKernel(ir: string, options: IrKernelOptions = {}): Promise<IrKernel> {
  const { name = "ir", fallback, signal, device } = options;
  const host = (device as Host | undefined) ?? defaultHost();
  await guardAsync(() => loadPart(host.engine, "loops"), signal);
  return new IrKernel(host, guard(() => host.raw.parseIrKernel(name, ir)), name, fallback);
}
