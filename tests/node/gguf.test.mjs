// `openGguf`: what a GGUF file says of itself, from its header alone.
import assert from "node:assert/strict";
import { readFileSync, statSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { init, loadWeights } from "gradloom";
import { seededRandom } from "gradloom/data";
import { LLM, openGguf } from "gradloom/llm";

await init({ device: "wasm", threads: 1 });
const path = (name) => fileURLToPath(new URL(`../${name}`, import.meta.url));
const VERSES = path("models/verses/verses-q8_0.gguf");

test("metadata and tensors are those that the model is loaded with", async () => {
  for (const file of [VERSES, path("fixtures/llm/llama.gguf"), path("fixtures/llm/gemma3.gguf"), path("fixtures/llm/qwen3.gguf")]) {
    const { metadata, tensors, version, size } = await openGguf(file);
    assert.deepEqual([version, size], [3, statSync(file).size], file);
    const llm = await LLM.load(file, { device: "wasm", context: 32 });
    for (const [key, value] of Object.entries(llm.metadata)) assert.deepEqual(metadata[key], value, `${file}: ${key}`);
    llm.dispose();
    const weights = await loadWeights(file, { device: "wasm" });
    assert.deepEqual(tensors.map(({ name }) => name).sort(), Object.keys(weights).sort());
    for (const { name, shape } of tensors) assert.deepEqual(shape, weights[name].shape, `${file}: ${name}`);
    // the tensors fill the file, one after another
    const ordered = [...tensors].sort((a, b) => a.offset - b.offset);
    ordered.forEach(({ offset, bytes, name }, at) => {
      const next = ordered[at + 1]?.offset ?? size;
      assert.ok(offset + bytes <= next && next - offset - bytes < 32, `${file}: ${name} ends at ${offset + bytes}, and ${next} follows`);
    });
    for (const t of Object.values(weights)) t.dispose();
  }
});

test("every kind of quantised tensor has its size", async () => {
  const { tensors, size } = await openGguf(path("fixtures/io/quants.gguf"));
  const types = new Set(tensors.map(({ type }) => type));
  assert.ok(types.size > 8 && [...types].every((type) => /^[A-Z][A-Z0-9_]*$/.test(type)), `${[...types]}`);
  const ordered = [...tensors].sort((a, b) => a.offset - b.offset);
  ordered.forEach(({ offset, bytes, type }, at) => {
    const room = (ordered[at + 1]?.offset ?? size) - offset;
    assert.ok(bytes <= room && room - bytes < 32, `${type}: ${bytes} bytes in ${room}`);
  });
});

test("of a server only the header is fetched, once for everything", async () => {
  const file = readFileSync(VERSES);
  const asked = [];
  const server = async (_, { headers = {} }) => {
    const [, from, to] = /^bytes=(\d+)-(\d+)$/.exec(headers.Range ?? "") ?? [];
    asked.push(Number(to) - Number(from) + 1);
    const part = file.subarray(Number(from), Number(to) + 1);
    return new Response(part, { status: 206, headers: { "Content-Range": `bytes ${from}-${Number(from) + part.length - 1}/${file.length}`, etag: '"1"' } });
  };
  let progress = 0;
  const opened = await openGguf("https://models.test/verses.gguf", { fetch: server, onProgress: ({ loaded }) => (progress = loaded) });
  const requests = asked.length;
  const expected = JSON.parse(readFileSync(path("models/verses/expected.json"), "utf8"));
  const tokenizer = await opened.tokenizer();
  assert.deepEqual(tokenizer.encode(expected.prompt), expected.ids);
  assert.match((await opened.template()).apply([{ role: "user", content: "Who is wise?" }]), /Who is wise\?/);
  const sent = asked.reduce((sum, bytes) => sum + bytes, 0);
  assert.ok(asked.length === requests && sent < file.length / 4 && progress <= sent, `${asked}`);
  const plain = await openGguf(path("fixtures/llm/llama.gguf"));
  assert.deepEqual(["tokenizer.chat_template" in plain.metadata, await plain.template()], [false, undefined]);
});

test("what is no GGUF file, or a broken one, is an error", async () => {
  await assert.rejects(openGguf(path("models/magika/model.onnx")), { code: "E_FORMAT", message: /is an ONNX model/ });
  await assert.rejects(openGguf("/no/such.gguf"), { code: "E_FETCH" });
  const bytes = new Uint8Array(readFileSync(path("fixtures/llm/llama.gguf")));
  for (const length of [0, 3, 10, 23, 100, 1000]) await assert.rejects(openGguf(bytes.slice(0, length)), { code: "E_FORMAT" });
  // whatever is changed in the header, it is read or refused
  const header = bytes.slice(0, 4096);
  let refused = 0;
  for (let seed = 0; seed < 300; seed += 1) {
    const changed = bytes.slice();
    const random = seededRandom(seed);
    for (let i = 0; i < 4; i += 1) changed[Math.floor(random() * header.length)] = Math.floor(random() * 256);
    await openGguf(changed).catch((error) => {
      assert.equal(error.code, "E_FORMAT", error.stack);
      refused += 1;
    });
  }
  assert.ok(refused > 20, `${refused}`);
});
