// Every sample program on the devices of a page: WASM on one thread, WASM with workers, WebGPU.
// configs: default, not-isolated
import { assert, note, params, test } from "harness";
import { startWorkers } from "/gradloom/workers.js";
import start, { samplesOnWasm, samplesOnWebGpu } from "/conformance/gradloom_web_tests.js";

const isolated = params.get("config") !== "not-isolated";

test("all samples on WASM, one thread", async () => {
  await start();
  assert(samplesOnWasm([]) > 300);
});

test("all samples on WASM, three threads", async () => {
  if (!isolated) return;
  await start();
  const list = await startWorkers(2);
  assert(samplesOnWasm(list) > 300);
  list.forEach((worker) => worker.terminate());
});

test("all samples on WebGPU", async () => {
  await start();
  const n = await samplesOnWebGpu();
  assert(n > 100, `${n} samples`);
  await note(`${n} samples`);
});
