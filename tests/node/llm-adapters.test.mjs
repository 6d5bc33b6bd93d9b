// Adapters of language models in JavaScript: states are those of merged weights, a switch compiles nothing, and what fits not is refused.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { Tensor, ValueError, init, saveWeights, stats } from "gradloom";
import { LLM } from "gradloom/llm";
import { makeAdapter } from "../lib/adapters.mjs";

await init({ device: "wasm", threads: 2 });
const own = new URL("../fixtures/llm/llama.gguf", import.meta.url);
const folder = new URL("../tmp/adapters/", import.meta.url);
mkdirSync(folder, { recursive: true });
const PROMPT = [5, 9, 14, 3, 40, 33, 21, 2, 7];
const kernels = async () => (await stats())[0].kernelsCompiled;
const bytes = { gguf: readFileSync(own), safetensors: readFileSync(new URL("../fixtures/llm/llama/model.safetensors", import.meta.url)) };
const made = (seed, alpha) => makeAdapter({ Tensor, saveWeights }, bytes, seed, alpha);

const close = (got, want) => got.forEach((x, at) => assert.ok(Math.abs(x - want[at]) <= 1e-4, `${at}: ${x}, not ${want[at]}`));
const distance = (a, b) => Math.max(...a.map((x, at) => Math.abs(x - b[at])));

test("states are those of merged weights, and a switch compiles nothing", async () => {
  const [one, two] = [await made(3, 6), await made(50, 3)];
  writeFileSync(new URL("adapter_model.safetensors", folder), two.file);
  writeFileSync(new URL("adapter_config.json", folder), two.config);
  const adapters = { one: { from: one.file, config: one.config }, two: new URL("adapter_model.safetensors", folder) };
  const llm = await LLM.load(own, { context: 64, adapters });
  assert.deepEqual(llm.info.adapters, ["one", "two"]);
  const [plain, first, second] = await Promise.all([own, one.merged, two.merged].map((file) => LLM.load(file, { context: 64 })));
  const want = [];
  for (const each of [plain, first, second]) want.push(await each.embed(PROMPT));
  close(await llm.embed(PROMPT), want[0]);
  const before = await kernels();
  for (const [name, at] of [["one", 1], ["two", 2], ["one", 1], [null, 0], ["two", 2]]) {
    await llm.useAdapter(name);
    close(await llm.embed(PROMPT), want[at]);
  }
  assert.equal(await kernels(), before, "kernels were compiled for a switch");
  assert.ok(distance(want[0], want[1]) > 1e-2 && distance(want[1], want[2]) > 1e-2, "adapters do something");
  // what was read with another adapter is read again
  const tokens = async (from) => {
    const list = [];
    for await (const token of from.tokens(PROMPT, { maxTokens: 12, ignoreEnd: true })) list.push(token);
    return list;
  };
  for (const [name, model] of [[null, plain], ["one", first], [null, plain], ["two", second]]) {
    await llm.useAdapter(name);
    assert.deepEqual(await tokens(llm), await tokens(model), `${name}`);
  }
  for (const each of [llm, plain, first, second]) each.dispose();
});

test("what is no adapter of the model is refused", async () => {
  const { file, config } = await made(3, 6);
  const load = (adapter) => LLM.load(own, { context: 16, adapters: { a: adapter } });
  await assert.rejects(load(file), (e) => e instanceof ValueError && /needs its `config`/.test(e.message));
  await assert.rejects(load(readFileSync(own)), /no LoRA adapter/);
  await assert.rejects(load({ from: file, config: new TextEncoder().encode('{"lora_alpha": 1, "use_dora": true}') }), /no LoRA/);
  const llm = await load({ from: file, config, scale: 0.5 });
  await assert.rejects(llm.useAdapter("b"), (e) => e instanceof ValueError && e.message.includes("there are [a]"));
  llm.dispose();
});
