// Encoders: vectors of texts and scores of pairs against transformers (tests/fixtures/embedders/make.py).
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { before, test } from "node:test";
import { init, memory, stats } from "gradloom";
import { Encoder, LLM } from "gradloom/llm";
import { serve } from "../../scripts/serve.mjs";

const folder = new URL("../fixtures/embedders/", import.meta.url);
const expected = (name) => JSON.parse(readFileSync(new URL(`${name}/expected.json`, folder)));
const kernels = async () => (await stats())[0].kernelsCompiled;

function close(got, want, what) {
  assert.equal(got.length, want.length, what);
  const most = Math.max(...want.map(Math.abs));
  want.forEach((w, i) => assert.ok(Math.abs(got[i] - w) <= 1e-4 * most, `${what}: element ${i} is ${got[i]}, not ${w}`));
}

before(() => init({ device: "wasm", threads: 2 }));

test("vectors are those of transformers, of one text and of many, and nothing is compiled for other texts", async () => {
  for (const [name, from] of [
    ["bert", "bert.gguf"], ["bert", "bert/"], ["bertcls", "bertcls/"], ["nomic", "nomic.gguf"], ["nomic", "nomic/"], ["roberta", "roberta/"],
    ["mpnet", "mpnet/"],
  ]) {
    const encoder = await Encoder.load(new URL(from, folder));
    const { texts } = expected(name);
    // RoBERTa and MPNet count positions from the number of the padding token
    const context = { roberta: 95, mpnet: 94 }[name] ?? 96;
    assert.deepEqual([encoder.info.width, encoder.info.labels, encoder.info.hasTokenizer, encoder.info.context], [32, 0, true, context], from);
    for (const { text, ids, vector } of texts) {
      assert.deepEqual(await encoder.tokenizer.encode(text), ids, from);
      close(await encoder.embed(text), vector, from);
    }
    const many = Array.from({ length: 20 }, (_, i) => texts[i % texts.length]);
    const check = async () => (await encoder.embed(many.map(({ text }) => text))).forEach((got, i) => close(got, many[i].vector, from));
    await check();
    const compiled = await kernels();
    await check();
    // tokens instead of a text, and two requests at once
    const [a, b] = await Promise.all([encoder.embed([texts[0].ids]), encoder.embed(texts[1].text)]);
    close(a[0], texts[0].vector, from);
    close(b, texts[1].vector, from);
    assert.equal(await kernels(), compiled, `${from}: kernels were compiled for other texts`);
    assert.deepEqual(await encoder.embed([]), []);
    encoder.dispose();
  }
});

test("cross-encoders order documents by their scores", async () => {
  for (const [name, from] of [["bertrank", "bertrank.gguf"], ["bertrank", "bertrank/"], ["robertarank", "robertarank/"], ["xlmrank", "xlmrank.gguf"]]) {
    const encoder = await Encoder.load(new URL(from, folder));
    assert.equal(encoder.info.labels, 1);
    for (const { query, document, score } of expected(name).pairs) {
      const other = "a boat, a boat!";
      const ranked = await encoder.rerank(query, [other, document]);
      assert.ok(ranked[0].score >= ranked[1].score && ranked.length === 2);
      const found = ranked.find(({ index }) => index === 1);
      assert.ok(Math.abs(found.score - score) <= 1e-4 * Math.abs(score), `${from}: ${found.score}, not ${score}`);
      assert.ok(Math.abs(found.relevance - 1 / (1 + Math.exp(-found.score))) < 1e-9);
      assert.deepEqual(await encoder.rerank(query, [other, document], { top: 1 }), ranked.slice(0, 1));
    }
    // a document that is too long is cut
    assert.ok(Number.isFinite((await encoder.rerank("a dog", ["the cat ".repeat(200)]))[0].score));
    assert.deepEqual(await encoder.rerank("a dog", []), []);
    await assert.rejects(encoder.embed("a dog"), { code: "E_UNSUPPORTED", message: /rerank/ });
    await assert.rejects(encoder.rerank("a dog", ["the cat"], { top: -1 }), { code: "E_VALUE" });
    encoder.dispose();
  }
});

test("what cannot be is refused, and a disposed model leaves nothing", async () => {
  const encoder = await Encoder.load(new URL("bert/", folder), { context: 64 });
  await assert.rejects(encoder.rerank("a", ["b"]), { code: "E_UNSUPPORTED", message: /classification head/ });
  await assert.rejects(encoder.embed("the cat ".repeat(60)), { code: "E_VALUE", message: /with room for 64/ });
  for (const tokens of [[], [71], [-1], [1.5]]) await assert.rejects(encoder.embed([tokens]), { code: "E_VALUE" });
  const stopped = new AbortController();
  stopped.abort(new Error("enough"));
  await assert.rejects(encoder.embed("a cat", { signal: stopped.signal }), /enough/);
  // the next request is right
  close(await encoder.embed(expected("bert").texts[0].text), expected("bert").texts[0].vector, "after an abort");
  const pending = encoder.embed("a cat");
  encoder.dispose();
  await assert.rejects(pending, { code: "E_STATE" });
  await assert.rejects(encoder.embed("a cat"), { code: "E_STATE" });
  const llama = new URL("../fixtures/llm/llama.gguf", import.meta.url);
  await assert.rejects(Encoder.load(llama), { code: "E_UNSUPPORTED", message: /`llama`/ });
  await assert.rejects(LLM.load(new URL("bert.gguf", folder)), { code: "E_UNSUPPORTED", message: /`bert`/ });
  await assert.rejects(Encoder.load(new URL("bert/", folder), { context: 0 }), { code: "E_VALUE" });
  await assert.rejects(Encoder.load(new URL("nothing.gguf", folder)), { code: "E_FETCH" });
});

test("files come by name and from servers too", async () => {
  const bytes = (name) => readFileSync(new URL(name, folder));
  const names = ["config.json", "model.safetensors", "tokenizer.json", "modules.json", "1_Pooling/config.json"];
  const files = Object.fromEntries(names.map((name) => [name, bytes(`roberta/${name}`)]));
  const [first] = expected("roberta").texts;
  const phases = new Set();
  const encoder = await Encoder.load(files, { onProgress: ({ phase }) => phases.add(phase) });
  close(await encoder.embed(first.text), first.vector, "by name");
  assert.deepEqual([...phases].sort(), ["device", "parse"]);
  encoder.dispose();
  const { "1_Pooling/config.json": _, ...lacking } = files;
  await assert.rejects(Encoder.load(lacking), { code: "E_INPUT", message: /1_Pooling/ });
  const server = await serve({ "/": fileURLToPath(folder) });
  try {
    const remote = await Encoder.load(`${server.url}/mpnet/`);
    const [text] = expected("mpnet").texts;
    close(await remote.embed(text.text), text.vector, "from a server");
    remote.dispose();
  } finally {
    server.close();
  }
});

test("a disposed encoder leaves no memory behind", async () => {
  const { text } = expected("bert").texts[0];
  const used = async () => {
    const encoder = await Encoder.load(new URL("bert.gguf", folder));
    await encoder.embed([text, text]);
    encoder.dispose();
    // buffers are freed once the queue of requests is empty
    await new Promise((done) => setTimeout(done, 50));
    return (await memory()).tensors;
  };
  assert.equal(await used(), await used());
});
