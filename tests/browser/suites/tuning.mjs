// Tuning while a page is in use: runs go on beside it and give the same numbers, before, during and after kernels are exchanged.
// configs: default, not-isolated
// alone: kernels are timed against each other
import { Tensor, init, load, stats } from "gradloom";
import { assert, assertClose, deviceKinds, errorOf, fetchBytes, note, test, testOnWebGpu } from "harness";
import { readNpz } from "/lib/npz.mjs";

const array = async (file) => Object.entries(await readNpz(await fetchBytes(`/models/ppocr_cls/${file}`)));

async function network(device) {
  const [feeds, [[, want]]] = [await array("input.npz"), await array("expected.npz")];
  const model = await load(await fetchBytes("/models/ppocr_cls/model.onnx"), { device });
  const inputs = Object.fromEntries(feeds.map(([name, t]) => [name, new Tensor(t.data, t.shape)]));
  return async () => {
    const [output] = Object.values(await model.run(inputs));
    assertClose(await output.data(), [...want.data], { tolerance: 1e-3 });
    output.dispose();
  };
}

/** A product whose result is known exactly. */
function product(n) {
  const a = new Tensor(Float32Array.from({ length: n * n }, (_, i) => (i % 7) - 3), [n, n]);
  const b = new Tensor(Float32Array.from({ length: n * n }, (_, i) => (i % 5) - 2), [n, n]);
  const want = Float32Array.from({ length: n * n }, (_, at) => {
    let sum = 0;
    for (let k = 0; k < n; k += 1) sum += (((Math.floor(at / n) * n + k) % 7) - 3) * (((k * n + (at % n)) % 5) - 2);
    return sum;
  });
  return async () => {
    const c = a.matmul(b);
    assertClose(await c.data(), [...want], { tolerance: 0 });
    c.dispose();
  };
}

/** Tunes while `work` runs again and again: what came of it and how often it ran. A slow machine gets more time. */
async function beside(device, options, work) {
  let [runs, list] = [0, []];
  for (let { ms } = options; list.length === 0 && ms < 100_000; ms *= 4) {
    let done = false;
    const over = device.tune({ ...options, ms }).finally(() => (done = true));
    while (!done) {
      await work();
      runs += 1;
    }
    list = await over;
  }
  return [list, runs];
}

const tunedOn = async (kind) => (await stats()).find((each) => each.device === kind).kernelsTuned;

test("a model runs on while its kernels are exchanged in idle time", async () => {
  const device = await init({ device: "wasm" });
  const [run, multiply] = [await network("wasm"), product(96)];
  await run();
  await multiply();
  const before = await tunedOn("wasm");
  const [list, runs] = await beside(device, { ms: 1000, idle: true }, async () => {
    await run();
    await multiply();
    // a page that computes all the time is never idle
    await new Promise((done) => setTimeout(done, 20));
  });
  const faster = list.filter((kernel) => kernel.afterMs < kernel.beforeMs);
  note(`${runs} runs beside it, ${list.length} kernels tried, ${faster.length} exchanged`);
  assert(list.length > 0 && runs > 0, "kernels were tried while the model ran");
  assert(list.every((kernel) => kernel.wrong === 0), "no candidate gave other numbers");
  assert((await tunedOn("wasm")) - before === faster.length, "what was faster is in use");
  await run();
  await multiply();
});

for (const kind of deviceKinds) {
  test(`a kernel that is poor is exchanged while it is in use, on ${kind}`, async () => {
    const device = await init({ device: kind });
    const multiply = product(kind === "wasm" ? 128 : 32);
    await multiply();
    const before = await tunedOn(kind);
    const [list] = await beside(device, { ms: 3000, fromPlain: true }, async () => {
      await multiply();
      await new Promise((done) => setTimeout(done, 1));
    });
    const faster = list.filter((kernel) => kernel.afterMs < kernel.beforeMs);
    note(list.map((kernel) => `${kernel.name}: cost ${kernel.beforeMs.toFixed()} -> ${kernel.afterMs.toFixed()}`).join(", "));
    assert(faster.length >= 1, "it was exchanged");
    const stage = "stage p\\d+( load \\d+)? (outside|in r\\d+)( apart)?";
    const opt = `([a-z]+ r\\d+ (by|to) \\d+|swap r\\d+ with r\\d+|keep r\\d+|${stage})`;
    const isLine = new RegExp(`^[0-9a-f]{16}( ${opt}(, ${opt})*)?$`);
    assert(faster.every(({ line }) => isLine.test(line)), `its opts are a line: ${faster.map(({ line }) => line).join("; ")}`);
    assert((await init({ device: kind, tuned: faster.map(({ line }) => line).join("\n") })) === device, "which may be brought along");
    // once for the poor one and once for the better one
    assert((await tunedOn(kind)) - before >= list.length + faster.length, "what is better is in use");
    await multiply();
  });
}

testOnWebGpu("lines that are no tuned opts are an error, and the device stays", async () => {
  const device = await init({ device: "wasm" });
  const error = await errorOf(() => init({ device: "webgpu", tuned: "0123456789abcdef lane r0 by 8\nunknown words" }));
  assert(error.code === "E_FORMAT" && error.message.includes("line 2"), String(error));
  const sum = new Tensor(Float32Array.of(1, 2)).sum();
  assertClose(await sum.data(), [3]);
  assert(device.kind === "wasm");
});

test("tuning that is aborted leaves kernels that work", async () => {
  const device = await init({ device: "wasm" });
  const [run, multiply] = [await network("wasm"), product(96)];
  await run();
  await multiply();
  const stop = new AbortController();
  const ended = errorOf(() => device.tune({ ms: 60_000, signal: stop.signal }));
  for (let i = 0; i < 3; i += 1) await run();
  stop.abort();
  await ended;
  for (let i = 0; i < 2; i += 1) await run();
  await multiply();
});

testOnWebGpu("the same for shaders", async () => {
  const device = await init({ device: "webgpu" });
  const multiply = product(64);
  await multiply();
  const [list, runs] = await beside(device, { ms: 1500 }, multiply);
  note(`${runs} runs beside it, ${list.length} kernels tried`);
  assert(list.length > 0 && runs > 0);
  assert(list.every((kernel) => kernel.wrong === 0), "no candidate gave other numbers");
  await multiply();
});
