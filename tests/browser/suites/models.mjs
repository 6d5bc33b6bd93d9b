// The committed models on the devices of a page, against their expected outputs.
import { assert, fetchBytes, note, test } from "harness";
import start, { TestEngine } from "/conformance/gradloom_web_tests.js";

const MODELS = [
  "magika",
  "style_multistyle26",
  "silero_vad_op15",
  "silero_vad_sequence",
  "silero_vad_op18_ifless",
  "ppocr_cls",
  "ppocrv4_det",
  "esrgan_slim_x2",
  "hibari_oov",
];

for (const [device, open] of [["wasm", () => TestEngine.onWasm([])], ["webgpu", () => TestEngine.onWebGpu()]]) {
  for (const name of MODELS) {
    test(`${name} on ${device}`, async () => {
      await start();
      const read = (file) => fetchBytes(`/models/${name}/${file}`);
      const engine = await open();
      assert(engine, `no ${device}`);
      const [model, input, expected] = await Promise.all(["model.onnx", "input.npz", "expected.npz"].map(read));
      const report = JSON.parse(await engine.model(model, input, expected, 1));
      await note(JSON.stringify(report));
      assert(report.error < 1e-3, `error ${report.error}`);
      engine.free();
    });
  }
}
