// A budget for tensors' memory: forgotten ones are collected before it is an error, and the error leaves all else as it was.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { OutOfMemoryError, Tensor, ValueError, init, memory } from "gradloom";

const MB = 1 << 20;
const floats = (mb) => Tensor.rand([mb * MB / 4]);
const isFull = (error) => error instanceof OutOfMemoryError && error.code === "E_OUT_OF_MEMORY";

test("more than the budget is an error, and what is there stays", async () => {
  await init({ device: "wasm", memoryLimit: 32 * MB });
  const held = await floats(20).realize();
  await assert.rejects(floats(20).realize(), isFull);
  assert.equal((await held.add(0).sum().data()).length, 1);
  held.dispose();
  const next = await floats(20).realize();
  next.dispose();
  const [{ peakBytes }] = await memory();
  assert.ok(peakBytes <= 32 * MB, `${peakBytes} bytes`);
});

test("tensors that a loop forgot are collected before it is an error", async () => {
  // otherwise the engine looks for what nobody uses in its own time, which is now and then too late on a busy machine
  setFlagsFromString("--expose-gc");
  globalThis.gc = runInNewContext("gc");
  for (let i = 0; i < 12; i += 1) await floats(8).realize();
});

test("without a budget the device decides", async () => {
  await init({ memoryLimit: Infinity });
  const held = await floats(20).realize();
  const more = await floats(20).realize();
  [held, more].forEach((t) => t.dispose());
  await assert.rejects(init({ memoryLimit: -1 }), (error) => error instanceof ValueError);
  await assert.rejects(init({ memoryLimit: NaN }), (error) => error instanceof ValueError);
});

test("an isolated device has its own", async () => {
  const device = await init({ device: "wasm", isolated: true, memoryLimit: 4 * MB });
  await assert.rejects(Tensor.rand([2 * MB], { device }).realize(), isFull);
  const t = await floats(20).realize();
  t.dispose();
  device.dispose();
});
