// A sentence embedding model from its safetensors file, on the WASM device in Node.
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { test } from "node:test";
import * as gradloom from "gradloom";
import { sentences } from "../lib/minilm.mjs";
import { leftOut } from "../lib/left_out.mjs";

const weights = new URL("../../.cache/models/minilm_l6_v2/model.safetensors", import.meta.url);
const read = (name) => readFileSync(new URL(`../models/minilm_l6_v2/${name}`, import.meta.url));

const skip = !existsSync(weights) && leftOut("minilm in Node", "run `node scripts/fetch-models.mjs minilm` first");

test("minilm gives onnxruntime's numbers", { skip }, async () => {
  await gradloom.init();
  const rows = await sentences(gradloom, "wasm", { file: weights, input: read("input.npz"), expected: read("expected.npz") });
  assert.deepEqual(rows.map(({ name }) => name).sort(), ["embedding", "hidden"]);
  for (const { name, actual, expected } of rows) {
    assert.equal(actual.length, expected.length);
    const scale = Math.max(...expected.map(Math.abs));
    const worst = expected.reduce((most, value, at) => Math.max(most, Math.abs(value - actual[at])), 0);
    assert.ok(worst <= 1e-3 * scale, `${name} is off by ${worst / scale}`);
  }
});
