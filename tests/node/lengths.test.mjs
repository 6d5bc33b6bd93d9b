// Lengths that change from run to run: one plan serves all of them, so that nothing is compiled after the second shape, and the numbers are
// those of onnxruntime (tests/zoo/lengths.py recorded eight elements of each output for fifty shapes).
import assert from "node:assert/strict";
import fs from "node:fs/promises";
import { readFileSync } from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { test } from "node:test";
import * as gradloom from "gradloom";
import { PAST, growCache, inputsOf, runGrouped, runShapes, runsThatCompiled } from "../lib/lengths.mjs";

const { Tensor, load } = gradloom;
const model = (name) => new URL(`../models/${name}/model.onnx`, import.meta.url);
const inputs = (shape) => inputsOf(gradloom, shape);

/** How often the part for lengths was read. */
let parts = 0;
/** Is it gone? */
let missing = false;
const { readFile } = fs;
fs.readFile = (path, ...rest) => {
  if (/gradloom_lengths_bg/.test(String(path))) {
    parts += 1;
    if (missing) throw new Error("there is no such file");
  }
  return readFile(path, ...rest);
};
syncBuiltinESMExports();

/** Runs the shapes that onnxruntime ran. */
async function fifty(name, dynamic, first) {
  const m = await load(model(name), { device: "wasm", dynamic });
  const { compiled, error } = await runShapes(gradloom, m, new Uint8Array(readFileSync(new URL("lengths.npz", model(name)))));
  assert.ok(error <= 5e-5, `${name}: off by ${error}`);
  assert.ok(compiled[0] > 0 && compiled[1] > 0, `${compiled}`);
  assert.deepEqual(runsThatCompiled(compiled, first + 1), [], `${name}: ${compiled}`);
  m.dispose();
}

const cacheOf = (list) => Object.fromEntries(PAST.map((name, i) => [name, list[i]]));

/** Values of the first output, which are near those of a plan for this shape alone. */
async function same(m, fixed, given, what) {
  const [[got], [want]] = [Object.values(await m.run(given)), Object.values(await fixed.run(given))];
  assert.deepEqual(got.shape, want.shape);
  const [a, b] = (await Promise.all([got, want].map((t) => t.data()))).map((values) => Array.from(values, Number));
  const most = b.reduce((x, y) => Math.max(x, Math.abs(y)), 0);
  assert.ok(a.every((x, j) => Math.abs(x - b[j]) <= 2e-5 * most), what);
}

test("without the part each shape has its plan, unless lengths were asked for", async () => {
  missing = true;
  const m = await load(model("zoo_t5_encoder"), { device: "wasm" });
  const asked = await load(model("zoo_t5_encoder"), { device: "wasm", dynamic: true });
  const fixed = await load(model("zoo_t5_encoder"), { device: "wasm", dynamic: false });
  await asked.run(inputs([2, 9]));
  await assert.rejects(asked.run(inputs([2, 17])), (error) => error.code === "E_FETCH" && /lengths/.test(error.message));
  await same(m, fixed, inputs([2, 9]), "the first shape");
  assert.deepEqual(m.notes, []);
  await same(m, fixed, inputs([2, 17]), "the second shape");
  assert.match(m.notes[0], /plan of its own: .*lengths/);
  assert.equal(parts, 2);
  [missing, parts] = [false, 0];
  await asked.run(inputs([2, 17]));
  assert.equal(parts, 1);
  for (const each of [m, asked, fixed]) each.dispose();
});

test("lengths that change have one plan from the second on, batches have plans of their own, and nothing is loaded for those", async () => {
  parts = 0;
  const m = await load(model("zoo_t5_encoder"), { device: "wasm" });
  const fixed = await load(model("zoo_t5_encoder"), { device: "wasm", dynamic: false });
  const compiled = [];
  for (const shape of [[1, 9], [2, 9], [1, 9], [1, 17], [1, 2], [1, 30], [1, 25]]) {
    await m.run(inputs(shape));
    compiled.push(m.timing.kernelsCompiled);
  }
  assert.ok(compiled[3] > 0, `${compiled}`);
  assert.deepEqual([compiled[2], ...compiled.slice(4)], [0, 0, 0, 0], `${compiled}`);
  assert.deepEqual([m.notes, fixed.notes], [[], []]);
  for (const shape of [[1, 11], [4, 32], [2, 31]]) await same(m, fixed, inputs(shape), `${shape}`);
  m.dispose();
  fixed.dispose();
});

const noise = (...shape) => new Tensor(Float32Array.from({ length: shape.reduce((a, b) => a * b) }, (_, i) => Math.sin(i * 0.37)), shape);

test("a recurrent network has one plan for sequences of every length", async () => {
  const m = await load(model("silero_vad_sequence"), { device: "wasm", dynamic: true });
  const fixed = await load(model("silero_vad_sequence"), { device: "wasm", dynamic: false });
  const given = (n) => ({ input: noise(n, 576), h: noise(1, 1, 128), c: noise(1, 1, 128) });
  for (const n of [2, 4, 3, 9, 7]) await same(m, fixed, given(n), `${n}`);
  assert.deepEqual(m.notes, []);
  m.dispose();
  fixed.dispose();
});

test("a graph that cannot be had for every length says why", async () => {
  const file = new URL("../fixtures/onnx/recurrent.onnx", import.meta.url);
  const m = await load(file, { device: "wasm", dynamic: true });
  const fixed = await load(file, { device: "wasm", dynamic: false });
  // both the number of steps and that of sequences; no two of the shapes differ alike, also if the part for lengths comes late
  for (const [steps, batch] of [[2, 3], [4, 2], [5, 7]]) await same(m, fixed, { x: noise(steps, batch, 6) }, `${steps}, ${batch}`);
  assert.equal(m.notes.length, 1);
  assert.match(m.notes[0], /^each length of .* has a plan of its own: .*node \S/);
  m.dispose();
  fixed.dispose();
});

test("a network over pictures has one plan for every size", async () => {
  const m = await load(model("esrgan_slim_x2"), { device: "wasm" });
  const fixed = await load(model("esrgan_slim_x2"), { device: "wasm", dynamic: false });
  const given = (h, w) => ({ LR: new Tensor(Float32Array.from({ length: h * w * 3 }, (_, i) => Math.sin(i * 0.37)), [1, h, w, 3]) });
  for (const [h, w] of [[8, 9], [12, 11], [9, 14], [8, 12]]) await same(m, fixed, given(h, w), `${h}, ${w}`);
  assert.deepEqual(m.notes, []);
  m.dispose();
  fixed.dispose();
});

test("a network over characters has one plan for words of every length", async () => {
  const m = await load(model("hibari_oov"), { device: "wasm" });
  const fixed = await load(model("hibari_oov"), { device: "wasm", dynamic: false });
  const given = (n) => ({ chars: new Tensor(BigInt64Array.from({ length: n }, (_, i) => BigInt((i * 3 % 20) + 1)), [1, n]) });
  for (const n of [6, 9, 12, 7]) await same(m, fixed, given(n), `${n}`);
  assert.deepEqual(m.notes, []);
  m.dispose();
  fixed.dispose();
});

test("without bounds the part is loaded for the second shape, and lengths have plans by powers of two", async () => {
  parts = 0;
  const m = await load(model("zoo_t5_encoder"), { device: "wasm", dynamic: true });
  const fixed = await load(model("zoo_t5_encoder"), { device: "wasm", dynamic: false });
  const compiled = [];
  for (const [i, shape] of [[2, 9], [2, 9], [3, 17], [8, 2], [5, 30], [2, 31], [7, 25]].entries()) {
    const [got] = Object.values(await m.run(inputs(shape)));
    const [want] = Object.values(await fixed.run(inputs(shape)));
    assert.deepEqual(got.shape, want.shape);
    const [a, b] = [await got.data(), await want.data()];
    const most = b.reduce((x, y) => Math.max(x, Math.abs(y)), 0);
    assert.ok(a.every((x, j) => Math.abs(x - b[j]) <= 2e-5 * most), `${shape}`);
    compiled.push(m.timing.kernelsCompiled);
    assert.equal(parts, 0);
  }
  assert.deepEqual(compiled.slice(3), [0, 0, 0, 0]);
  m.dispose();
  fixed.dispose();
});

test("an encoder: fifty batches of texts, numbers of onnxruntime, nothing compiled after the second", () =>
  fifty("zoo_t5_encoder", { s72: [1, 8], s53: [1, 64] }, 1));

test("a decoder with a cache: fifty shapes, numbers of onnxruntime, nothing compiled after the second", () =>
  fifty("zoo_llama_past", { s10: [1, 4], s70: [1, 8], s0: [1, 48] }, 1));

test("a cache grows in place: a hundred steps compile nothing, and are those of values", async () => {
  const m = await load(model("zoo_llama_past"), { device: "wasm", dynamic: { s0: [1, 128] } });
  const fixed = await load(model("zoo_llama_past"), { device: "wasm", dynamic: false });
  let values;
  const compiled = await growCache(gradloom, m, 100, {}, async ({ past, logits, next, ...own }) => {
    assert.deepEqual(next[0].shape, [1, 2, past + 1, 8]);
    if (past < 6 || past === 101) {
      const [want] = Object.values(await fixed.run({ ...inputs([1, 1, past]), ...own, ...(values && cacheOf(values)) }));
      const [a, b] = [await logits.data(), await want.data()];
      const most = b.reduce((x, y) => Math.max(x, Math.abs(y)), 0);
      assert.ok(a.every((x, j) => Math.abs(x - b[j]) <= 2e-5 * most), `step ${past}`);
    }
    if (past < 5 || past === 100) values = await Promise.all(next.map(async (t) => new Tensor((await t.data()).slice(), t.shape)));
  });
  assert.deepEqual(runsThatCompiled(compiled, 2), []);
});

test("two runs that go on from one cache do not disturb each other", async () => {
  const m = await load(model("zoo_llama_past"), { device: "wasm", dynamic: { s0: [1, 64] } });
  const step = (cache, past, id) => m.run({ ...inputs([1, 1, past]), input_ids: new Tensor(BigInt64Array.of(id), [1, 1]), ...cache });
  let cache = {};
  for (let past = 2; past < 6; past += 1) cache = cacheOf(Object.values(await step(cache, past, 7n)).slice(1));
  const logits = async (out) => Array.from(await Object.values(out)[0].data());
  const [one, other] = await Promise.all([step(cache, 6, 3n), step(cache, 6, 9n)]);
  const again = await step(cache, 6, 3n);
  const [a, b, c] = [await logits(one), await logits(other), await logits(again)];
  assert.notDeepEqual(a, b);
  assert.ok(a.every((x, i) => Math.abs(x - c[i]) < 1e-5));
  // what went on from each has its own last row
  const next = async (out, past) => logits(await step(cacheOf(Object.values(out).slice(1)), past, 5n));
  const [x, y, z] = [await next(one, 7), await next(other, 7), await next(again, 7)];
  assert.notDeepEqual(x, y);
  assert.ok(x.every((v, i) => Math.abs(v - z[i]) < 1e-5));
});

test("bounds are kept, and wrong ones are refused by name", async () => {
  const m = await load(model("zoo_llama_past"), { device: "wasm", dynamic: { s0: [1, 4] } });
  const outside = (error) => error.code === "E_INPUT" && /s0/.test(error.message) && /between 1 and 4/.test(error.message);
  await assert.rejects(m.run(inputs([1, 1, 5])), outside);
  for (const range of [[4, 1], [1], 7, [0.5, 2], [1, 2, 3]]) {
    const refused = (error) => error.code === "E_VALUE" && /dynamic\.s0/.test(error.message);
    await assert.rejects(load(model("zoo_llama_past"), { device: "wasm", dynamic: { s0: range } }), refused);
  }
  const strange = (error) => error.code === "E_VALUE" && /`length`/.test(error.message) && /there are \[.*s0/.test(error.message);
  await assert.rejects(load(model("zoo_llama_past"), { device: "wasm", dynamic: { length: [1, 4] } }), strange);
});

test("caches of GroupQueryAttention: one plan for every token, of caches that grow and of a fixed size", async () => {
  const file = (name) => new URL(`../fixtures/onnx/${name}`, import.meta.url);
  const npz = new Uint8Array(readFileSync(file("grouped.npz")));
  for (const [name, rows] of [["one", 0], ["one", 50], ["two", 0]]) {
    const m = await load(file("grouped.onnx"), { device: "wasm" });
    const { compiled, error } = await runGrouped(gradloom, m, npz, name, rows);
    assert.ok(error <= 1e-4, `${name}: off by ${error}`);
    // the chunk of three tokens has a plan of its own, and so have lengths beyond 32
    const again = runsThatCompiled(compiled, 2);
    assert.ok(again.length <= 3 && again.every((n) => n === 4 || n > 20), `${name}, ${rows} rows: ${compiled}`);
    assert.deepEqual(m.notes, []);
    m.dispose();
  }
});
