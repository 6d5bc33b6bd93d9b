// The committed models on the WASM device in node, against their expected outputs.
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { TestEngine } from "../lib/conformance.mjs";
import { leftOut } from "../lib/left_out.mjs";

const folder = new URL("../models/", import.meta.url);
const fetched = new URL("../../.cache/models/", import.meta.url);
const list = (file) => Object.entries(JSON.parse(readFileSync(new URL(file, folder))));

function compare(name, limit, file) {
  const skip = !existsSync(file) && leftOut(`${name} in Node`, "run `node scripts/fetch-models.mjs` first");
  test(name, { skip }, async (context) => {
    const read = (file) => readFileSync(new URL(`${name}/${file}`, folder));
    const engine = TestEngine.onWasm([]);
    const report = JSON.parse(await engine.model(readFileSync(file), read("input.npz"), read("expected.npz"), 1));
    context.diagnostic(JSON.stringify(report));
    assert.ok(report.error <= limit, `error ${report.error}`);
  });
}

for (const [name, limit] of list("models.json")) compare(name, limit, new URL(`${name}/model.onnx`, folder));
for (const [name, limit] of list("fetched.json")) compare(name, limit, new URL(`${name}/model.onnx`, fetched));
