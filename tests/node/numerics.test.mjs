// The numeric contract on the WASM device in node, with relaxed SIMD where node has it and without.
import assert from "node:assert/strict";
import { test } from "node:test";
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
