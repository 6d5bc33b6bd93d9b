// Every sample program on the devices of a page: WASM on one thread, WASM with workers, WebGPU.
// configs: default, not-isolated
import { assert, assertEqual, note, params, test, testOnWebGpu } from "harness";
import { startWorkers } from "/gradloom/workers.js";
import start, { Programs, TorchSuite, samplesOnWasm, samplesOnWebGpu } from "/conformance/gradloom_web_tests.js";
import { programs, torchSamples } from "/lib/suites.mjs";

const isolated = params.get("config") !== "not-isolated";
/** Worker threads need an isolated page; the other tests of a kind run once. */
const whenIsolated = isolated ? test : () => {};
const onIsolatedWebGpu = isolated ? testOnWebGpu : () => {};

test("all samples on WASM, one thread", async () => {
  await start();
  assert(samplesOnWasm([]) > 300);
});

whenIsolated("all samples on WASM, three threads", async () => {
  await start();
  const { workers: list } = await startWorkers(2, () => {});
  assert(samplesOnWasm(list) > 300);
  list.forEach((worker) => worker.terminate());
});

testOnWebGpu("all samples on WebGPU", async () => {
  await start();
  const n = await samplesOnWebGpu(false);
  assert(n > 100, `${n} samples`);
  await note(`${n} samples`);
});

onIsolatedWebGpu("every 97th of torch's operator samples on WebGPU", async () => {
  await start();
  const results = [];
  await torchSamples(TorchSuite, { webgpu: true, every: 97 }, (result) => void results.push(result));
  // shaders have no f64
  const bad = results.filter((r) => r.what !== "pass" && !(r.what === "refused" && r.why.includes("f64")));
  assertEqual(bad, []);
  assert(results.length > 50, `${results.length} samples`);
});

onIsolatedWebGpu("100 random programs on WebGPU have the evaluator's values", async () => {
  await start();
  assertEqual(await programs(Programs, { webgpu: true, from: 2_000_000, count: 100 }), []);
});
