// A language model whose worker or GPU is lost: what is in progress fails, and the next request loads the model again, with its adapters.
import { LLM } from "gradloom/llm";
import { chat, unload } from "gradloom/tasks";
import { assert, assertEqual, deviceKinds, errorOf, fetchBytes, test, testOnWebGpu } from "harness";
import { losing } from "/lib/losing.mjs";

/** The workers of language models that were started. */
const workers = [];
globalThis.Worker = class extends Worker {
  constructor(script, options) {
    const own = String(script).includes("llm-worker");
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

/** Ends the newest worker, and waits until the page has noticed, by the lock that the browser passes on. */
async function endWorker() {
  const held = async () => (await navigator.locks.query()).held.filter(({ name }) => name.startsWith("gradloom-worker")).length;
  assert((await held()) > 0, "the worker holds no lock");
  workers.at(-1).terminate();
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
