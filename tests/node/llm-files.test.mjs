// What language models are loaded from besides one GGUF file: folders as Hugging Face has them, split GGUF files, files by name. What they write is
// what transformers wrote (tests/fixtures/llm), or what the GGUF file of our own model gives in these other forms (tests/models/verses/convert.mjs).
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { FetchError, FormatError, InputError, UnsupportedError, ValueError, init } from "gradloom";
import { LLM } from "gradloom/llm";
import { serve } from "../../scripts/serve.mjs";
import { folder, readGguf, safetensors, split, write } from "../models/verses/convert.mjs";

const fixture = (name) => new URL(`../fixtures/llm/${name}/`, import.meta.url);
const own = new URL("../models/verses/verses-q8_0.gguf", import.meta.url);
const greedy = JSON.parse(readFileSync(new URL("../models/verses/expected.json", import.meta.url)));
const model = readGguf(readFileSync(own));
const forms = { whole: folder(model), sharded: folder(model, 3), split: split(model, "verses", 3), bare: split(model, "verses", 3, { emptyFirst: true }) };
const written = new URL("../tmp/llm-files/", import.meta.url);
const at = (name) => new URL(name, written);
const blobs = (files) => Object.fromEntries(Object.entries(files).map(([name, bytes]) => [name, new Blob([bytes])]));
const all = async (pieces) => {
  const list = [];
  for await (const piece of pieces) list.push(piece);
  return list;
};

before(async () => {
  for (const [name, files] of Object.entries(forms)) write(fileURLToPath(at(name)), files);
  await init({ device: "wasm", threads: 2 });
});

test("tokens of folders are those that transformers chooses", async () => {
  // other rows, weights with inputs first, norms less one, matrices in one
  const names = { llama3: "llama", gemma3images: "gemma3" };
  for (const name of ["llama", "llama3", "gemma2", "phi3", "gpt2", "olmo2", "stablelm", "smollm3", "gemma3images"]) {
    const { prompt, tokens } = JSON.parse(readFileSync(new URL("expected.json", fixture(name))));
    const llm = await LLM.load(fixture(name), { context: 128 });
    assert.equal(llm.info.architecture, names[name] ?? name, name);
    assert.deepEqual(await all(llm.tokens(prompt, { maxTokens: 40, ignoreEnd: true })), tokens.slice(0, 40), name);
    llm.dispose();
  }
});

test("a tokenizer that is not known is named to those who need it", async () => {
  const bytes = new Uint8Array(readFileSync(own));
  const key = "tokenizer.ggml.pre";
  // the key, the type of the value, its length, and its text
  bytes.set([122, 122], Buffer.from(bytes.buffer).indexOf(key) + key.length + 12);
  const llm = await LLM.load(bytes, { context: 128 });
  assert.equal(llm.info.hasTokenizer, false);
  assert.equal((await all(llm.tokens(greedy.ids, { maxTokens: 3, ignoreEnd: true }))).length, 3);
  await assert.rejects(llm.tokenizer.encode("a"), (error) => error instanceof UnsupportedError && /pre-tokenizer `zz/.test(error.message));
  llm.dispose();
});

/** The same text, tokens, chat and end as the GGUF file. */
async function same(llm, answer, name) {
  assert.deepEqual([llm.info.architecture, llm.info.hasTemplate, llm.info.hasTokenizer], ["llama", true, true], name);
  assert.deepEqual(await llm.tokenizer.encode(greedy.prompt), greedy.ids, name);
  assert.deepEqual(await all(llm.tokens(greedy.prompt, { maxTokens: greedy.tokens.length, ignoreEnd: true })), greedy.tokens, name);
  assert.equal((await all(llm.chat([{ role: "user", content: "Who is wise?" }], { maxTokens: 40 }))).join(""), answer.text, name);
  assert.deepEqual([llm.stats.end, llm.stats.promptTokens], [answer.end, answer.prompt], name);
  llm.dispose();
}

async function wanted() {
  const llm = await LLM.load(own, { context: 128 });
  const text = (await all(llm.chat([{ role: "user", content: "Who is wise?" }], { maxTokens: 40 }))).join("");
  const answer = { text, end: llm.stats.end, prompt: llm.stats.promptTokens };
  llm.dispose();
  return answer;
}

test("a model of our own is the same in all forms", async () => {
  const answer = await wanted();
  const places = [
    "whole", "whole/", "whole/config.json", "whole/model.safetensors", "sharded", "sharded/model.safetensors.index.json",
    "split/verses-00001-of-00003.gguf", "split/verses-00003-of-00003.gguf", "bare/verses-00001-of-00003.gguf",
  ];
  for (const place of places) await same(await LLM.load(fileURLToPath(at(place)), { context: 128 }), answer, place);
  await same(await LLM.load(at("sharded/"), { context: 128 }), answer, "an address of a folder");
  for (const name of ["whole", "sharded", "split", "bare"]) await same(await LLM.load(blobs(forms[name]), { context: 128 }), answer, `${name} by name`);
  const list = Object.entries(forms.sharded).map(([name, bytes]) => new File([bytes], name));
  await same(await LLM.load(list, { context: 128 }), answer, "a list of files");
});

test("weights are read by ranges, each part once, and the metadata is the configuration's", async () => {
  const server = await serve({ "/": fileURLToPath(written) });
  after(() => server.close());
  const answer = await wanted();
  for (const [name, path] of [["whole", "whole/"], ["sharded", "sharded/config.json?token=1"], ["split", "split/verses-00002-of-00003.gguf?token=1"]]) {
    const asked = [];
    const counting = (address, given) => {
      asked.push([String(address), new Headers(given?.headers).get("range")]);
      return fetch(address, given);
    };
    const progress = [];
    const llm = await LLM.load(`${server.url}/${path}`, { context: 128, fetch: counting, onProgress: (p) => progress.push(p) });
    const isWeights = ([address]) => /\.(safetensors|gguf)(\?|$)/.test(address);
    assert.ok(asked.filter(isWeights).length > 0 && asked.filter(isWeights).every(([, range]) => /^bytes=\d+-\d+$/.test(range)), `${name}: ${asked}`);
    assert.ok(asked.every(([address]) => address.endsWith("?token=1") === path.includes("?")), `${asked}`);
    const bytes = Object.entries(forms[name]).reduce((sum, [file, content]) => sum + (isWeights([file]) ? content.length : 0), 0);
    const { loaded, total } = progress.filter(({ phase }) => phase === "download").at(-1);
    assert.equal(loaded, total, name);
    assert.ok(loaded <= bytes + 3 * 70_000 && loaded > 0.9 * bytes, `${name}: ${loaded} of ${bytes}`);
    if (name !== "split") assert.deepEqual([llm.metadata.num_hidden_layers, llm.metadata.model_type], [4, "llama"]);
    await same(llm, answer, name);
  }
});

test("what is missing, or of another model, is named", async () => {
  const fails = (from, what) => assert.rejects(LLM.load(from, { context: 32 }), what);
  const without = (files, name) => Object.fromEntries(Object.entries(files).filter(([each]) => each !== name));
  const [second] = [forms.sharded["model-00002-of-00003.safetensors"]];
  await fails(blobs(without(forms.sharded, "model-00002-of-00003.safetensors")), (e) => e instanceof InputError && /model-00002-of-00003/.test(e.message));
  const twice = blobs({ ...forms.sharded, "model-00003-of-00003.safetensors": second });
  await fails(twice, { code: "E_MODEL", message: /model-00003-of-00003\.safetensors.* lacks the tensor/ });
  await fails(blobs(without(forms.whole, "model.safetensors")), InputError);
  await fails(blobs({ ...forms.whole, "model.safetensors": safetensors([]) }), { code: "E_MODEL", message: /token_embd/ });
  await fails(blobs({ ...forms.whole, "model.safetensors": forms.whole["model.safetensors"].slice(0, 500_000) }), FormatError);
  const configured = (text) => blobs({ ...forms.whole, "config.json": new TextEncoder().encode(text) });
  await fails(configured('{"architectures": ["XForCausalLM"]}'), { code: "E_UNSUPPORTED", message: /XForCausalLM/ });
  await fails(configured("<!doctype html><p>no</p>"), { code: "E_FORMAT", message: /web page.*not a language model's config/ });
  const index = new TextEncoder().encode('{"weight_map": {"model.norm.weight": "../model.safetensors"}}');
  await fails(blobs({ ...forms.whole, "model.safetensors.index.json": index }), FormatError);
  await fails(blobs({ "a.txt": new Uint8Array(3) }), InputError);
  await fails({}, ValueError);
  await fails([], ValueError);
  await fails(fileURLToPath(at("nowhere/")), FetchError);
  const part = (n) => forms.split[`verses-0000${n}-of-00003.gguf`];
  await fails(blobs(without(forms.split, "verses-00003-of-00003.gguf")), InputError);
  await fails(blobs({ ...forms.split, "verses-00003-of-00003.gguf": part(2) }), { code: "E_FORMAT", message: /file 2 of 3 comes as file 3/ });
  await fails(part(1), (e) => e instanceof InputError && /3 files/.test(e.message));
  await fails(blobs(without(forms.split, "verses-00001-of-00003.gguf")), InputError);
  // without a tokenizer tokens can be given
  const llm = await LLM.load(blobs(without(without(forms.whole, "tokenizer.json"), "tokenizer_config.json")), { context: 64 });
  assert.deepEqual([llm.info.hasTokenizer, llm.info.hasTemplate], [false, false]);
  assert.deepEqual(await all(llm.tokens(greedy.ids, { maxTokens: 10 })), greedy.tokens.slice(0, 10));
  llm.dispose();
});
