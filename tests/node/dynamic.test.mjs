// Models through the package: sizes that depend on the data, sequences, and the comparison of two devices.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { load } from "gradloom";
import { readZip } from "../lib/npz.mjs";

const cases = await readZip(readFileSync(new URL("../fixtures/onnx/dynamic.zip", import.meta.url)));
const model = (name, options = {}) => load(cases.get(`dynamic/${name}/model.onnx`), { device: "wasm", ...options });
const values = async (t) => Array.from(await t.data(), Number);

test("a loop runs until its values say so", async () => {
  const loop = await model("while");
  for (const [x, turns] of [[[1, 2], 5], [[20, 30], 1], [[1, 1.5], 5], [[1, 2], 5]]) {
    const { y, all } = await loop.run({ x: Float32Array.from(x) });
    assert.deepEqual(await values(y), x.map((v) => v * 2 ** turns));
    assert.deepEqual(all.shape, [turns, 2]);
  }
  loop.dispose();
});

test("sequences are given and read by element", async () => {
  const m = await model("sequences");
  assert.ok(m.inputs[0].sequence);
  const out = await m.run({ "l[0]": Float32Array.of(1), "l[1]": Float32Array.of(2, 3), x: Float32Array.of(7, 8) });
  assert.deepEqual(Object.keys(out), ["r[0]", "r[1]", "r[2]", "a", "parts[0]", "parts[1]"]);
  assert.deepEqual(await values(out["r[0]"]), [7, 8]);
  assert.deepEqual(await values(out["parts[1]"]), [3]);
});

test("a model is compared value by value", async () => {
  const [a, b] = [await model("nonzero", { everyValue: true }), await model("nonzero", { everyValue: true })];
  const x = Float32Array.from({ length: 12 }, (_, i) => Math.sin(i));
  const drifts = await a.compare(b, { x });
  assert.deepEqual(drifts.map((d) => d.value), ["r", "at", "rows", "picked", "s"]);
  assert.ok(drifts.every((d) => !d.drifts && d.maxAbs === 0));
  assert.match(drifts[0].node, /Relu/);
});
