// Kernels of the user on a device that runs no WGSL: the fallback's values and gradients, and what is wrong with one. On WebGPU they are in
// tests/browser/suites/interop.mjs.
import assert from "node:assert/strict";
import { test } from "node:test";
import { ShapeError, Tensor, UnsupportedError, ValueError, init } from "gradloom";

await init({ device: "wasm" });
const x = new Tensor([1, 2, 3], null, { requiresGrad: true });
const kernel = { name: "twice", inputs: { x }, outputs: { y: { shape: [3] } }, workgroups: 1, wgsl: "" };

test("the fallback is computed, and has gradients", async () => {
  const { y } = Tensor.customKernel({ ...kernel, fallback: ({ x }) => x.mul(2) });
  assert.deepEqual([...(await y.data())], [2, 4, 6]);
  const { y: again, n } = Tensor.customKernel({
    ...kernel,
    outputs: { y: { shape: [3] }, n: { shape: [], dtype: "i32" } },
    fallback: ({ x }) => ({ y: x.mul(2), n: x.sum().cast("i32") }),
  });
  again.square().sum().backward();
  assert.deepEqual([...(await x.grad.data())], [8, 16, 24]);
  assert.equal(await n.item(), 6);
});

test("without a fallback the device says that it runs no WGSL", () => {
  assert.throws(() => Tensor.customKernel(kernel), (e) => e instanceof UnsupportedError && /`twice`.*wasm.*WGSL/.test(e.message) && /fallback/.test(e.hint));
});

test("a fallback of another shape or dtype is an error", () => {
  const is = (text) => (e) => e instanceof ShapeError && e.message.includes(text);
  const says = (fallback, text) => assert.throws(() => Tensor.customKernel({ ...kernel, fallback }), is(text));
  says(({ x }) => x.sum(), "f32, []");
  says(({ x }) => x.cast("i32"), "i32");
  says(() => ({}), "nothing for y");
});

test("buffers of WebGPU are refused", async () => {
  await assert.rejects(x.gpuBuffer(), (e) => e instanceof UnsupportedError && /wasm/.test(e.message));
  assert.throws(() => Tensor.fromGPUBuffer({}, [1]), UnsupportedError);
  await assert.rejects(init({ gpuDevice: {} }), (e) => e instanceof ValueError && /GPUDevice/.test(e.message));
});
