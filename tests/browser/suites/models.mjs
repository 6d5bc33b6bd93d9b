// The committed models on the devices of a page, against their expected outputs.
import { assert, deviceKinds, fetchBytes, note, test } from "harness";
import start, { TestEngine } from "/conformance/gradloom_web_tests.js";

const models = await (await fetch("/models/models.json")).json();

const engines = { wasm: () => TestEngine.onWasm([]), webgpu: () => TestEngine.onWebGpu() };
for (const device of deviceKinds) {
  for (const [name, limit] of Object.entries(models)) {
    test(`${name} on ${device}`, async () => {
      await start();
      const read = (file) => fetchBytes(`/models/${name}/${file}`);
      const engine = await engines[device]();
      assert(engine, `no ${device}`);
      const [model, input, expected] = await Promise.all(["model.onnx", "input.npz", "expected.npz"].map(read));
      const report = JSON.parse(await engine.model(model, input, expected, 1));
      await note(JSON.stringify(report));
      assert(report.error <= limit, `error ${report.error}`);
      engine.free();
    });
  }
}
