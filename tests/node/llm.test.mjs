// Language models: against transformers (tests/fixtures/llm/make.py), and a small one of our own that writes and chats.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { FormatError, StateError, Tensor, Tokenizer, UnsupportedError, ValueError, init, memory, stats } from "gradloom";
import { LLM } from "gradloom/llm";
import { serve } from "../../scripts/serve.mjs";

const fixture = (name) => new URL(`../fixtures/llm/${name}.gguf`, import.meta.url);
const expected = (name) => JSON.parse(readFileSync(new URL(`../fixtures/llm/${name}/expected.json`, import.meta.url)));
const verses = new URL("../models/verses/", import.meta.url);
const own = new URL("verses-q8_0.gguf", verses);
const greedy = JSON.parse(readFileSync(new URL("expected.json", verses)));

const all = async (pieces) => {
  const list = [];
  for await (const piece of pieces) list.push(piece);
  return list;
};
const text = async (pieces) => (await all(pieces)).join("");
const kernels = async () => (await stats())[0].kernelsCompiled;

before(() => init({ device: "wasm", threads: 2 }));

test("tokens are those that transformers chooses, and nothing is compiled after the second one", async () => {
  for (const name of ["llama", "llama3", "qwen3", "gemma2", "phi3", "gpt2"]) {
    const { prompt, tokens } = expected(name);
    const llm = await LLM.load(fixture(name));
    assert.equal(llm.info.context, 256, name);
    const got = [];
    let after2;
    for await (const token of llm.tokens(prompt, { maxTokens: 60, ignoreEnd: true })) {
      got.push(token);
      if (got.length === 3) after2 = await kernels();
    }
    assert.deepEqual(got, tokens.slice(0, 60), name);
    assert.equal(await kernels(), after2, `${name}: kernels were compiled for later tokens`);
    assert.deepEqual([llm.stats.promptTokens, llm.stats.tokens, llm.stats.end], [prompt.length, 60, "length"]);
    llm.dispose();
  }
});

test("what texts have in common is read once, and gives the same", async () => {
  const { prompt, tokens } = expected("llama");
  const llm = await LLM.load(fixture("llama"), { context: 128 });
  assert.deepEqual(await all(llm.tokens(prompt, { maxTokens: 8 })), tokens.slice(0, 8));
  const other = [...prompt.slice(0, 20), 5, 6, 7];
  const again = await all(llm.tokens(other, { maxTokens: 8, ignoreEnd: true }));
  assert.equal(llm.stats.reusedTokens, 20);
  assert.deepEqual(await all(llm.tokens([...prompt, ...tokens.slice(0, 8)], { maxTokens: 8, ignoreEnd: true })), tokens.slice(8, 16));
  assert.ok(llm.stats.reusedTokens >= 20);
  const fresh = await LLM.load(fixture("llama"), { context: 128 });
  assert.deepEqual(await all(fresh.tokens(other, { maxTokens: 8, ignoreEnd: true })), again);
  // two models on one device, at the same time
  const both = await Promise.all([llm, fresh].map((each) => all(each.tokens(prompt, { maxTokens: 30, ignoreEnd: true }))));
  assert.deepEqual(both, [tokens.slice(0, 30), tokens.slice(0, 30)]);
  for (const each of [llm, fresh]) each.dispose();
});

test("keys and values in 16 bits and as bytes", async () => {
  const { prompt, tokens } = expected("llama");
  for (const cacheType of ["f32", "f16", "q8"]) {
    const llm = await LLM.load(fixture("llama"), { cacheType });
    assert.equal((await all(llm.tokens(prompt, { maxTokens: 4, ignoreEnd: true })))[0], tokens[0], cacheType);
    // one by one, which multiplies with the bytes themselves, and several at once give the same
    const rest = await all(llm.tokens(prompt, { maxTokens: 30, ignoreEnd: true }));
    const again = await LLM.load(fixture("llama"), { cacheType });
    assert.deepEqual(await all(again.tokens([...prompt, ...rest.slice(0, 12)], { maxTokens: 6, ignoreEnd: true })), rest.slice(12, 18), cacheType);
    for (const each of [llm, again]) each.dispose();
  }
  // what a model takes beside the buffers that the one before it left
  const taken = async (cacheType) => {
    const before = (await memory())[0].bytes;
    const llm = await LLM.load(own, { cacheType });
    await all(llm.tokens(prompt.slice(0, 4), { maxTokens: 4, ignoreEnd: true }));
    const bytes = (await memory())[0].bytes - before;
    llm.dispose();
    await new Promise((done) => setTimeout(done, 50));
    return bytes;
  };
  for (const cacheType of ["f32", "f16", "q8"]) await taken(cacheType);
  const [full, half, bytes] = [await taken("f32"), await taken("f16"), await taken("q8")];
  assert.ok(full > half && half > bytes, `${full}, ${half}, ${bytes}`);
  await assert.rejects(LLM.load(fixture("llama"), { cacheType: "q4" }), { code: "E_VALUE", message: /q4/ });
});

test("Mamba has a state, which goes on from all that was read or begins anew", async () => {
  const { prompt, tokens } = expected("mamba");
  for (const from of [fixture("mamba"), new URL("../fixtures/llm/mamba/", import.meta.url)]) {
    const llm = await LLM.load(from);
    const how = { maxTokens: 60, ignoreEnd: true };
    assert.deepEqual(await all(llm.tokens(prompt, how)), tokens.slice(0, 60));
    assert.deepEqual(await all(llm.tokens([...prompt, ...tokens.slice(0, 60)], how)), tokens.slice(60, 120));
    assert.equal(llm.stats.reusedTokens, prompt.length + 59);
    const other = [...prompt.slice(0, 20), 5, 6, 7];
    const again = await all(llm.tokens(other, how));
    assert.equal(llm.stats.reusedTokens, 0);
    // guesses cannot be taken back, so there are none
    assert.deepEqual(await all(llm.tokens(other, { ...how, guess: true })), again);
    assert.deepEqual(await all(llm.tokens(prompt, how)), tokens.slice(0, 60));
    llm.dispose();
  }
  await assert.rejects(LLM.load(fixture("mamba"), { cacheType: "q8" }), { code: "E_UNSUPPORTED", message: /mamba/ });
});

test("layers with a window keep that much of a long text, which goes back as far as it is there", async () => {
  for (const name of ["mistral", "gemma3"]) {
    const { prompt, tokens } = expected(name);
    const how = { maxTokens: 6, ignoreEnd: true };
    const llm = await LLM.load(fixture(name));
    assert.deepEqual(await all(llm.tokens(prompt, { ...how, maxTokens: 200 })), tokens);
    const whole = [...prompt, ...tokens];
    assert.deepEqual(await all(llm.tokens(whole.slice(0, 200), how)), whole.slice(200, 206), name);
    assert.equal(llm.stats.reusedTokens, 199);
    const other = [...prompt.slice(0, 20), 5, 6, 7];
    const again = await all(llm.tokens(other, how));
    assert.equal(llm.stats.reusedTokens, 0);
    const fresh = await LLM.load(fixture(name));
    assert.deepEqual(await all(fresh.tokens(other, how)), again);
    assert.deepEqual(await all(fresh.tokens(whole.slice(0, 230), how)), whole.slice(230, 236), name);
    for (const each of [llm, fresh]) each.dispose();
  }
});

test("draws are the seed's, and the random numbers of tensors are left alone", async () => {
  const llm = await LLM.load(fixture("llama"), { context: 128 });
  const draw = (seed) => all(llm.tokens([2, 3, 4], { maxTokens: 20, temperature: 1.5, topK: 20, topP: 0.95, repetitionPenalty: 1.1, seed, ignoreEnd: true }));
  Tensor.manualSeed(3);
  const before = await Tensor.randn([4]).tolist();
  const [a, b, c] = [await draw(1), await draw(1), await draw(2)];
  assert.deepEqual(a, b);
  assert.notDeepEqual(a, c);
  assert.notDeepEqual(await Tensor.randn([4]).tolist(), before);
  const banned = Object.fromEntries(a.map((token) => [token, -Infinity]));
  const others = await all(llm.tokens([2, 3, 4], { maxTokens: 20, temperature: 1.5, logitBias: banned, ignoreEnd: true }));
  assert.ok(others.every((token) => !(token in banned)));
  llm.dispose();
});

test("a model of our own writes, as it does natively", async () => {
  const llm = await LLM.load(own, { context: 256 });
  assert.deepEqual([llm.info.architecture, llm.info.hasTemplate, llm.info.hasTokenizer], ["llama", true, true]);
  assert.equal(llm.metadata["general.name"], "verses");
  const { prompt, tokens, text: wanted } = greedy;
  const ids = await llm.tokenizer.encode(prompt);
  assert.deepEqual(ids, greedy.ids);
  assert.deepEqual(await all(llm.tokens(prompt, { maxTokens: tokens.length, ignoreEnd: true })), tokens);
  const pieces = await all(llm.generate(prompt, { maxTokens: tokens.length, ignoreEnd: true }));
  assert.ok(pieces.length > 10 && pieces.every((piece) => piece !== ""));
  assert.equal(pieces.join(""), wanted);
  assert.equal(await llm.tokenizer.decode(tokens), wanted);
  const tokenizer = await Tokenizer.load(own);
  assert.deepEqual(tokenizer.encode("In the beginning"), await llm.tokenizer.encode("In the beginning"));
  llm.dispose();
});

test("a chat goes on where it was, stops at strings and signals, and drops what there is no room for", async () => {
  const llm = await LLM.load(own, { context: 192 });
  const messages = [{ role: "user", content: "And God said unto Noah," }];
  const answer = await text(llm.chat(messages, { maxTokens: 40 }));
  assert.ok(answer.length > 20, answer);
  const { promptTokens, tokens } = llm.stats;
  messages.push({ role: "assistant", content: answer }, { role: "user", content: "Who is wise?" });
  await text(llm.chat(messages, { maxTokens: 8 }));
  assert.ok(llm.stats.reusedTokens >= promptTokens, `${llm.stats.reusedTokens} of ${promptTokens} and ${tokens}`);
  const word = answer.trim().split(" ")[3];
  const cut = await text(llm.chat(messages.slice(0, 1), { maxTokens: 40, stop: word }));
  assert.equal(cut, answer.slice(0, answer.indexOf(word)));
  assert.equal(llm.stats.end, "stop");
  for (let turn = 0; turn < 30; turn += 1) messages.push({ role: "assistant", content: answer.slice(0, 40) }, { role: "user", content: "Go on." });
  assert.ok((await text(llm.chat(messages, { maxTokens: 20 }))).length > 0);
  assert.ok(llm.stats.promptTokens + 20 <= 192, `${llm.stats.promptTokens}`);

  const control = new AbortController();
  const reason = new Error("enough");
  const seen = [];
  await assert.rejects(async () => {
    for await (const piece of llm.generate("In the beginning", { maxTokens: 100, signal: control.signal })) {
      seen.push(piece);
      if (seen.length === 3) control.abort(reason);
    }
  }, reason);
  assert.equal(seen.length, 3);
  // whoever leaves the loop ends it, and the next text is right
  for await (const _ of llm.generate(greedy.prompt)) break;
  assert.deepEqual(await all(llm.tokens(greedy.prompt, { maxTokens: 20, ignoreEnd: true })), greedy.tokens.slice(0, 20));
  const [a, b, c] = await Promise.all(["The LORD is my shepherd", "The Lord is my shepherd", "And it came to pass"].map((each) => llm.embed(each)));
  const dot = (x, y) => x.reduce((sum, v, i) => sum + v * y[i], 0);
  assert.ok(Math.abs(dot(a, a) - 1) < 1e-5 && a.length === llm.info.width);
  assert.ok(dot(a, b) > dot(a, c), `${dot(a, b)} ${dot(a, c)}`);
  llm.dispose();
});

test("a JSON schema says what may come", async () => {
  const llm = await LLM.load(own, { context: 256 });
  const messages = [{ role: "user", content: "Who is wise?" }];
  const schema = {
    type: "object",
    properties: {
      name: { type: "string", maxLength: 12 },
      kind: { enum: ["king", "prophet"] },
      years: { type: "array", items: { type: "integer" }, maxItems: 3 },
    },
    required: ["name", "kind", "years"],
  };
  for (const how of [{}, { temperature: 1, seed: 3 }]) {
    const value = JSON.parse(await text(llm.chat(messages, { schema, ...how })));
    assert.deepEqual(Object.keys(value), ["name", "kind", "years"]);
    assert.ok(value.name.length <= 12 && ["king", "prophet"].includes(value.kind) && value.years.every(Number.isInteger), JSON.stringify(value));
    assert.equal(llm.stats.end, "end");
  }
  await assert.rejects(text(llm.chat(messages, { schema: { type: "string", pattern: "a" } })), { code: "E_UNSUPPORTED", message: /pattern/ });
  await assert.rejects(text(llm.chat(messages, { schema: { enum: [] } })), ValueError);
  llm.dispose();
});

test("guesses from the text change no token", async () => {
  for (const context of [256, 40]) {
    const llm = await LLM.load(fixture("llama"), { context });
    const prompt = [0, ...[5, 9, 14, 7].flatMap((t) => [t, 3]), ...[5, 9, 14, 7].flatMap((t) => [t, 3]), 5];
    for (const maxTokens of [1, 2, 9, 200]) {
      const how = { maxTokens, ignoreEnd: true };
      const plain = await all(llm.tokens(prompt, how));
      const { end } = llm.stats;
      assert.deepEqual(await all(llm.tokens(prompt, { ...how, guess: true })), plain);
      assert.equal(llm.stats.end, end);
      const sampled = { ...how, temperature: 1, seed: 2 };
      assert.deepEqual(await all(llm.tokens(prompt, { ...sampled, guess: true })), await all(llm.tokens(prompt, sampled)));
    }
    llm.dispose();
  }
});

test("a grammar in GBNF says what may come", async () => {
  const llm = await LLM.load(own, { context: 256 });
  const grammar = 'root ::= name (" and " name)? "."\nname ::= "Moses" | "Aaron" | "(" name ")"';
  for (const how of [{}, { temperature: 1, seed: 3 }]) {
    const made = await text(llm.generate("And the LORD spake unto ", { grammar, maxTokens: 60, ...how }));
    if (llm.stats.end === "end") assert.match(made, /^\(*(Moses|Aaron)\)*( and \(*(Moses|Aaron)\)*)?\.$/);
  }
  await assert.rejects(text(llm.generate("a", { grammar: "root ::= (" })), { code: "E_FORMAT", message: /line 1, column 11/ });
  await assert.rejects(text(llm.generate("a", { grammar, schema: {} })), ValueError);
  llm.dispose();
});

test("what is under way when a model ends fails, and so do later calls", async () => {
  const llm = await LLM.load(own, { context: 256 });
  const seen = [];
  await assert.rejects(async () => {
    for await (const token of llm.tokens(greedy.prompt, { maxTokens: 200, ignoreEnd: true })) {
      seen.push(token);
      if (seen.length === 5) llm.dispose();
    }
  }, StateError);
  assert.deepEqual(seen, greedy.tokens.slice(0, 5));
  await assert.rejects(llm.tokenizer.encode("And"), StateError);
  await assert.rejects(llm.embed("And"), StateError);
});

test("all that a model held is given back", async () => {
  const freed = () => new Promise((done) => setTimeout(done, 50));
  // models of tests before
  await freed();
  const before = (await memory())[0];
  const llm = await LLM.load(own, { context: 64 });
  await text(llm.generate("And", { maxTokens: 3 }));
  assert.ok((await memory())[0].bytes > before.bytes + 2_000_000);
  llm.dispose();
  await assert.rejects(all(llm.generate("And")), StateError);
  await freed();
  const now = (await memory())[0];
  assert.equal(now.tensors, before.tensors);
  assert.ok(now.bytes < before.bytes + 200_000, `${now.bytes} of ${before.bytes}`);
});

test("what cannot be is refused in words", async () => {
  const llm = await LLM.load(fixture("llama"), { context: 32 });
  const refused = (prompt, what, options) => assert.rejects(all(llm.tokens(prompt, options)), what);
  await refused([], ValueError);
  await refused([48], ValueError);
  await refused(new Array(33).fill(2), ValueError);
  await refused([2], ValueError, { temperature: -1 });
  await refused([2], { code: "E_VALUE", message: "a request has no option `max_tokens`", hint: "it is called maxTokens here" }, { max_tokens: 5 });
  await refused([2], { code: "E_VALUE", hint: "it is called schema here" }, { response_format: {} });
  await assert.rejects(all(llm.chat([{ role: "user", content: "hello" }])), UnsupportedError);
  await assert.rejects(llm.tokenizer.encode("hello"), UnsupportedError);
  assert.equal((await all(llm.tokens([2, 3], { maxTokens: 100, ignoreEnd: true }))).length, 31);
  assert.equal(llm.stats.end, "room");
  assert.deepEqual(await all(llm.tokens([2], { maxTokens: 0 })), []);
  llm.dispose();
  const file = readFileSync(fixture("llama"));
  await assert.rejects(LLM.load(file.subarray(0, 5000)), FormatError);
  await assert.rejects(LLM.load(new TextEncoder().encode("<!doctype html><p>not found</p>")), { code: "E_FORMAT", message: /web page/ });
  const other = Buffer.from(file);
  other.write("lxxxa", other.indexOf("llama"), "latin1");
  await assert.rejects(LLM.load(other), { code: "E_UNSUPPORTED", message: /lxxxa/ });
  await assert.rejects(LLM.load(file, { context: 0 }), ValueError);
});

let server;
after(() => server?.close());

test("a Buffer is left as it was, and serves again", async () => {
  const file = readFileSync(fixture("llama"));
  const before = Buffer.from(file);
  for (let round = 0; round < 2; round += 1) {
    const llm = await LLM.load(file, { context: 32 });
    assert.equal(llm.info.architecture, "llama");
    llm.dispose();
  }
  assert.ok(file.equals(before));
});

test("a file is read by ranges, each part once", async () => {
  server = await serve({ "/": new URL(".", own).pathname });
  const asked = [];
  const counting = (address, init) => {
    asked.push(new Headers(init?.headers).get("range"));
    return fetch(address, init);
  };
  const progress = [];
  const url = `${server.url}/verses-q8_0.gguf`;
  const llm = await LLM.load(url, { context: 64, fetch: counting, onProgress: (p) => progress.push(p) });
  assert.ok(asked.every((range) => /^bytes=\d+-\d+$/.test(range)), `${asked}`);
  const { length } = readFileSync(own);
  const { loaded, total } = progress.filter(({ phase }) => phase === "download").at(-1);
  assert.equal(loaded, total);
  // what the first request and a tensor have in common comes twice
  assert.ok(loaded <= length + 70_000 && loaded > 0.9 * length, `${loaded} of ${length}`);
  assert.deepEqual(await all(llm.tokens(greedy.prompt, { maxTokens: 10, ignoreEnd: true })), greedy.tokens.slice(0, 10));
  llm.dispose();
});
