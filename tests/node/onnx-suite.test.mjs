// A slice of the ONNX backend suite, and operators of com.microsoft, on the WASM device in node.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { runSuite } from "../lib/onnx_suite.mjs";

for (const [file, least] of [["slice.zip", 150], ["contrib.zip", 130], ["dynamic.zip", 15], ["ml.zip", 40], ["opset.zip", 45]]) {
  test(file, async () => {
    const results = await runSuite(readFileSync(new URL(`../fixtures/onnx/${file}`, import.meta.url)));
    const bad = results.filter((r) => r.what !== "pass").map((r) => `${r.what} ${r.name} ${r.why}`);
    assert.ok(results.length >= least, `${results.length} cases`);
    assert.deepEqual(bad, []);
  });
}
