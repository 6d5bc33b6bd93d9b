// A service worker that runs a model. It may not import anything once it runs, so that only what is in the core is there.
import { Tensor, init, load, version } from "./node_modules/gradloom/dist/index.js";
import { softmax } from "./node_modules/gradloom/dist/vision.js";

async function main() {
  const device = await init({ device: "wasm" });
  const model = await load("model.onnx", { device: "wasm" });
  const inputs = await (await fetch("inputs.json")).json();
  const { output } = await model.run({
    input: new Tensor(inputs.input, [1, 576]),
    state: new Tensor(inputs.state, [2, 1, 128]),
    sr: BigInt64Array.of(16000n),
  });
  const refused = await load("index.html", { device: "wasm" }).catch(({ code }) => code);
  return { version: version(), threads: device.threads, speech: await output.item(), half: softmax([1, 1])[0], refused };
}

globalThis.onmessage = (event) =>
  event.waitUntil(main().then((result) => event.source.postMessage(result), (error) => event.source.postMessage({ error: String(error.stack) })));
