// Chat templates in Node, against jinja2 (tests/fixtures/make_chat.py).
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { ChatTemplate } from "gradloom";

const file = JSON.parse(readFileSync(new URL("../fixtures/text/chat.json", import.meta.url), "utf8"));
const tokens = { bos_token: "<s>", eos_token: "</s>", pad_token: "<pad>" };
const now = new Date(2025, 2, 9, 7, 5, 2);

test("templates write what jinja2 writes", async () => {
  for (const [name, source] of Object.entries(file.templates)) {
    const template = await ChatTemplate.fromSource(source, tokens);
    file.conversations.forEach((given, i) => {
      const { messages, tools, add_generation_prompt: addGenerationPrompt, ...variables } = given;
      const run = () => template.apply(messages, { tools, addGenerationPrompt, variables, now });
      const { text } = file.texts[name][i];
      if (text === undefined) assert.throws(run, { code: "E_FORMAT" }, `${name} ${i}`);
      else assert.equal(run(), text, `${name} ${i}`);
    });
    template.dispose();
    assert.throws(() => template.apply([]), { code: "E_STATE" });
  }
});

test("a file's template is read, and what is none is refused", async () => {
  const config = JSON.stringify({ bos_token: "<b>", chat_template: "{{ bos_token }}{{ messages[0].content }}" });
  const template = await ChatTemplate.load(new TextEncoder().encode(config));
  assert.equal(template.apply([{ role: "user", content: "x" }]), "<b>x");
  await assert.rejects(ChatTemplate.load(new TextEncoder().encode("{}")), { code: "E_FORMAT" });
  await assert.rejects(ChatTemplate.fromSource("{% for %}"), { code: "E_FORMAT" });
});
