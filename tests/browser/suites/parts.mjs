// A page loads the parts of the wasm module that it needs, each when it is first needed, and no other.
// configs: default, no-webgpu
import { FetchError, Tensor, init, load, loadWeights, saveWeights } from "gradloom";
import { assert, assertEqual, fetchBytes, hasWebGpu, test } from "harness";
import { readNpz } from "npz";

const MODEL = "/models/zoo_t5_encoder/model.onnx";

let device;

/** What the page fetched whose address ends so. */
const fetched = (end) => performance.getEntriesByType("resource").filter(({ name }) => name.endsWith(end));
const parts = () => fetched("_bg.wasm").map(({ name }) => /gradloom_(\w+)_bg/.exec(name)[1]).sort();

test("tensors and training on WASM take the core and the device's part", async () => {
  device = await init({ device: "wasm" });
  const w = new Tensor([[1, 2], [3, 4]], null, { requiresGrad: true });
  const loss = w.matmul(w).softmax(-1).max();
  loss.backward();
  await loss.item();
  assertEqual((await w.grad.tolist()).length, 2);
  assertEqual(parts(), ["wasm", "web"]);
  const [[part], [core]] = [fetched("gradloom_wasm_bg.wasm"), fetched("gradloom_web_bg.wasm")];
  assert(core.startTime <= part.startTime, `the core, which takes longest, is asked for first: ${core.startTime}, ${part.startTime}`);
  assert(part.startTime < core.responseEnd, `the part is asked for while the core comes: ${part.startTime}, ${core.responseEnd}`);
});

test("the part for models is fetched while the model is", async () => {
  const model = await load(MODEL, { device: "wasm", cache: false, worker: false });
  assertEqual(parts(), ["onnx", "wasm", "web"]);
  const inputs = await readNpz(await fetchBytes("/models/zoo_t5_encoder/input.npz"));
  const [expected] = Object.values(await readNpz(await fetchBytes("/models/zoo_t5_encoder/expected.npz")));
  const feeds = Object.fromEntries(Object.entries(inputs).map(([name, { data, shape }]) => [name, new Tensor(data, shape)]));
  const [got] = await Object.values(await model.run(feeds))[0].data();
  assert(Math.abs(got - expected.data[0]) < 1e-3 * Math.abs(expected.data[0]), `${got}`);
  const [[part], [file]] = [fetched("gradloom_onnx_bg.wasm"), fetched(MODEL)];
  assert(part.startTime < file.responseEnd, `the part began ${part.startTime}, the model was there ${file.responseEnd}`);
});

test("a part that the server does not give is an error, and can be had later", async () => {
  const { fetch } = globalThis;
  const isPart = (url) => String(url).endsWith("gradloom_weights_bg.wasm");
  globalThis.fetch = (url, ...rest) => (isPart(url) ? Promise.resolve(new Response("", { status: 503 })) : fetch(url, ...rest));
  const values = { a: new Tensor([1, 2], null, { device }) };
  const error = await saveWeights(values).catch((thrown) => thrown);
  globalThis.fetch = fetch;
  assert(error instanceof FetchError && error.code === "E_FETCH" && error.message.includes("503"), `${error}`);
  assertEqual(await (await loadWeights(await saveWeights(values), { device })).a.tolist(), [1, 2]);
  assertEqual(parts(), ["onnx", "wasm", "web", "weights"]);
});

test("WebGPU comes with its own part, where there is WebGPU", async () => {
  if (!hasWebGpu) {
    const error = await init({ device: "webgpu" }).catch((thrown) => thrown);
    assertEqual(error.code, "E_DEVICE");
    return assert(!parts().includes("webgpu"), parts());
  }
  await init({ device: "webgpu" });
  assertEqual(await new Tensor([1, 2]).add(1).tolist(), [2, 3]);
  assertEqual(parts(), ["onnx", "wasm", "web", "webgpu", "weights"]);
});
