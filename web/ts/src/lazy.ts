// Functions whose code is loaded when they are first called.
import { missing } from "./errors.js";
import type { IrKernel, IrKernelOptions } from "./loops.js";
import type { Torch } from "./torch.js";

/**
 * Every operator of the tensor library under the name that torch has for it: `const { linalg } = await torch()`, then
 * `linalg.inv(x)`. Arguments are torch's, in torch's order; those that have a default can be given by name in an object at
 * the end, `x => fft.rfft(x, { norm: "ortho" })`. Gradients flow through all that torch can differentiate. There is no complex
 * dtype: complex results are pairs along a last axis of 2, and transforms take such pairs with `{ complex: true }`. What has as many
 * results as the values say comes with their number.
 */
export async function torch(): Promise<Torch> {
  return (await import("./torch.js").catch(missing)).torch();
}

/**
 * Reads a kernel in the text that `init({ debug: 5 })` and the page that looks inside print as scheduled: one store into parameter 0 over
 * ranges of the kinds `loop` and `reduce`. It is optimised for the device and runs on all of them, without WebGPU too. Fails with `E_FORMAT`
 * for a text that is no graph, and with `E_VALUE`, naming the line, for a kernel that might read outside of its buffers or leaves out elements.
 */
export async function irKernel(ir: string, options: IrKernelOptions = {}): Promise<IrKernel> {
  return (await import("./loops.js").catch(missing)).irKernel(ir, options);
}
