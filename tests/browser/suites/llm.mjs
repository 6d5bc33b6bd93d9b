// A language model in a worker of the page's, on both devices: it writes what it should, the page goes on meanwhile, a later load begins
// sooner, and a text can be ended.
// alone: long tasks of the page are counted
import { init } from "gradloom";
import { LLM } from "gradloom/llm";
import { allowConsoleErrors, assert, assertEqual, deviceKinds, errorOf, note, test } from "harness";

const MODEL = "/models/verses/verses-q8_0.gguf";
const expected = await (await fetch("/models/verses/expected.json")).json();

const all = async (pieces) => {
  const list = [];
  for await (const piece of pieces) list.push(piece);
  return list;
};

/**
 * The longest that the page's thread was not free while something went on, in milliseconds. A busy machine may take the thread away for
 * long, so the claim is that it is less than half of the whole: work on the page's thread would be nearly all of it.
 */
async function longest(body) {
  const start = performance.now();
  const tasks = [];
  const observer = new PerformanceObserver((list) => tasks.push(...list.getEntries().map(({ duration }) => duration)));
  observer.observe({ entryTypes: ["longtask"] });
  await body();
  const whole = performance.now() - start;
  // entries come after the task
  await new Promise((done) => setTimeout(done, 100));
  observer.disconnect();
  const blocked = Math.max(0, ...tasks);
  assert(blocked < whole / 2, `the page was blocked for ${blocked} of ${whole} ms`);
  return blocked;
}

for (const device of deviceKinds) {
  test(`a model on ${device}`, async () => {
    const start = performance.now();
    const blocked = await longest(async () => {
      const llm = await LLM.load(MODEL, { device, context: 256 });
      const loaded = performance.now() - start;
      assertEqual([llm.info.device, llm.info.architecture, llm.metadata["general.name"]], [device, "llama", "verses"]);
      assertEqual(await llm.tokenizer.encode(expected.prompt), expected.ids);
      const { tokens } = expected;
      assertEqual(await all(llm.tokens(expected.prompt, { maxTokens: tokens.length, ignoreEnd: true })), tokens);
      const { firstTokenMs } = llm.stats;
      assertEqual((await all(llm.generate(expected.prompt, { maxTokens: tokens.length, ignoreEnd: true }))).join(""), expected.text);
      assertEqual([llm.stats.end, llm.stats.reusedTokens], ["length", expected.ids.length - 1]);
      await note(
        `loaded in ${loaded.toFixed(0)} ms, the first token after ${firstTokenMs.toFixed(0)} ms, then ${llm.stats.tokensPerSecond.toFixed(0)} a second`,
      );
      const states = await llm.embed("The LORD is my shepherd");
      assert(Math.abs(Math.hypot(...states) - 1) < 1e-4, "an embedding is of length 1");
      llm.dispose();
      assertEqual((await errorOf(() => all(llm.generate("And")))).code, "E_STATE");
    });
    await note(`the page's thread was busy for ${blocked.toFixed(0)} ms at most`);
  });
}

for (const device of deviceKinds) {
  test(`states, windows and caches of bytes on ${device}`, async () => {
    const load = async (name, options) => {
      const { prompt, tokens } = await (await fetch(`/fixtures/llm/${name}/expected.json`)).json();
      return { prompt, tokens, llm: await LLM.load(`/fixtures/llm/${name}.gguf`, { device, ...options }) };
    };
    const mamba = await load("mamba");
    assertEqual(await all(mamba.llm.tokens(mamba.prompt, { maxTokens: 24, ignoreEnd: true })), mamba.tokens.slice(0, 24));
    // a text that is longer than what layers with a window keep
    const gemma = await load("gemma3");
    const text = [...gemma.prompt, ...gemma.tokens];
    assertEqual(await all(gemma.llm.tokens(text.slice(0, 200), { maxTokens: 12, ignoreEnd: true })), text.slice(200, 212));
    const llama = await load("llama", { cacheType: "q8" });
    assertEqual((await all(llama.llm.tokens(llama.prompt, { maxTokens: 4, ignoreEnd: true })))[0], llama.tokens[0]);
    for (const { llm } of [mamba, gemma, llama]) llm.dispose();
  });
}

for (const device of deviceKinds) {
  test(`an adapter learns on ${device}`, async () => {
    const llm = await LLM.load(MODEL, { device, context: 64 });
    const write = () => all(llm.tokens(expected.prompt, { maxTokens: 6, ignoreEnd: true }));
    const plain = await write();
    const losses = [];
    let learned;
    const blocked = await longest(async () => {
      const how = { name: "line", steps: 8, batch: 1, length: 24, rank: 4, learningRate: 1e-2, onStep: (_, loss) => losses.push(loss) };
      learned = await llm.finetune(["In the beginning God created seven green lamps."], how);
    });
    await note(`losses from ${losses[0].toFixed(2)} to ${losses.at(-1).toFixed(2)}; the page's thread was busy for ${blocked.toFixed(0)} ms at most`);
    assertEqual([losses.length, learned.losses, llm.info.adapters], [8, losses, ["line"]]);
    assert(losses.at(-1) < 0.5 * losses[0], `${losses}`);
    assertEqual(await write(), plain);
    await llm.useAdapter("line");
    const taught = await llm.tokenizer.decode(await write());
    assert(taught.startsWith(" seven"), taught);
    assertEqual((await errorOf(() => llm.finetune([]))).code, "E_VALUE");
    // its files are read by another model, whose own files come by name
    const adapters = { line: { from: learned.file, config: learned.config } };
    const other = await LLM.load({ "verses.gguf": await (await fetch(MODEL)).blob() }, { device, context: 64, adapters });
    await other.useAdapter("line");
    assertEqual(await other.tokenizer.decode(await all(other.tokens(expected.prompt, { maxTokens: 6, ignoreEnd: true }))), taught);
    for (const each of [llm, other]) each.dispose();
  });
}

test("a second load finds the kernels, and texts can be ended", async () => {
  const start = performance.now();
  const llm = await LLM.load(MODEL, { device: "wasm", context: 256 });
  for await (const _ of llm.generate(expected.prompt)) break;
  const first = performance.now() - start;
  await note(`the first token ${first.toFixed(0)} ms after the load began`);
  // whoever leaves the loop ends the text, and the next one is right
  assertEqual(await all(llm.tokens(expected.prompt, { maxTokens: 8, ignoreEnd: true })), expected.tokens.slice(0, 8));
  const stop = new AbortController();
  const seen = [];
  const error = await errorOf(async () => {
    for await (const token of llm.tokens(expected.prompt, { maxTokens: 200, ignoreEnd: true, signal: stop.signal })) {
      seen.push(token);
      if (seen.length === 3) stop.abort(new Error("enough"));
    }
  });
  assertEqual([error.message, seen.length], ["enough", 3]);
  const schema = { type: "object", properties: { wise: { type: "boolean" } }, required: ["wise"] };
  const json = (await all(llm.chat([{ role: "user", content: "Who is wise?" }], { schema }))).join("");
  assertEqual(typeof JSON.parse(json).wise, "boolean");
  assertEqual((await errorOf(() => all(llm.generate("And", { schema: { pattern: "a" } })))).code, "E_UNSUPPORTED");
  // what is under way when it ends fails
  const ending = errorOf(() => all(llm.generate(expected.prompt, { maxTokens: 200, ignoreEnd: true })));
  llm.dispose();
  assertEqual((await ending).code, "E_STATE");
});

test("what the page said to init holds in the model's worker", async () => {
  await init({ device: "wasm", threads: 1, memoryLimit: 1e6 });
  // less memory than the model takes
  assertEqual((await errorOf(() => LLM.load(MODEL, { device: "wasm", context: 64 }))).code, "E_OUT_OF_MEMORY");
  await init({ device: "wasm", memoryLimit: Infinity });
  const llm = await LLM.load(MODEL, { device: "wasm", context: 64 });
  assertEqual(llm.info.threads, 1);
  llm.dispose();
  await init({ device: "wasm", threads: navigator.hardwareConcurrency });
});

test("a worker that does not start is done without", async () => {
  await allowConsoleErrors(/no thread/);
  const { Worker: Plain } = globalThis;
  for (const throws of [false, true]) {
    globalThis.Worker = class extends Plain {
      constructor() {
        if (throws) throw new DOMException("of another origin", "SecurityError");
        super(URL.createObjectURL(new Blob(["throw new Error('no thread')"], { type: "text/javascript" })));
        this.addEventListener("error", (event) => event.preventDefault());
      }
    };
    const llm = await LLM.load(MODEL, { device: "wasm", context: 64 }).finally(() => (globalThis.Worker = Plain));
    assertEqual(await all(llm.tokens(expected.prompt, { maxTokens: 4, ignoreEnd: true })), expected.tokens.slice(0, 4));
    llm.dispose();
  }
});

test("what is no model is refused, from the worker too", async () => {
  await allowConsoleErrors(/404/);
  assertEqual((await errorOf(() => LLM.load("/page/index.html"))).code, "E_FORMAT");
  assertEqual((await errorOf(() => LLM.load("/models/no.gguf"))).code, "E_FETCH");
  const stop = new AbortController();
  stop.abort(new Error("before"));
  assertEqual((await errorOf(() => LLM.load(MODEL, { signal: stop.signal }))).message, "before");
  const file = new File([await (await fetch(MODEL)).arrayBuffer()], "verses.gguf");
  const llm = await LLM.load(file, { device: "wasm", context: 64 });
  assertEqual((await errorOf(() => all(llm.tokens(new Array(65).fill(2))))).code, "E_VALUE");
  assertEqual(await all(llm.tokens(expected.prompt, { maxTokens: 4, ignoreEnd: true })), expected.tokens.slice(0, 4));
  llm.dispose();
});
