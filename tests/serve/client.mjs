// What OpenAI's JavaScript client gets from `gradloom serve`. usage: client.mjs ADDRESS, with `openai` in node_modules beside it
import assert from "node:assert/strict";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "none", maxRetries: 0 });
const messages = [{ role: "system", content: "be kind" }, { role: "user", content: "hello" }];
const chat = (options) => client.chat.completions.create({ model: "tiny", messages, ignore_eos: true, ...options });

assert.deepEqual((await client.models.list()).data.map((m) => m.id), ["tiny"]);
const whole = await chat({ temperature: 0, max_completion_tokens: 40 });
const text = whole.choices[0].message.content;
assert.equal(whole.usage.completion_tokens, 40);
let pieces = "";
for await (const piece of await chat({ temperature: 0, max_tokens: 40, stream: true })) pieces += piece.choices[0].delta.content ?? "";
assert.equal(pieces, text);
assert.equal((await chat({ max_tokens: 4, logit_bias: { 2: 100 } })).choices[0].message.content, "aaaa");

const { data } = await client.embeddings.create({ model: "tiny", input: ["hello", "other"] });
assert.equal(data.length, 2);
assert.equal(data[0].embedding.length, 32);

await assert.rejects(client.completions.create({ model: "other", prompt: "a" }), (e) => e instanceof OpenAI.NotFoundError && e.code === "model_not_found");
await assert.rejects(client.completions.create({ model: "tiny", prompt: "a".repeat(300) }), (e) => e.status === 400 && e.code === "context_length_exceeded");

const several = await chat({ max_tokens: 10, temperature: 1.5, seed: 1, n: 3 });
assert.deepEqual(several.choices.map((c) => c.index), [0, 1, 2]);
const { choices: [{ logprobs, message }] } = await chat({ temperature: 0, max_tokens: 6, logprobs: true, top_logprobs: 2 });
assert.equal(logprobs.content.map((t) => t.token).join(""), message.content);
assert.ok(logprobs.content.every((t) => t.logprob < 0 && t.top_logprobs.length === 2 && t.top_logprobs[0].token === t.token));
const parameters = { type: "object", properties: { city: { enum: ["rome", "oslo"] } }, required: ["city"] };
const tools = [{ type: "function", function: { name: "weather", parameters } }];
const calling = { model: "tiny", messages, tools, tool_choice: "required", max_tokens: 200, seed: 1 };
const called = (await client.chat.completions.create(calling)).choices[0];
assert.equal(called.finish_reason, "tool_calls");
assert.ok(["rome", "oslo"].includes(JSON.parse(called.message.tool_calls[0].function.arguments).city));
const final = await client.chat.completions.stream(calling).finalMessage();
assert.deepEqual(final.tool_calls[0].function.arguments, called.message.tool_calls[0].function.arguments);

// one that leaves
const stream = await chat({ max_tokens: 200, stream: true });
for await (const _ of stream) break;
const together = await Promise.all(Array.from({ length: 32 }, () => chat({ temperature: 0, max_tokens: 40 })));
assert.ok(together.every((r) => r.choices[0].message.content === text));
console.log("node");
