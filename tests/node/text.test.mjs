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
