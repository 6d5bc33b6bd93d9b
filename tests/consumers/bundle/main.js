// What every bundler builds: models, a module that is loaded on first use, threads, pictures, a task, a language model.
import { Tensor, Tokenizer, init, load, loadWeights, version } from "gradloom";
import { DataLoader } from "gradloom/data";
import { fromImage } from "gradloom/vision";
import { tasksAndChats } from "./tasks.js";

/** What begins in which order: the threads' workers come up while the module is on its way. */
function watched() {
  const order = [];
  const { Worker: Plain } = globalThis;
  globalThis.Worker = class extends Plain {
    constructor(...args) {
      super(...args);
      order.push("worker");
    }
  };
  for (const name of ["instantiate", "instantiateStreaming"]) {
    const plain = WebAssembly[name];
    WebAssembly[name] = async (...args) => {
      const made = await plain.apply(WebAssembly, args);
      order.push("module");
      return made;
    };
  }
  return order;
}

async function main() {
  const order = watched();
  // where a bundler does not know files by `new URL`, the page says where they were copied to
  const { wasmUrl } = globalThis;
  const device = await init({ device: "wasm", threads: 2, ...(wasmUrl && { wasmUrl }) });
  const model = await load("model.onnx", { device: "wasm" });
  const inputs = await (await fetch("inputs.json")).json();
  const { output } = await model.run({
    input: new Tensor(inputs.input, [1, 576]),
    state: new Tensor(inputs.state, [2, 1, 128]),
    sr: BigInt64Array.of(16000n),
  });
  const tokens = (await Tokenizer.load("tokenizer.json")).encode(inputs.greeting);
  const weights = [...(await (await loadWeights("weights.pt"))["shared.1"].data())].slice(0, 3);
  const canvas = new OffscreenCanvas(2, 1);
  canvas.getContext("2d").fillRect(0, 0, 1, 1);
  const pixels = [...(await (await fromImage(canvas, { channels: "rgba", dtype: "u8", layout: "hwc" })).data())];
  const batches = new DataLoader({ x: [1, 2, 3] }, { batchSize: 2 }).length;
  const started = [...new Set(order)];
  const { segments, written } = await tasksAndChats();
  return { version: version(), threads: device.threads, speech: await output.item(), tokens, weights, pixels, batches, order: started, segments, written };
}

main().then(
  (result) => Object.assign(globalThis, { result }),
  (error) => console.error(error),
);
