// The numeric contract on the WASM device in node, with relaxed SIMD where node has it and without.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Tensor, init } from "gradloom";
import { hasRelaxedSimd, numerics } from "../lib/conformance.mjs";
import { check } from "../lib/numerics.mjs";

test("edges of every type are as the contract says", async () => {
  const rows = check(await numerics(false), hasRelaxedSimd() ? ["wasm relaxed", "wasm"] : ["wasm"]);
  assert.ok(rows > 400, `${rows} rows`);
});

test("and without relaxed SIMD", { skip: hasRelaxedSimd() ? false : "this node has none" }, async () => {
  const { validate } = WebAssembly;
  try {
    // what the device asks for relaxed SIMD
    WebAssembly.validate = () => false;
    check(await numerics(false), ["wasm"]);
  } finally {
    WebAssembly.validate = validate;
  }
});

test("constants are folded by the host's functions as kernels compute them", async () => {
  await init({ device: "wasm" });
  const of = async (x, f) => (await f(Tensor.full([1], x)).data())[0];
  // exact, and where C and JavaScript disagree: 1 to the power of anything is 1
  const powers = [
    [1, NaN, 1], [1, Infinity, 1], [-1, Infinity, 1], [-1, -Infinity, 1], [2, NaN, NaN], [-2, 3, -8], [-2, 0.5, NaN], [0, -1, Infinity],
  ];
  for (const [x, y, want] of powers) {
    assert.equal(await of(x, (t) => t.pow(Tensor.full([1], y))), want, `${x} to the power of ${y}`);
  }
  for (let n = -126; n < 128; n += 1) assert.equal(await of(n, (t) => t.exp2()), 2 ** n);
  for (let n = -126; n < 128; n += 1) assert.equal(await of(2 ** n, (t) => t.log2()), n);
  for (const name of ["sin", "cos", "tan", "exp", "log", "exp2", "log2"]) {
    for (const x of [0.1, 0.7, 1.5, 3, 40.25]) {
      const [folded, computed] = [await of(x, (t) => t[name]()), (await new Tensor([x])[name]().data())[0]];
      // the argument of `exp` is scaled in f32 before a constant is folded
      const bound = 4e-7 * Math.max(1, x / 4) * Math.max(1, Math.abs(folded));
      assert.ok(Math.abs(folded - computed) <= bound, `${name} of ${x}: ${folded}, ${computed}`);
    }
  }
});
