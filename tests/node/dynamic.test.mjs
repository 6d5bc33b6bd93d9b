// Models through the package: sizes that depend on the data, sequences, and the comparison of two devices.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { BudgetError, Tensor, load } from "gradloom";
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

test("a model gets no more than its budget", async () => {
  const loop = await model("while", { budget: { nodes: 3 } });
  const refused = (e) => e instanceof BudgetError && e.code === "E_BUDGET" && /nodes/.test(e.message);
  await assert.rejects(loop.run({ x: Float32Array.of(1, 2) }), refused);
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

test("outputs are inputs of the next run, on the device and by their values", async () => {
  const llama = await load(new URL("../models/zoo_llama_past/model.onnx", import.meta.url), { device: "wasm" });
  const past = ["past_k0", "past_v0", "past_k1", "past_v1"];
  const some = (n, seed) => Float32Array.from({ length: n }, (_, i) => Math.sin(i * 1.7 + seed));
  const start = () => Object.fromEntries(past.map((name, i) => [name, new Tensor(some(2 * 3 * 8, i), [1, 2, 3, 8])]));
  const copied = async (t) => new Tensor((await t.data()).slice(), t.shape);
  // what the cache is given as for the next step: where it is, a lazy view of it, its values
  const ways = [(t) => t, (t) => t.reshape([-1]).add(0).reshape(t.shape), copied];
  const texts = [];
  for (const way of ways) {
    let cache = start();
    const logits = [];
    for (let step = 0; step < 5; step += 1) {
      const mask = new Tensor(new BigInt64Array(4 + step).fill(1n), [1, 4 + step]);
      const { out0, ...out } = await llama.run({ input_ids: new Tensor(BigInt64Array.of(BigInt(step * 7 + 1)), [1, 1]), attention_mask: mask, ...cache });
      assert.deepEqual(out.out1.shape, [1, 2, 4 + step, 8]);
      logits.push(await values(out0));
      cache = Object.fromEntries(await Promise.all(past.map(async (name, i) => [name, await way(out[`out${i + 1}`])])));
    }
    texts.push(logits);
  }
  assert.deepEqual(texts[1], texts[0]);
  assert.deepEqual(texts[2], texts[0]);
  assert.ok(texts[0].flat().every(Number.isFinite) && texts[0][0].some((v, i) => v !== texts[0][1][i]));
  // one tensor for several inputs, and other ones after it
  const ids = () => ({ input_ids: new Tensor(BigInt64Array.of(5n), [1, 1]), attention_mask: new Tensor(new BigInt64Array(4).fill(1n), [1, 4]) });
  const [a, b] = [1, 2].map((seed) => some(2 * 3 * 8, seed));
  const on = (data) => new Tensor(data, [1, 2, 3, 8]).add(0);
  for (const list of [[a, a, a, a], [a, b, a, b], [b, b, a, a]]) {
    const [ta, tb] = [on(a), on(b)];
    const fed = Object.fromEntries(past.map((name, i) => [name, list[i] === a ? ta : tb]));
    const want = await llama.run({ ...ids(), ...Object.fromEntries(past.map((name, i) => [name, new Tensor(list[i], [1, 2, 3, 8])])) });
    const got = await llama.run({ ...ids(), ...fed });
    assert.deepEqual(await values(got.out0), await values(want.out0));
  }
  llama.dispose();
});
