// Models in the page's worker, which is where `load` has them: the page's thread computes nothing of them, and all else is as it is in
// the page's own thread.
// configs: default, not-isolated
// alone: how long the page's thread waits is measured
import { DeviceError, FetchError, GradloomError, InputError, OutOfMemoryError, StateError, Tensor } from "gradloom";
import { clearCache, flushCache, init, load, memory, stats } from "gradloom";
import { allowConsoleErrors, assert, assertClose, assertEqual, deviceKinds, errorOf, fetchBytes, loadCase, note, params, test, testOnWebGpu } from "harness";
import { open, vad } from "gradloom/tasks";
import { losing } from "/lib/losing.mjs";

// Workers of models, so that they can be ended, and what their GPU is lost by: a script before theirs listens for a word.
const workers = [];
globalThis.Worker = class extends Worker {
  constructor(script, options) {
    const own = String(script).includes("remote-worker");
    super(own ? losing(script) : script, options);
    if (own) workers.push(this);
  }
};

const MODEL = "/models/silero_vad_op15/model.onnx";
const PICTURES = "/models/ppocr_cls/model.onnx";
const { input, expected } = await loadCase("silero_vad_op15");

const feeds = () => Object.fromEntries(Object.entries(input).map(([name, { data, shape }]) => [name, new Tensor(data, shape)]));

async function right(model, inputs = feeds()) {
  const out = await model.run(inputs);
  for (const [name, t] of Object.entries(out)) {
    assertEqual(t.shape, expected[name].shape);
    assertClose(await t.data(), expected[name].data, { tolerance: 1e-3, what: name });
  }
}

/** Kernels that the page's own thread launched. */
const launches = async () => (await memory()).reduce((sum, each) => sum + (each.worker ? 0 : each.launches), 0);

/** The longest that a timer of 4 ms had to wait. */
async function latest(body) {
  let [last, most] = [performance.now(), 0];
  const look = () => {
    const now = performance.now();
    most = Math.max(most, now - last);
    last = now;
  };
  const timer = setInterval(look, 4);
  await body();
  look();
  clearInterval(timer);
  return most;
}

for (const device of params.get("config") === "default" ? deviceKinds : ["wasm"]) {
  // what emulates a GPU is slow
  const side = device === "wasm" ? 640 : 160;
  test(`the page's thread runs no kernel of a model on ${device}`, async () => {
    const before = await launches();
    const bytes = await fetchBytes("/models/ppocrv4_det/model.onnx");
    const late = await latest(async () => {
      const model = await load(bytes, { device });
      assertEqual(model.device.kind, device);
      const x = new Float32Array(3 * side * side).fill(0.5);
      for (let i = 0; i < 2; i += 1) {
        const { "sigmoid_0.tmp_0": map } = await model.run({ x: new Tensor(x, [1, 3, side, side]) });
        assertEqual(map.shape, [1, 1, side, side]);
        const values = await map.data();
        assert(values.every((v) => v >= 0 && v <= 1) && values.some((v) => v > 0), "these are probabilities");
      }
      assert(model.timing.kernelsCompiled + model.timing.plansMade >= 0 && model.timing.runMs > 0, JSON.stringify(model.timing));
      assertEqual(x.length, 3 * side * side);
      model.dispose();
    });
    assertEqual(bytes.length, 4745517);
    assertEqual((await launches()) - before, 0);
    await note(`a timer of the page was ${late.toFixed(0)} ms late at most`);
  });

  test(`inputs of every form, and outputs that go on, on ${device}`, async () => {
    const model = await load(MODEL, { device });
    await right(model);
    // what was given is still there
    const again = feeds();
    await right(model, again);
    await right(model, again);
    await right(model, { ...feeds(), state: input.state.data });
    const { output } = await model.run({ ...feeds(), input: await feeds().input.tolist() });
    // on the page's device, which is there without `init`
    const doubled = await output.mul(2).add(0).data();
    assertClose(doubled, expected.output.data.map((v) => 2 * v), { tolerance: 1e-3 });
    const { stateN } = await model.run({ ...feeds(), state: feeds().state.mul(1) }, { outputs: ["stateN"] });
    assertClose(await stateN.data(), expected.stateN.data, { tolerance: 1e-3 });
    model.dispose();
  });

  test(`errors are the same classes, and aborts end runs, on ${device}`, async () => {
    const model = await load(MODEL, { device });
    const wrong = await errorOf(() => model.run({}));
    assert(wrong instanceof InputError && wrong instanceof GradloomError && wrong.code === "E_INPUT", String(wrong));
    assertEqual((await errorOf(() => model.run({ ...feeds(), input: () => 1 }))).code, "E_VALUE");
    assertEqual((await errorOf(() => model.run(feeds(), { outputs: ["none"] }))).code, "E_VALUE");
    const stop = new AbortController();
    const heard = [];
    const running = errorOf(() => model.run(feeds(), { signal: stop.signal, onProgress: ({ phase }) => heard.push(phase) }));
    setTimeout(() => stop.abort(new Error("enough")));
    const error = await running.catch(() => undefined);
    assert(error === undefined || error.message === "enough", String(error));
    await right(model);
    const here = await errorOf(() => new Tensor([1], null, { device: model.device }).add(1));
    assert(here instanceof DeviceError && here.hint?.includes("worker: false"), String(here));
    model.dispose();
    const over = await errorOf(() => model.run(feeds()));
    assert(over instanceof StateError && over.code === "E_STATE", String(over));
  });

  test(`outputs stay where they were computed, and go on from there, on ${device}`, async () => {
    const model = await load(MODEL, { device });
    const held = async () => (await memory()).find((row) => row.worker && row.device === device).tensors;
    const names = Object.keys(expected);
    // the same as with all values here
    let state = feeds().state;
    const want = [];
    for (let i = 0; i < 4; i += 1) {
      const { output, stateN } = await model.run({ ...feeds(), state });
      want.push(await output.item());
      state = stateN;
    }
    const before = await held();
    let { state: there } = feeds();
    const got = [];
    for (let i = 0; i < 4; i += 1) {
      const out = await model.run({ ...feeds(), state: there }, { stay: true });
      assertEqual(Object.keys(out), names);
      assertEqual([out.stateN.shape, out.stateN.dtype, out.stateN.device.kind], [expected.stateN.shape, "f32", device]);
      got.push(await out.output.item());
      out.output.dispose();
      there.dispose();
      there = out.stateN;
    }
    assertClose(got, want, { tolerance: 1e-4 });
    assertEqual((await held()) - before, 1, "the last state");
    // operators are this thread's
    const error = await errorOf(() => there.add(1));
    assert(error instanceof StateError && error.hint.includes("realize"), String(error));
    const values = await there.data();
    assertClose(values, await state.data(), { tolerance: 1e-4 });
    // read, and still there
    const { stateN: next } = await model.run({ ...feeds(), state: there }, { stay: true, outputs: ["stateN"] });
    await next.realize();
    assertClose(await next.add(1).data(), (await next.data()).map((v) => v + 1), { tolerance: 1e-6 });
    there.dispose();
    assert((await errorOf(() => there.data())).code === "E_STATE");
    assertEqual((await held()) - before, 0);
    // to a model of the page's own thread
    const own = await load(MODEL, { device, worker: false });
    const { stateN } = await model.run(feeds(), { stay: true });
    const [a, b] = [await own.run({ ...feeds(), state: stateN }), await model.run({ ...feeds(), state: stateN })];
    assertClose(await a.output.data(), await b.output.data(), { tolerance: 1e-4 });
    const here = await own.run({ ...feeds(), state: stateN }, { stay: true });
    assertClose(await here.output.mul(1).data(), await b.output.data(), { tolerance: 1e-4 });
    stateN.dispose();
    own.dispose();
    model.dispose();
  });

  test(`memory that is refused in the worker is an error of its class, and all goes on, on ${device}`, async () => {
    const model = await load("/models/ppocrv4_det/model.onnx", { device });
    await init({ device, memoryLimit: 40e6 });
    const again = await load(MODEL, { device });
    const x = new Tensor(new Float32Array(3 * 960 * 960), [1, 3, 960, 960]);
    const error = await errorOf(() => model.run({ x }));
    assert(error instanceof OutOfMemoryError && error.code === "E_OUT_OF_MEMORY", String(error));
    await init({ device, memoryLimit: Infinity });
    await right(await load(MODEL, { device }));
    await right(again);
    const out = await model.run({ x: new Tensor(new Float32Array(3 * 64 * 64), [1, 3, 64, 64]) });
    assertEqual(out["sigmoid_0.tmp_0"].shape, [1, 1, 64, 64]);
    model.dispose();
    again.dispose();
  });

  test(`the same as in the page's own thread on ${device}`, async () => {
    const options = { device, everyValue: true };
    const [there, here] = [await load(MODEL, options), await load(MODEL, { ...options, worker: false })];
    for (const key of ["inputs", "outputs", "nodes", "parameters", "opset", "graph"]) assertEqual(there[key], here[key], key);
    assertEqual({ ...there.device }, { ...here.device });
    assert(JSON.stringify(there.graph.nodes).length > 1000);
    for (const [one, other] of [[there, here], [here, there]]) {
      const drifts = await one.compare(other, feeds());
      assert(drifts.length > 5 && drifts.every(({ drifts: far, maxAbs }) => !far && maxAbs < 1e-4), JSON.stringify(drifts.slice(0, 3)));
    }
    there.dispose();
    here.dispose();
  });
}

test("a run is ended between its kernels", async () => {
  const model = await load("/models/ppocrv4_det/model.onnx", { device: "wasm" });
  const x = new Tensor(new Float32Array(3 * 960 * 960), [1, 3, 960, 960]);
  const stop = new AbortController();
  let aborted = 0;
  const onProgress = ({ phase }) => {
    if (phase !== "run") return;
    aborted = performance.now();
    stop.abort(new Error("enough"));
  };
  // the first run compiles, and then runs: it is given up while it does
  assertEqual((await errorOf(() => model.run({ x }, { signal: stop.signal, onProgress }))).message, "enough");
  assert(aborted > 0, "it ran");
  const ended = performance.now() - aborted;
  const begin = performance.now();
  await model.run({ x });
  const whole = performance.now() - begin;
  assert(ended < whole / 2, `it ended ${ended} ms after it was given up, a run takes ${whole} ms`);
  // what comes next has not to wait for the whole of it
  const start = performance.now();
  const small = new Tensor(new Float32Array(3 * 32 * 32), [1, 3, 32, 32]);
  assertEqual((await model.run({ x: small }))["sigmoid_0.tmp_0"].shape, [1, 1, 32, 32]);
  await note(`another run ended ${(performance.now() - start).toFixed(0)} ms later`);
  model.dispose();
});

test("a worker that dies is an error for what was under way, and models are loaded again when they are next used", async () => {
  const model = await load("/models/ppocrv4_det/model.onnx", { device: "wasm" });
  const other = await load(MODEL, { device: "wasm" });
  const { stateN } = await other.run(feeds(), { stay: true });
  const x = new Tensor(new Float32Array(3 * 960 * 960), [1, 3, 960, 960]);
  const running = errorOf(() => model.run({ x }));
  const count = workers.length;
  setTimeout(() => workers.at(-1).terminate(), 200);
  const lost = (error) => assert(error instanceof DeviceError && error.code === "E_DEVICE_LOST" && error.hint, String(error));
  lost(await running);
  lost(await errorOf(() => stateN.data()));
  assertEqual((await memory()).filter(({ worker }) => worker), []);
  // two at a time load it once
  const { device } = other;
  await Promise.all([right(other), right(other)]);
  assertEqual(workers.length, count + 1);
  assertEqual([other.device.kind, other.device === device], ["wasm", false]);
  const loaded = (await memory()).filter(({ worker }) => worker);
  assertEqual(loaded.length, 1);
  lost(await errorOf(() => other.run({ ...feeds(), state: stateN })));
  // it is freed by the same handle
  other.dispose();
  assert((await errorOf(() => other.run(feeds()))) instanceof StateError);
  const again = await load(MODEL, { device: "wasm" });
  assertEqual(workers.length, count + 1);
  await right(again);
  again.dispose();
  model.dispose();
});

test("a model is loaded again from an address, a file, or bytes that the page still has; otherwise the error says how", async () => {
  const bytes = await fetchBytes(MODEL);
  const fetched = [];
  const own = (address, init) => {
    fetched.push(String(address));
    return fetch(address, init);
  };
  const sources = [[MODEL, {}], [new Blob([bytes]), {}], [bytes, {}], [MODEL, { fetch: own, cache: false }]];
  const models = await Promise.all(sources.map(([from, options]) => load(from, { device: "wasm", ...options })));
  const gone = bytes.slice();
  const lost = await load(gone, { device: "wasm" });
  const disposed = await load(MODEL, { device: "wasm" });
  const { length } = fetched;
  const end = Promise.race(models.map(({ device }) => device.lost));
  workers.at(-1).terminate();
  await end;
  disposed.dispose();
  structuredClone(gone.buffer, { transfer: [gone.buffer] });
  for (const model of models) await right(model);
  assertEqual(fetched.length, 2 * length);
  const error = await errorOf(() => lost.run(feeds()));
  assertEqual(error.code, "E_DEVICE_LOST");
  assert(/no longer has the bytes/.test(error.message) && /load the model again with its bytes/.test(error.hint), String(error));
  assert((await errorOf(() => disposed.run(feeds()))) instanceof StateError);
  for (const model of [...models, lost]) model.dispose();
});

test("an opened task and its model are there again after their worker died", async () => {
  const opened = await open("/models/silero_vad_op18_ifless/recipe.json", { device: "wasm" });
  const sound = { channels: [new Float32Array(4096)], sampleRate: 16000 };
  const before = await vad(sound, { model: opened });
  const frame = () => opened.model.run({ input: Tensor.zeros([1, 576]), state: Tensor.zeros([2, 1, 128]), sr: BigInt64Array.of(16000n) });
  for (const use of [() => vad(sound, { model: opened }), frame]) {
    const end = opened.model.device.lost;
    const count = workers.length;
    workers.at(-1).terminate();
    await end;
    await use();
    assertEqual(workers.length, count + 1);
    assertEqual((await vad(sound, { model: opened })).probabilities, before.probabilities);
    assertEqual(workers.length, count + 1);
  }
  opened.dispose();
});

testOnWebGpu("a GPU that is lost in the worker is an error for what was there, and models go on", async () => {
  const model = await load(MODEL, { device: "webgpu" });
  const { stateN } = await model.run(feeds(), { stay: true });
  await stateN.data();
  const { stateN: unread } = await model.run(feeds(), { stay: true });
  const { device } = model;
  workers.at(-1).postMessage("lose");
  assertEqual((await device.lost).reason, "destroyed");
  const error = await errorOf(() => unread.data());
  assert(error instanceof DeviceError && error.code === "E_DEVICE_LOST", String(error));
  await right(model);
  assertEqual(model.device.kind, "webgpu");
  assert(model.device !== device && (await Promise.race([model.device.lost, Promise.resolve("there")])) === "there");
  // runs under way are made once more, since what they were given is still there
  const phases = [];
  const running = Array.from({ length: 4 }, async () => {
    const { output } = await model.run(feeds(), { onProgress: ({ phase }) => phases.push(phase) });
    assertClose(await output.data(), expected.output.data, { tolerance: 1e-3 });
  });
  workers.at(-1).postMessage("lose");
  await Promise.all(running);
  assert(phases.includes("device"), `told on the way: ${phases}`);
  model.dispose();
});

test("files come in every form, and say what is wrong with them", async () => {
  const bytes = await fetchBytes(PICTURES);
  const progress = [];
  const onProgress = ({ phase }) => progress.at(-1) !== phase && progress.push(phase);
  for (const from of [bytes, bytes.buffer.slice(0), new Blob([bytes]), PICTURES.slice(1), new URL(PICTURES, location.href)]) {
    const model = await load(typeof from === "string" ? `../${from}` : from, { device: "wasm", onProgress });
    assertEqual(model.inputs.map(({ name }) => name), ["x"]);
    model.dispose();
  }
  assert(bytes.length > 0 && progress.includes("download") && progress.includes("parse"), progress.join());
  let asked = 0;
  const own = await load(PICTURES, { device: "wasm", fetch: (...args) => ((asked += 1), fetch(...args)) });
  assertEqual([asked, own.inputs.length], [1, 1]);
  own.dispose();
  await allowConsoleErrors(/404/);
  const missing = await errorOf(() => load("/models/no.onnx", { device: "wasm" }));
  assert(missing instanceof FetchError && missing.message.includes("404"), String(missing));
  const page = await errorOf(() => load("/page/index.html", { device: "wasm" }));
  assert(page.code === "E_FORMAT" && page.message.includes("web page"), String(page));
  const small = await load(MODEL, { device: "wasm", budget: { nodes: 3 } });
  assertEqual((await errorOf(() => small.run(feeds()))).code, "E_BUDGET");
  small.dispose();
  const unknown = await errorOf(() => load(MODEL, { device: "tpu" }));
  assertEqual(unknown.code, "E_DEVICE");
});

test("what `init` was told holds in the worker", async () => {
  const lines = [];
  await init({ device: "wasm", debug: 2, log: (text) => lines.push(text) });
  const model = await load(MODEL, { device: "wasm" });
  await model.run(feeds());
  await new Promise((done) => setTimeout(done, 50));
  assert(lines.length > 0, "launches are shown");
  await init({ device: "wasm", debug: 0 });
  const more = await load(MODEL, { device: "wasm" });
  const before = lines.length;
  await more.run(feeds());
  assertEqual(lines.length, before);
  model.dispose();
  more.dispose();
});

test("what devices of the worker hold and did is told with the page's", async () => {
  const model = await load(MODEL, { device: "wasm" });
  const row = (rows) => rows.find(({ device, worker }) => device === "wasm" && worker);
  const before = [row(await memory()), row(await stats())];
  await right(model);
  const [held, did] = [row(await memory()), row(await stats())];
  assert(held.bytes > 100_000 && held.launches > before[0].launches && did.runMs > before[1].runMs, JSON.stringify([held, did]));
  await flushCache();
  await clearCache();
  await right(model);
  model.dispose();
  assert(row(await memory()).bytes < held.bytes);
});

test("a device of the page's has its models in the page's thread", async () => {
  const own = await init({ device: "wasm" });
  const model = await load(MODEL, { device: own });
  assert(model.device === own);
  await right(model);
  model.dispose();
});

test("weights in other files: given by name, as files, bytes and addresses", async () => {
  const { model: onnx } = await import("/onnx/onnx.mjs");
  const w = Float32Array.of(1, 2, 3, 4, 5, 6);
  const bytes = onnx(
    { x: { shape: [1, 2], dtype: "float32" } },
    { w: { shape: [2, 3], dtype: "float32", file: "w.data", place: { offset: 4, length: 24 } } },
    [["MatMul", ["x", "w"], "y"]],
    [1, 3],
  );
  const data = new Uint8Array(28);
  data.set(new Uint8Array(w.buffer), 4);
  const address = URL.createObjectURL(new Blob([data]));
  for (const given of [new Blob([data]), data, address, new URL(address)]) {
    const model = await load(new Blob([bytes]), { device: "wasm", files: { "w.data": given } });
    const { y } = await model.run({ x: [[1, 10]] });
    assertEqual(await y.tolist(), [[41, 52, 63]]);
    model.dispose();
  }
  assertEqual(data.length, 28);
  const none = await errorOf(() => load(bytes, { device: "wasm" }));
  assertEqual(none.code, "E_UNSUPPORTED");
  assert(none.hint.includes("files"), String(none.hint));
});
