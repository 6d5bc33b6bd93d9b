// Functions whose code is loaded on their first call.
import { loadChunk } from "./chunks.js";
import type { IrKernel, IrKernelOptions } from "./loops.js";
import type { Torch } from "./torch.js";

/**
 * Gives every operator of the tensor library under its name in PyTorch: `const { linalg } = await torch()`, then `linalg.inv(x)`.
 * Arguments have torch's order; those with a default can be given by name in a final object, as in `fft.rfft(x, { norm: "ortho" })`.
 * Gradients flow through everything that torch can differentiate. There is no complex dtype: complex results are pairs along a last
 * axis of length 2, and transforms accept such pairs with `{ complex: true }`. An operator whose number of results depends on the
 * values gives a tensor of the largest possible size, and the actual number.
 */
export async function torch(): Promise<Torch> {
  return (await loadChunk("torch")).torch();
}

/**
 * Parses a kernel from the compiler's IR, in the text form that `init({ debug: 5 })` and the site's compiler page print
 * after scheduling: one store into parameter 0 over ranges of the kinds `loop` and `reduce`. The kernel is optimised
 * for the device and runs on every device, not only WebGPU. Fails with `E_FORMAT` for text that is not a graph, and
 * with `E_VALUE`, naming the line, for a kernel that may read out of bounds or leaves output elements unwritten.
 */
export async function irKernel(ir: string, options: IrKernelOptions = {}): Promise<IrKernel> {
  return (await loadChunk("loops")).irKernel(ir, options);
}
