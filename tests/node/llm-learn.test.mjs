// Adapters that learn beside language models, and functions that these call, in JavaScript. Losses and texts are those of PEFT and torch
// (tests/fixtures/llm/finetune.py).
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { ValueError, init, memory, stats } from "gradloom";
import { LLM } from "gradloom/llm";

await init({ device: "wasm", threads: 2 });
const fixtures = new URL("../fixtures/llm/", import.meta.url);
const known = JSON.parse(readFileSync(new URL("finetune.json", fixtures)));
const verses = new URL("../models/verses/verses-q8_0.gguf", import.meta.url);
const kernels = async () => (await stats())[0].kernelsCompiled;

const all = async (pieces) => {
  const list = [];
  for await (const piece of pieces) list.push(piece);
  return list;
};

test("adapters learn as those of PEFT, and are used, written and read", async () => {
  const { texts, prompt, time: length, rate: learningRate, decay: weightDecay, norm: maxNorm, seed } = known;
  const batch = texts.reduce((sum, text) => sum + Math.ceil((text.length - 1) / length), 0);
  for (const [name, from] of [["llama", "llama.gguf"], ["phi3", "phi3/"], ["gemma2", "gemma2.gguf"], ["gpt2", "gpt2/"]]) {
    const { losses, tokens, rank, alpha, targets } = known.cases.find(({ model }) => model === name);
    const llm = await LLM.load(new URL(from, fixtures), { context: 64 });
    const write = (model) => all(model.tokens(prompt, { maxTokens: 24, ignoreEnd: true }));
    const plain = await write(llm);
    const seen = [];
    const onStep = (step, loss) => seen.push([step, loss]);
    const how = { name: "own", rank, alpha, targets, batch, length, steps: losses.length, learningRate, weightDecay, maxNorm, seed, onStep };
    const learned = await llm.finetune(texts, how);
    assert.deepEqual(seen.map(([step]) => step), losses.map((_, step) => step), name);
    learned.losses.forEach((loss, at) => assert.ok(Math.abs(loss - losses[at]) < 1e-3 * losses[at], `${name}: ${learned.losses}, not ${losses}`));
    assert.deepEqual(llm.info.adapters, ["own"]);
    assert.deepEqual(await write(llm), plain, `${name}: nothing is in use yet`);
    await llm.useAdapter("own");
    assert.deepEqual(await write(llm), tokens, name);
    await llm.useAdapter(null);
    assert.deepEqual(await write(llm), plain, name);
    // one of the same size needs no other plan
    const before = await kernels();
    await llm.finetune(texts, { ...how, name: "again", steps: 2, onStep: undefined });
    await llm.useAdapter("again");
    const more = await kernels();
    await write(llm);
    assert.equal(await kernels(), more, `${name}: ${more - before} for the training`);
    llm.dispose();
    const other = await LLM.load(new URL(from.endsWith("/") ? `${name}.gguf` : `${name}/`, fixtures), {
      context: 64,
      adapters: { read: { from: learned.file, config: learned.config } },
    });
    await other.useAdapter("read");
    assert.deepEqual(await write(other), tokens, `${name}, read beside its other file`);
    other.dispose();
  }
});

test("rates change and adapters go on as with torch", async () => {
  const { texts, prompt, time: length, rate: learningRate, decay: weightDecay, norm: maxNorm, seed } = known;
  const batch = texts.reduce((sum, text) => sum + Math.ceil((text.length - 1) / length), 0);
  const { cases } = JSON.parse(readFileSync(new URL("rates.json", fixtures)));
  for (const { model, losses, tokens, rank, alpha, targets, parts } of cases.slice(0, 2)) {
    const llm = await LLM.load(new URL(`${model}.gguf`, fixtures), { context: 64 });
    const seen = [];
    for (const [at, [steps, schedule, warmup]] of parts.entries()) {
      const own = at === 0 ? { rank, alpha, targets } : { resume: `part${at - 1}` };
      const how = { ...own, name: `part${at}`, steps, schedule, warmup, batch, length, learningRate, weightDecay, maxNorm, seed };
      seen.push(...(await llm.finetune(texts, how)).losses);
    }
    losses.forEach((loss, at) => assert.ok(Math.abs(loss - seen[at]) < 1e-3 * loss, `${model}: ${seen}, not ${losses}`));
    await llm.useAdapter("part1");
    assert.deepEqual(await all(llm.tokens(prompt, { maxTokens: 24, ignoreEnd: true })), tokens, model);
    llm.dispose();
  }
});

test("a quantised model learns a line and a chat", async () => {
  const llm = await LLM.load(verses, { context: 128 });
  const line = "The shepherd sold seven green lamps to the merchant of the northern sea.";
  const chat = [{ role: "user", content: "Who sold lamps?" }, { role: "assistant", content: "The shepherd." }];
  const before = (await memory())[0];
  const { losses, file, config } = await llm.finetune([line, chat], { steps: 40, batch: 2, length: 64, learningRate: 1e-2 });
  assert.ok(losses.at(-1) < 0.2 * losses[0], `${losses}`);
  assert.equal(JSON.parse(new TextDecoder().decode(config)).r, 8);
  assert.ok(file.length > 100_000);
  const now = (await memory())[0];
  assert.ok(now.bytes < before.bytes + 1_000_000, `${now.bytes - before.bytes} bytes are left of the training`);
  await llm.useAdapter("finetuned");
  const start = "The shepherd sold";
  assert.equal((await all(llm.generate(start, { maxTokens: 60 }))).join("").slice(0, line.length - start.length), line.slice(start.length));
  assert.match((await all(llm.chat(chat.slice(0, 1), { maxTokens: 12 }))).join(""), /^ ?The shepherd\./);
  // given up, it goes on as before
  const stop = new AbortController();
  const reason = new Error("enough");
  const onStep = (step) => step === 2 && stop.abort(reason);
  await assert.rejects(llm.finetune([line], { name: "other", steps: 9, signal: stop.signal, onStep }), reason);
  assert.deepEqual(llm.info.adapters, ["finetuned"]);
  assert.ok((await all(llm.generate(start, { maxTokens: 4 }))).length > 0);
  const refused = (texts, options, what) => assert.rejects(llm.finetune(texts, { name: "x", ...options }), what);
  await refused([], {}, ValueError);
  await refused([[1]], {}, ValueError);
  await refused([[1, 99_999]], {}, { code: "E_VALUE", message: /token 99999/ });
  await refused([line], { rank: 0 }, ValueError);
  await refused([line], { targets: ["z_proj"] }, { code: "E_VALUE", message: /z_proj.*q_proj/ });
  await refused([line], { name: "finetuned" }, ValueError);
  await refused([line], { learningRate: Number.NaN }, ValueError);
  await refused([line], { schedule: "steps" }, ValueError);
  await refused([line], { resume: "none" }, { code: "E_VALUE", message: /no adapter is called none.*finetuned/ });
  llm.dispose();
});

test("a run that goes on is the one that never ended", async () => {
  const texts = Array.from({ length: 4 }, (_, i) => Array.from({ length: 20 }, (__, t) => 2 + ((t * (i + 3) + i) % 40)));
  const how = { rank: 3, alpha: 6, batch: 2, length: 16, learningRate: 1e-2, weightDecay: 0.1, warmup: 2, seed: 7 };
  for (const worker of [true, false]) {
    const llm = await LLM.load(new URL("llama.gguf", fixtures), { context: 64, worker });
    const whole = await llm.finetune(texts, { ...how, name: "whole", steps: 7 });
    const part = await llm.finetune(texts, { ...how, name: "part", steps: 3 });
    const rest = await llm.finetune(texts, { ...how, name: "rest", resume: "part", state: part.state, steps: 7 });
    assert.deepEqual([...part.losses, ...rest.losses], whole.losses, "bit by bit");
    assert.deepEqual(rest.file, whole.file);
    assert.deepEqual(rest.state, whole.state);
    // moments that begin anew give others
    const anew = await llm.finetune(texts, { ...how, name: "anew", resume: "part", steps: 7 });
    assert.notEqual(anew.losses[4], whole.losses[4]);
    const refused = (options, message) => assert.rejects(llm.finetune(texts, { ...how, name: "x", ...options }), { code: "E_VALUE", message });
    await refused({ state: part.state }, /goes on/);
    await refused({ resume: "part", state: part.state, steps: 3 }, /3 steps are done/);
    await refused({ resume: "part", state: part.file, steps: 9 }, /another adapter/);
    await assert.rejects(llm.finetune(texts, { ...how, name: "x", resume: "part", state: new Uint8Array(9), steps: 9 }), { code: "E_FORMAT" });
    llm.dispose();
  }
});

test("functions are called with arguments that fit, and calls are no part of the text", async () => {
  // a token is a character
  const llm = await LLM.load(new URL("llama/", fixtures), { context: 256 });
  const parameters = { type: "object", properties: { city: { enum: ["rome", "oslo"] }, days: { type: "integer" } }, required: ["city"] };
  const tools = [
    { type: "function", function: { name: "weather", parameters } },
    { type: "function", function: { name: "now", parameters: { type: "object", properties: {}, additionalProperties: false } } },
  ];
  const messages = [{ role: "user", content: "hello" }];
  const ask = async (options) => [(await all(llm.chat(messages, { maxTokens: 180, ...options }))).join(""), llm.stats.calls];
  for (let seed = 0; seed < 4; seed += 1) {
    const [text, calls] = await ask({ tools, toolChoice: "required", temperature: 1, seed });
    assert.deepEqual([text, calls.length, llm.stats.end], ["", 1, "end"]);
    const [{ name, arguments: given }] = calls;
    if (name === "weather") assert.ok(["rome", "oslo"].includes(given.city), JSON.stringify(given));
    else assert.deepEqual([name, given], ["now", {}]);
  }
  const [, [{ name }]] = await ask({ tools, toolChoice: { name: "now" } });
  assert.equal(name, "now");
  const brace = (await llm.tokenizer.encode("{", { special: false }))[0];
  const [text, none] = await ask({ tools, maxTokens: 20, logitBias: { [brace]: -Infinity }, ignoreEnd: true });
  assert.ok(text.length > 0 && none.length === 0);
  const [plain] = await ask({ tools, toolChoice: "none", maxTokens: 20, ignoreEnd: true });
  assert.equal(plain, (await ask({ maxTokens: 20, ignoreEnd: true }))[0]);
  await assert.rejects(ask({ tools: [{ type: "web" }] }), ValueError);
  await assert.rejects(ask({ tools, toolChoice: { name: "x" } }), ValueError);
  await assert.rejects(ask({ tools, schema: { type: "object" } }), ValueError);
  llm.dispose();
});
