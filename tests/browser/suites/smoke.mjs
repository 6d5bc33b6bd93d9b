// The package loads in a page and in a worker, and finds WebGPU where there is one.
// configs: default, no-webgpu, not-isolated
import { init, probeWebGpu, version } from "gradloom";
import { assert, assertEqual, fetchBytes, hasWebGpu, note, params, test } from "harness";
import { readNpz } from "npz";

const config = params.get("config");

test("the module starts and knows its version", async () => {
  await init();
  await init();
  assert(/^\d+\.\d+\.\d+$/.test(version()), version());
});

test("WebGPU gives a device, or its absence is a plain null", async () => {
  await init();
  const gpu = await probeWebGpu();
  if (!hasWebGpu) return assertEqual(gpu, null);
  assert(gpu !== null, "no adapter");
  assert(gpu.maxBufferSize >= 1 << 28, `maxBufferSize ${gpu.maxBufferSize}`);
  await note(`vendor ${gpu.vendor}, fallback ${gpu.fallback}, ${gpu.features.length} features`);
});

test("the page is isolated where the server says so", () => {
  assertEqual(globalThis.crossOriginIsolated, config !== "not-isolated");
});

test("the module starts in a worker", async () => {
  const source = `import { init, version } from "${location.origin}/gradloom/index.js"; await init(); postMessage(version());`;
  const worker = new Worker(URL.createObjectURL(new Blob([source], { type: "text/javascript" })), { type: "module" });
  const answer = await new Promise((done, fail) => {
    worker.onmessage = ({ data }) => done(data);
    worker.onerror = ({ message }) => fail(new Error(message));
  });
  worker.terminate();
  assertEqual(answer, version());
});

test("the test models are served and their arrays read", async () => {
  const { bytes } = await readNpz(await fetchBytes("/models/magika/input.npz"));
  assertEqual([bytes.dtype, ...bytes.shape], ["<i4", 5, 2048]);
  assert(bytes.data.some((value) => value !== 0));
});
