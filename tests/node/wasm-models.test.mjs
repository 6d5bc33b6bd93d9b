// The committed models on the WASM device in node, against their expected outputs.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { TestEngine } from "../lib/conformance.mjs";

const folder = new URL("../models/", import.meta.url);
const models = JSON.parse(readFileSync(new URL("models.json", folder)));
for (const [name, limit] of Object.entries(models)) {
  test(name, async (context) => {
    const read = (file) => readFileSync(new URL(`${name}/${file}`, folder));
    const engine = TestEngine.onWasm([]);
    const report = JSON.parse(await engine.model(read("model.onnx"), read("input.npz"), read("expected.npz"), 1));
    context.diagnostic(JSON.stringify(report));
    assert.ok(report.error <= limit, `error ${report.error}`);
  });
}
