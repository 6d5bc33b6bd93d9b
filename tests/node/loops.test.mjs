// Kernels of the user as loops in the IR, on the WASM device: values, gradients, what is refused, and the part of the module that reads
// them. On WebGPU they are in tests/browser/suites/interop.mjs.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { FormatError, ShapeError, StateError, Tensor, UnsupportedError, ValueError, init, irKernel } from "gradloom";

const text = (name) => readFileSync(new URL(`../fixtures/kernels/${name}.ir`, import.meta.url), "utf8");
const device = await init({ device: "wasm" });
const softmax = await irKernel(text("softmax"), { name: "softmax", device });
const x = Tensor.arange(0, 35).cast("f32").mul(0.37).sin().reshape([7, 5]);
const close = (got, want) => got.forEach((value, i) => assert.ok(Math.abs(value - want[i]) <= 1e-6, `${i}: ${value}, not ${want[i]}`));

test("its values are those of tensors, and go on", async () => {
  assert.deepEqual(softmax.parameters, [{ dtype: "f32", size: 35 }, { dtype: "f32", size: 35 }]);
  const y = softmax.launch([x.permute([1, 0])], [5, 7]);
  assert.deepEqual([y.dtype, y.shape], ["f32", [5, 7]]);
  const again = softmax.launch([y.mul(3)], [5, 7]);
  const want = x.permute([1, 0]).softmax(1);
  close(await y.data(), await want.data());
  close(await again.sum([0]).data(), await want.mul(3).softmax(1).sum([0]).data());
  assert.deepEqual(softmax.launch([y]).shape, [35]);
});

test("dtypes that devices store in their own way", async () => {
  const matmul = await irKernel(text("matmul"));
  const [a, b] = [Tensor.arange(0, 54).sub(20).reshape([6, 9]).cast("f16"), Tensor.arange(0, 72).mod(7).reshape([9, 8]).cast("f16")];
  assert.deepEqual(await matmul.launch([a, b], [6, 8]).tolist(), await a.cast("f32").matmul(b.cast("f32")).tolist());
  const lookup = await irKernel(text("lookup"));
  const table = new Tensor([3, -1, 0, 7, -9, 2, 0, -3, 5, -32768], null, { dtype: "i16" });
  const places = Tensor.arange(-3, 30);
  const want = [...(await places.data())].map((at) => [3, -1, 0, 7, -9, 2, 0, -3, 5, -32768][Math.min(Math.max(at, 0), 9)] > 0);
  assert.deepEqual((await lookup.launch([table, places]).tolist()).map(Boolean), want);
});

test("gradients are those of the fallback", async () => {
  const learned = new Tensor(await x.data(), [5, 7], { requiresGrad: true });
  const kernel = await irKernel(text("softmax"), { fallback: (x) => x.softmax(1) });
  const weights = Tensor.arange(0, 35).reshape([5, 7]);
  kernel.launch([learned], [5, 7]).mul(weights).sum().backward();
  const got = await learned.grad.data();
  const same = new Tensor(await x.data(), [5, 7], { requiresGrad: true });
  same.softmax(1).mul(weights).sum().backward();
  close(got, await same.grad.data());
  assert.throws(() => softmax.launch([learned], [5, 7]).sum().backward(), (e) => e instanceof UnsupportedError && /softmax/.test(e.message));
  const wrong = await irKernel(text("softmax"), { fallback: (x) => x.sum() });
  assert.throws(() => wrong.launch([learned], [5, 7]).sum().backward(), ShapeError);
});

test("what is wrong with a text or with operands is said", async () => {
  await assert.rejects(irKernel("%0 f32 = cosine %1"), (e) => e instanceof FormatError && /line 1/.test(e.message));
  const outside = text("softmax").replace("slot=1 len=35", "slot=1 len=34");
  await assert.rejects(irKernel(outside, { name: "mine" }), (e) => e instanceof ValueError && /`mine`.*34 elements/.test(e.message));
  assert.throws(() => softmax.launch([x, x], [5, 7]), ValueError);
  assert.throws(() => softmax.launch([x], [5, 6]), ShapeError);
  const gone = await irKernel(text("softmax"));
  gone.dispose();
  assert.throws(() => gone.launch([x]), StateError);
});
