// Sums over more terms than the words of WebAssembly count: the product they are taken over is never made.
import assert from "node:assert/strict";
import { before, test } from "node:test";
import { Tensor, init } from "gradloom";

before(() => init({ device: "wasm" }));

test("a matrix product of 2048 by 2048 and 2048 by 1100", async () => {
  const a = Tensor.full([2048, 2048], 0.5);
  const b = Tensor.arange(0, 1100).cast("f32").expand([2048, 1100]);
  const got = await a.matmul(b).data();
  assert.deepEqual([got[0], got[1], got[1099], got[2047 * 1100 + 700]], [0, 1024, 1024 * 1099, 1024 * 700]);
});
