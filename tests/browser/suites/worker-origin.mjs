// Workers of models whose script browsers refuse to start directly: of a package of another origin, or without the headers of isolation.
// configs: other-origin, other-origin-not-isolated, other-origin-csp, isolated-pages
import { assert, assertEqual, deviceKinds, errorOf, params, test } from "harness";

const { Tensor, load, memory } = await import(`${params.get("package")}/index.js`);
const { LLM } = await import(`${params.get("package")}/llm.js`);

// Firefox has all suites with the package of its own origin
const isRefused = params.get("config") !== "firefox";

/** The addresses of the scripts of the workers that were started. */
const scripts = [];
globalThis.Worker = class extends Worker {
  constructor(script, options) {
    super(script, options);
    scripts.push(String(script));
  }
};

const MODEL = "/models/ppocr_cls/model.onnx";
const LANGUAGE_MODEL = "/models/verses/verses-q8_0.gguf";

/** What the console is warned of during `body`. */
async function warningsOf(body) {
  const { warn } = console;
  const said = [];
  console.warn = (text) => said.push(text);
  await body().finally(() => (console.warn = warn));
  return said;
}

/** Kernels that the page's own thread launched. */
const launches = async () => (await memory()).reduce((sum, each) => sum + (each.worker ? 0 : each.launches), 0);

for (const device of deviceKinds) {
  test(`a model runs in a worker on ${device}`, async () => {
    const before = await launches();
    const said = await warningsOf(async () => {
      const model = await load(MODEL, { device });
      assertEqual(model.device.kind, device);
      if (device === "wasm") assertEqual(model.device.threads > 1, crossOriginIsolated, `${model.device.threads} threads`);
      const { "save_infer_model/scale_0.tmp_1": out } = await model.run({ x: new Tensor(new Float32Array(3 * 48 * 192), [1, 3, 48, 192]) });
      const [a, b] = await out.data();
      assert(Math.abs(a + b - 1) < 1e-4, `${a} ${b}`);
      const error = await errorOf(() => model.run({ x: new Tensor(new Float32Array(3 * 48 * 192), [1, 48, 192, 3]) }));
      assert(/channels last/.test(error.hint), error.message);
      model.dispose();
    });
    assertEqual(said, []);
    assertEqual(scripts.at(-1).startsWith("blob:"), isRefused, scripts.join());
    assert((await memory()).some(({ worker, launches: n }) => worker && n > 0), "the worker launches kernels");
    assertEqual(await launches(), before);
  });
}

test("a language model runs in a worker", async () => {
  const { prompt, tokens } = await (await fetch("/models/verses/expected.json")).json();
  const before = await launches();
  const said = await warningsOf(async () => {
    const llm = await LLM.load(LANGUAGE_MODEL, { device: "wasm", context: 64 });
    const got = [];
    for await (const token of llm.tokens(prompt, { maxTokens: 4, ignoreEnd: true })) got.push(token);
    assertEqual(got, tokens.slice(0, 4));
    llm.dispose();
  });
  assertEqual(said, []);
  assertEqual(scripts.at(-1).startsWith("blob:"), isRefused, scripts.join());
  assertEqual(await launches(), before);
});
