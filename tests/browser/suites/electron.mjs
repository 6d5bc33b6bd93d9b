// A window of Electron with `nodeIntegration` has Node's `process`, and so may its workers; scripts, workers and wasm are those of a page.
import { assert, assertClose, assertEqual, deviceKinds, loadCase, test } from "harness";

const versions = { node: "22.20.0", chrome: "140.0.0.0", electron: "38.0.0" };
globalThis.process = { type: "renderer", versions, cwd: () => "/" };

const blob = (text) => URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
const workers = [];
globalThis.Worker = class extends Worker {
  constructor(script, options) {
    workers.push(String(script).replace(/.*\//, ""));
    const before = blob(`globalThis.process = ${JSON.stringify({ type: "worker", versions })};`);
    super(blob(`import "${before}"; import ${JSON.stringify(String(script))};`), options);
  }
};

const { Tensor, init, load } = await import("gradloom");
const { input, expected } = await loadCase("silero_vad_op15");

for (const device of deviceKinds) {
  test(`tensors, threads and a model in a worker on ${device}`, async () => {
    const { kind, threads } = await init({ device });
    assertEqual(kind, device);
    assert(device !== "wasm" || threads === 2, `${threads} threads`);
    assertEqual(await Tensor.arange(0, 5).sum().item(), 10);
    const model = await load("/models/silero_vad_op15/model.onnx", { device });
    const outputs = await model.run(Object.fromEntries(Object.entries(input).map(([name, { data, shape }]) => [name, new Tensor(data, shape)])));
    for (const [name, t] of Object.entries(outputs)) assertClose(await t.data(), expected[name].data, { tolerance: 1e-3, what: name });
    assert(workers.includes("remote-worker.js") && workers.includes("worker.js"), `${workers}`);
    model.dispose();
  });
}
