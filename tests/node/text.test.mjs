// Tokenizers and files of weights in Node, against the references in tests/fixtures.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Tokenizer, init, loadWeights, saveWeights } from "gradloom";
import { readNpz } from "../lib/npz.mjs";

const fixture = (name) => new URL(`../fixtures/${name}`, import.meta.url);
const samples = JSON.parse(readFileSync(fixture("text/samples.json"), "utf8"));

test("every kind of tokenizer agrees with the reference", async () => {
  for (const name of ["gpt2", "llama3", "llama", "suffix", "prefix", "bert", "unigram", "unibyte", "words", "sentence"]) {
    const t = await Tokenizer.load(fixture(`text/${name}.json`));
    samples.texts.forEach((text, i) => {
      const ids = t.encode(text);
      assert.deepEqual(ids, samples[name].ids[i], `${name}: ${text}`);
      assert.equal(t.decode(ids), samples[name].decoded[i], `${name}: ${text}`);
    });
    const [text, pair] = samples.pair;
    assert.deepEqual(t.encodeTyped(text, { pair }), { ids: samples[name].pair, typeIds: samples[name].types }, name);
    t.dispose();
    assert.throws(() => t.encode("a"), { code: "E_STATE" });
  }
  await assert.rejects(Tokenizer.fromJson("{}"), { code: "E_FORMAT" });
});

test("offsets and windows agree with the reference, in UTF-16 units", async () => {
  const file = JSON.parse(readFileSync(fixture("text/offsets.json"), "utf8"));
  for (const [name, cases] of Object.entries(file)) {
    const t = await Tokenizer.load(fixture(`text/${name}.json`));
    for (const { text, pair, how, windows } of cases) {
      const { max_length: maxLength, stride = 0, strategy: truncation, direction: truncationSide } = how;
      const options = { stride, ...(pair !== null && { pair }), ...(maxLength && { maxLength, truncation, truncationSide }) };
      const place = `${name}: ${JSON.stringify([text, options])}`;
      if (windows === null) {
        assert.throws(() => t.encodeWindows(text, options), { code: "E_VALUE" }, place);
        continue;
      }
      const got = t.encodeWindows(text, options);
      // the reference counts characters
      const units = [text, pair ?? ""].map((each) => [...each].reduce((at, c) => [...at, at.at(-1) + c.length], [0]));
      const offsets = (window, { sequenceIds }) => window.offsets.map((o, i) => o.map((n) => (sequenceIds[i] === null ? 0 : units[sequenceIds[i]][n])));
      assert.deepEqual(got.map(({ ids }) => ids), windows.map(({ ids }) => ids), place);
      assert.deepEqual(got.map((each) => each.offsets), windows.map((each, i) => offsets(each, got[i])), place);
      assert.deepEqual([got[0].typeIds, got[0].sequenceIds], [windows[0].types, windows[0].sequences], place);
      const { stride: _, ...first } = options;
      assert.deepEqual(t.encodeTyped(text, { ...first, offsets: true }), got[0], place);
      assert.deepEqual(t.encode(text, first), got[0].ids, place);
    }
  }
});

test("a long document is rows of windows beside a question, each of which knows its text", async () => {
  const t = await Tokenizer.load(fixture("text/bert.json"));
  const question = "Where is the lamp?";
  const pairs = [[question, "It is in the left drawer 👍🏽 of the old desk, beside the window."], [question, "Here."]];
  const how = { maxLength: 24, truncation: "only_second", stride: 4 };
  const rows = t.encodeBatch(pairs, { ...how, length: 26 });
  assert.deepEqual(rows.textIndices.slice(-2), [0, 1]);
  assert.ok(rows.ids.every((row, i) => row.length === 26 && rows.mask[i].length === 26 && rows.typeIds[i].length === 26 && rows.offsets[i].length === 26));
  const asked = t.encode(question, { special: false });
  let reached = 0;
  rows.ids.forEach((row, i) => {
    const [text, pair] = pairs[rows.textIndices[i]];
    const of = (sequence) => row.map((_, at) => at).filter((at) => rows.sequenceIds[i][at] === sequence);
    // every window has the whole question, and says where in the document it is
    assert.deepEqual(of(0).map((at) => row[at]), asked);
    assert.equal(of(0).map((at) => text.slice(...rows.offsets[i][at])).join(""), text.replace(/ /g, ""));
    const [start, end] = [rows.offsets[i][of(1)[0]][0], rows.offsets[i][of(1).at(-1)][1]];
    if (rows.textIndices[i] === 0) {
      assert.ok(start <= reached, "no part of the document is between windows");
      reached = end;
    }
    assert.deepEqual(rows.mask[i].filter((m) => m === 0).length, 26 - row.filter((_, at) => rows.mask[i][at] === 1).length);
    assert.ok(pair.slice(start, end).length > 0);
  });
  assert.equal(reached, pairs[0][1].length);
  const left = t.encodeBatch(["a", "a word"], { paddingSide: "left" });
  assert.deepEqual(left.mask[0].at(0), 0);
  assert.deepEqual(left.ids[0].slice(-3), t.encode("a"));
  assert.ok(!("offsets" in left));
  for (const bad of [{ maxLength: 0 }, { maxLength: 1.5 }, { stride: -1 }]) assert.throws(() => t.encodeWindows("a", bad), { code: "E_VALUE" });
});

test("blocks of GGUF decode to the reference's bits", async () => {
  await init({ device: "wasm" });
  const got = await loadWeights(fixture("io/quants.gguf"));
  const want = await readNpz(readFileSync(fixture("io/quants.npz")));
  for (const [name, { data }] of Object.entries(want)) {
    assert.deepEqual(await got[name].cast("f32").data(), data, name);
  }
});

test("files of torch.save are read, and code in them is refused", async () => {
  for (const file of ["torch_zip.pt", "torch_old.pt"]) {
    const w = await loadWeights(fixture(`io/${file}`));
    assert.deepEqual([...(await w["shared.1"].data())].slice(0, 5), [0, 6, 12, 18, 1]);
    assert.deepEqual(w["model.0.weight"].shape, [3, 2, 3, 3]);
  }
  await assert.rejects(loadWeights(fixture("io/torch_code.pt")), { code: "E_UNSUPPORTED" });
});

test("weights are written and read back in every format", async () => {
  const w = await loadWeights(fixture("io/torch_zip.pt"));
  for (const format of ["safetensors", "npz", "gguf"]) {
    const file = await saveWeights({ a: w["shared.0"], b: w.int }, { format });
    const again = await loadWeights(file);
    assert.deepEqual(await again.a.data(), await w["shared.0"].data(), format);
    assert.deepEqual([again.a.shape, [...(await again.b.data())]], [[4, 6], [-5]], format);
  }
});
