// A TensorFlow Lite model through the package, against LiteRT's output.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Tensor, load } from "gradloom";
import { readNpz } from "../lib/npz.mjs";

const folder = new URL("../models/selfie_segmentation/", import.meta.url);

test("selfie_segmentation", async () => {
  const read = (file) => readFileSync(new URL(file, folder));
  const model = await load(new Uint8Array(read("model.tflite")), { device: "wasm" });
  const { input_1: input } = await readNpz(read("input.npz"));
  const { activation_10: expected } = await readNpz(read("expected.npz"));
  const { activation_10: mask } = await model.run({ input_1: new Tensor(input.data, input.shape) });
  assert.deepEqual(mask.shape, expected.shape);
  const values = await mask.data();
  const error = expected.data.reduce((most, value, at) => Math.max(most, Math.abs(value - values[at])), 0);
  assert.ok(error <= 1e-3, `${error}`);
  model.dispose();
});

test("a damaged file is refused", async () => {
  const file = new Uint8Array(readFileSync(new URL("model.tflite", folder))).slice(0, 1000);
  await assert.rejects(load(file, { device: "wasm" }), { code: "E_FORMAT" });
});
