// Samples of torch's operator tests on the WASM device in node; all of them: `npm run conformance:torch -- --device wasm`.
import assert from "node:assert/strict";
import { test } from "node:test";
import { TorchSuite } from "../lib/conformance.mjs";
import { torchSamples } from "../lib/suites.mjs";

test("every 31st sample", async () => {
  const results = [];
  await torchSamples(TorchSuite, { every: 31 }, (result) => void results.push(result));
  const bad = results.filter((r) => r.what !== "pass").map((r) => `${r.what} ${r.name} ${r.why}`);
  assert.ok(results.length > 150, `${results.length} samples`);
  assert.deepEqual(bad, []);
});
