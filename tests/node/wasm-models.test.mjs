// The committed models on the WASM device in node, against their expected outputs.
import assert from "node:assert/strict";
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";
import { TestEngine } from "../lib/conformance.mjs";

const folder = new URL("../models/", import.meta.url);
for (const name of readdirSync(folder).filter((each) => existsSync(new URL(`${each}/model.onnx`, folder)))) {
  test(name, async (context) => {
    const read = (file) => readFileSync(new URL(`${name}/${file}`, folder));
    const engine = TestEngine.onWasm([]);
    const report = JSON.parse(await engine.model(read("model.onnx"), read("input.npz"), read("expected.npz"), 1));
    context.diagnostic(JSON.stringify(report));
    assert.ok(report.error < 1e-3, `error ${report.error}`);
  });
}
