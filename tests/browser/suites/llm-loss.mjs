// A language model or an encoder whose worker or GPU is lost: what is in progress fails, and the next request loads the model again, a
// language model with its adapters. The figures of the page have rows of their workers.
import { clearCache, init, memory, stats } from "gradloom";
import { Encoder, LLM } from "gradloom/llm";
import { chat, unload } from "gradloom/tasks";
import { assert, assertEqual, deviceKinds, errorOf, fetchBytes, test, testOnWebGpu } from "harness";
import { losing } from "/lib/losing.mjs";

/** The workers of language models and encoders that were started. */
const workers = [];
globalThis.Worker = class extends Worker {
  constructor(script, options) {
    const own = /(llm|encoder)-worker/.test(script);
    super(own ? losing(script) : script, options);
    if (own) workers.push(this);
  }
};

const MODEL = "/models/verses/verses-q8_0.gguf";
const expected = await (await fetch("/models/verses/expected.json")).json();

const all = async (pieces) => {
  const list = [];
  for await (const piece of pieces) list.push(piece);
  return list;
};
const write = (llm, maxTokens = 8) => all(llm.tokens(expected.prompt, { maxTokens, ignoreEnd: true }));
const right = async (llm) => assertEqual(await write(llm), expected.tokens.slice(0, 8));

function isLoss(error) {
  assertEqual([error.name, error.code], ["DeviceError", "E_DEVICE_LOST"]);
  assert(error.hint.startsWith("call again"), String(error.hint));
}

for (const device of deviceKinds) {
  test(`a worker that dies is an error for the text in progress, and the next text is right, on ${device}`, async () => {
    const llm = await LLM.load(MODEL, { device, context: 128 });
    const count = workers.length;
    const seen = [];
    isLoss(await errorOf(async () => {
      for await (const token of llm.tokens(expected.prompt, { maxTokens: 100, ignoreEnd: true })) {
        seen.push(token);
        if (seen.length === 2) workers.at(-1).terminate();
      }
    }));
    assert(seen.length >= 2 && seen.length < 100, `${seen.length} tokens`);
    // two at a time load it once
    const [tokens, ids] = await Promise.all([write(llm), llm.tokenizer.encode(expected.prompt)]);
    assertEqual([tokens, ids], [expected.tokens.slice(0, 8), expected.ids]);
    assertEqual(workers.length, count + 1);
    assertEqual([llm.info.device, llm.info.context], [device, 128]);
    await right(llm);
    llm.dispose();
    assertEqual((await errorOf(() => write(llm))).code, "E_STATE");
    assertEqual(workers.length, count + 1);
  });
}

/** Ends a worker, the newest unless told otherwise, and waits until the page has noticed, by the lock that the browser passes on. */
async function endWorker(worker = workers.at(-1)) {
  const held = async () => (await navigator.locks.query()).held.filter(({ name }) => name.startsWith("gradloom-worker")).length;
  assert((await held()) > 0, "the worker holds no lock");
  worker.terminate();
  while ((await held()) > 0) await new Promise((done) => setTimeout(done, 10));
}

test("one that dies between two texts is not noticed but for the time", async () => {
  const llm = await LLM.load(MODEL, { device: "wasm", context: 64 });
  await right(llm);
  await endWorker();
  await right(llm);
  // given up while it loads, it goes on loading for the next
  await endWorker();
  const stop = new AbortController();
  const giving = errorOf(() => llm.embed("And God said", { signal: stop.signal }));
  stop.abort(new Error("enough"));
  assertEqual((await giving).message, "enough");
  await right(llm);
  llm.dispose();
});

test("adapters that were given and learned are there again, and the same one is in use", async () => {
  const llm = await LLM.load(MODEL, { device: "wasm", context: 64 });
  const how = { name: "line", steps: 4, batch: 1, length: 24, rank: 4, learningRate: 2e-2 };
  await llm.finetune(["In the beginning God created seven green lamps."], how);
  await llm.useAdapter("line");
  const taught = await write(llm, 6);
  assert(String(taught) !== String(expected.tokens.slice(0, 6)), "the adapter changes the text");
  await endWorker();
  assertEqual(await write(llm, 6), taught);
  assertEqual(llm.info.adapters, ["line"]);
  await llm.useAdapter(null);
  await right(llm);
  llm.dispose();
});

test("it is loaded again from a file, from files by name, or from bytes that the page still has", async () => {
  const bytes = await fetchBytes(MODEL);
  const gone = bytes.slice();
  for (const from of [new File([bytes], "verses.gguf"), { "verses.gguf": new Blob([bytes]) }, bytes, { "verses.gguf": bytes }, gone]) {
    const llm = await LLM.load(from, { device: "wasm", context: 64 });
    const writing = errorOf(() => write(llm, 60));
    workers.at(-1).terminate();
    isLoss(await writing);
    if (from === gone) {
      structuredClone(gone.buffer, { transfer: [gone.buffer] });
      const error = await errorOf(() => write(llm));
      assert(error.code === "E_DEVICE_LOST" && /no longer has the bytes/.test(error.message), String(error));
    } else await right(llm);
    llm.dispose();
  }
});

testOnWebGpu("a GPU that is lost is an error for the text in progress, and the next text is right", async () => {
  const llm = await LLM.load(MODEL, { device: "webgpu", context: 64 });
  const seen = [];
  const error = await errorOf(async () => {
    for await (const token of llm.tokens(expected.prompt, { maxTokens: 50, ignoreEnd: true })) {
      seen.push(token);
      if (seen.length === 2) workers.at(-1).postMessage("lose");
    }
  });
  assertEqual(error.code, "E_DEVICE_LOST");
  await right(llm);
  assertEqual(llm.info.device, "webgpu");
  llm.dispose();
});

test("the task asks again by itself, unless a part of the answer was there", async () => {
  const model = await LLM.load(MODEL, { device: "wasm", context: 128 });
  const ask = (onText) => chat(expected.prompt, { model, maxTokens: 60, ignoreEnd: true, onText });
  const want = await ask();
  let count = 0;
  const heard = errorOf(() => ask(() => (count += 1) === 2 && workers.at(-1).terminate()));
  isLoss(await heard);
  assertEqual(await ask(), want);
  const asking = ask();
  workers.at(-1).terminate();
  assertEqual(await asking, want);
  model.dispose();
  await unload();
});

const BERT = "/fixtures/embedders/bert.gguf";
const [{ text, vector }] = (await (await fetch("/fixtures/embedders/bert/expected.json")).json()).texts;

async function rightVector(encoder) {
  const got = await encoder.embed(text);
  const most = Math.max(...vector.map(Math.abs));
  assertEqual(got.length, vector.length);
  got.forEach((x, i) => assert(Math.abs(x - vector[i]) <= 1e-4 * most, `element ${i} is ${x}, not ${vector[i]}`));
}

for (const device of deviceKinds) {
  test(`an encoder whose worker dies is an error for the texts in progress, and the next text is right, on ${device}`, async () => {
    const encoder = await Encoder.load(BERT, { device, context: 64 });
    const count = workers.length;
    const embedding = errorOf(() => encoder.embed(Array.from({ length: 200 }, () => text)));
    workers.at(-1).terminate();
    isLoss(await embedding);
    // two at a time load it once
    const [ids] = await Promise.all([encoder.tokenizer.encode(text), rightVector(encoder)]);
    assert(ids.length > 2, `${ids}`);
    assertEqual([workers.length, encoder.info.device, encoder.info.context], [count + 1, device, 64]);
    await endWorker();
    await rightVector(encoder);
    assertEqual(workers.length, count + 2);
    encoder.dispose();
    assertEqual((await errorOf(() => encoder.embed(text))).code, "E_STATE");
    assertEqual(workers.length, count + 2);
  });
}

testOnWebGpu("an encoder whose GPU is lost is right with the next text", async () => {
  const encoder = await Encoder.load(BERT, { device: "webgpu" });
  await rightVector(encoder);
  workers.at(-1).postMessage("lose");
  const first = await errorOf(() => rightVector(encoder));
  assert(first === undefined || first.code === "E_DEVICE_LOST", String(first));
  await rightVector(encoder);
  assertEqual(encoder.info.device, "webgpu");
  encoder.dispose();
});

test("an encoder is loaded again from a file or from bytes, and not from bytes that are gone", async () => {
  const bytes = await fetchBytes(BERT);
  const gone = bytes.slice();
  for (const from of [new File([bytes], "bert.gguf"), { "bert.gguf": bytes }, gone]) {
    const encoder = await Encoder.load(from, { device: "wasm" });
    await endWorker();
    if (from === gone) {
      structuredClone(gone.buffer, { transfer: [gone.buffer] });
      const error = await errorOf(() => encoder.embed(text));
      assert(error.code === "E_DEVICE_LOST" && /no longer has the bytes/.test(error.message), String(error));
    } else await rightVector(encoder);
    encoder.dispose();
  }
});

test("figures of the page have rows of the workers of language models and encoders while they live, and the page's settings hold there", async () => {
  await init({ device: "wasm", threads: 1, cache: false });
  const rows = async (of) => [await memory(), await stats()].map((all) => all.find(({ worker }) => worker === of));
  const llm = await LLM.load(MODEL, { device: "wasm", context: 64 });
  const writer = workers.at(-1);
  const encoder = await Encoder.load(BERT, { device: "wasm" });
  assertEqual([llm.info.threads, encoder.info.threads], [1, 1]);
  await rightVector(encoder);
  await right(llm);
  for (const [of, model] of [["LLM", llm], ["Encoder", encoder]]) {
    const [held, did] = await rows(of);
    assertEqual([held.device, did.device], ["wasm", "wasm"]);
    assert(held.bytes > model.info.bytes / 2 && held.tensors > 0 && held.launches > 0, JSON.stringify(held));
    assert(did.kernelsCompiled > 0 && did.planMs > 0, JSON.stringify(did));
  }
  await clearCache();
  await right(llm);
  encoder.dispose();
  assertEqual(await rows("Encoder"), [undefined, undefined]);
  await endWorker(writer);
  assertEqual(await rows("LLM"), [undefined, undefined]);
  await right(llm);
  assert((await rows("LLM"))[0].bytes > 0, "the row of a model that came back");
  llm.dispose();
});
