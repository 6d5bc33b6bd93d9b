// Share the GPU with the page. Tensors lie in buffers of the page's own device, for its shaders to read; without WebGPU the values are read back.
import { Tensor, init } from "gradloom";

const gpu = await (await globalThis.navigator?.gpu?.requestAdapter())?.requestDevice();
await init(gpu ? { gpuDevice: gpu } : { device: "wasm" });
const heights = Tensor.arange(0, 4).cast("f32").mul(2);
if (gpu) {
  const { buffer, offset, size } = await heights.gpuBuffer();
  const vertices = gpu.createBuffer({ size, usage: GPUBufferUsage.VERTEX | GPUBufferUsage.COPY_DST });
  const encoder = gpu.createCommandEncoder();
  encoder.copyBufferToBuffer(buffer, offset, vertices, 0, size);
  gpu.queue.submit([encoder.finish()]);
}
console.log(...(await heights.data()));
//> 0 2 4 6
