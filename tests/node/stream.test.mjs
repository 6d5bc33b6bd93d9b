// Tokens one by one, many texts at once, and tokenizers of GGUF files of which only the beginning is read.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { ChatTemplate, Tokenizer } from "gradloom";

const fixture = (name) => new URL(`../fixtures/text/${name}`, import.meta.url);
const samples = JSON.parse(readFileSync(fixture("samples.json"), "utf8"));

test("a text that comes token by token is the text, and no part of it is broken", async () => {
  for (const name of ["gpt2", "llama3", "llama", "bert", "unigram", "unibyte", "sentence", "words", "prefix", "suffix"]) {
    const t = await Tokenizer.load(fixture(`${name}.json`));
    for (const text of [...samples.texts, "日本語 👍🏽🇩🇪 straße 한국어 🙂🙂"]) {
      const ids = t.encode(text);
      const whole = t.decode(ids);
      const stream = t.stream();
      const parts = ids.map((id) => stream.push(id));
      const rest = stream.end();
      assert.equal(parts.join("") + rest, whole, `${name}: ${text}`);
      if (!whole.includes("\ufffd")) assert.ok(parts.every((part) => !part.includes("\ufffd")), `${name}: ${text}`);
      assert.equal(stream.push(...ids) + stream.end(), whole, "a stream begins anew");
    }
    t.dispose();
  }
  // the bytes of one emoji are several tokens here, and come as one character
  const t = await Tokenizer.load(fixture("gpt2.json"));
  const ids = t.encode("🦀");
  const stream = t.stream();
  assert.ok(ids.length > 1);
  assert.deepEqual(ids.map((id) => stream.push(id)), [...ids.slice(1).map(() => ""), "🦀"]);
  // cut in the middle
  stream.push(ids[0]);
  assert.match(stream.end(), /\ufffd/);
});

test("many texts at once", async () => {
  const t = await Tokenizer.load(fixture("bert.json"));
  const texts = samples.texts.slice(0, 3);
  const { ids, mask, typeIds } = t.encodeBatch(texts);
  const length = Math.max(...texts.map((text) => t.encode(text).length));
  texts.forEach((text, i) => {
    const own = t.encode(text);
    assert.deepEqual(ids[i], [...own, ...new Array(length - own.length).fill(t.id("[PAD]") ?? 0)]);
    assert.deepEqual(mask[i], ids[i].map((_, at) => (at < own.length ? 1 : 0)));
    assert.equal(typeIds[i].length, length);
  });
  assert.deepEqual(t.encodeBatch([]), { ids: [], mask: [], typeIds: [] });
  assert.deepEqual(t.encodeBatch(["a", "a a"], { pad: 77, special: false }).ids[0].at(-1), 77);
});

test("tokens that end a text", async () => {
  const gpt2 = await Tokenizer.load(fixture("gpt2.json"));
  assert.deepEqual(gpt2.eosIds.map((id) => gpt2.token(id)), ["<|endoftext|>"]);
  const llama = await Tokenizer.load(fixture("llama.json"));
  assert.deepEqual(llama.eosIds.map((id) => llama.token(id)), ["</s>"]);
});

/** A GGUF file with a vocabulary of so many words, a template, and tensors behind that are not there. */
function gguf(words) {
  const parts = [];
  const u32 = (n) => parts.push(Buffer.from(Uint32Array.of(n).buffer));
  const u64 = (n) => parts.push(Buffer.from(BigUint64Array.of(BigInt(n)).buffer));
  const text = (s) => (u64(Buffer.byteLength(s)), parts.push(Buffer.from(s)));
  const strings = (list) => (u32(9), u32(8), u64(list.length), list.forEach(text));
  parts.push(Buffer.from("GGUF"));
  u32(3);
  u64(1);
  u64(6);
  text("general.architecture"), u32(8), text("llama");
  text("tokenizer.ggml.model"), u32(8), text("gpt2");
  text("tokenizer.ggml.pre"), u32(8), text("gpt-2");
  text("tokenizer.ggml.tokens"), strings(["h", "i", "hi", ...Array.from({ length: words }, (_, i) => `word${i}`), "<|im_end|>"]);
  text("tokenizer.ggml.merges"), strings(["h i"]);
  text("tokenizer.chat_template"), u32(8), text("<{{ messages[0].content }}>");
  text("w"), u32(1), u64(1 << 24), u32(0), u64(0);
  return Buffer.concat(parts);
}

test("of a GGUF file only the beginning is read", async () => {
  const head = gguf(30_000);
  const size = head.length + (1 << 26) + 32;
  let sent = 0;
  const server = async (_, { headers = {} }) => {
    const [, from, to] = /^bytes=(\d+)-(\d+)$/.exec(headers.Range ?? "") ?? [];
    assert.notEqual(from, undefined, "never the whole file");
    const [start, end] = [Number(from), Math.min(size, Number(to) + 1)];
    const part = new Uint8Array(end - start);
    part.set(head.subarray(start, end));
    sent += part.length;
    return new Response(part, { status: 206, headers: { "Content-Range": `bytes ${start}-${end - 1}/${size}`, etag: '"1"' } });
  };
  const t = await Tokenizer.load("https://models.test/a.gguf?download=true", { fetch: server });
  assert.deepEqual([t.size, t.encode("hi"), t.decode([2]), t.eosIds], [30_004, [2], "hi", [30_003]]);
  assert.ok(sent >= head.length && sent < 5 * head.length, `${sent} bytes for a header of ${head.length}`);
  const template = await ChatTemplate.load("https://models.test/a.gguf", { fetch: server });
  assert.equal(template.apply([{ role: "user", content: "x" }]), "<x>");
  // a File has a name, too
  const file = Object.assign(new Blob([head, new Uint8Array(1 << 20)]), { name: "a.gguf" });
  assert.equal((await Tokenizer.load(file)).size, 30_004);
  await assert.rejects(Tokenizer.load(Object.assign(new Blob([head.subarray(0, 5000)]), { name: "a.gguf" })), { code: "E_FORMAT" });
  const page = Object.assign(new Blob(["<html><body>no such file"]), { name: "a.gguf" });
  await assert.rejects(Tokenizer.load(page), { code: "E_FORMAT", message: /a web page, not a tokenizer/ });
});
