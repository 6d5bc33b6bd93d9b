// A worker of a page's own, or one that pages share: a model from a file, tensors that learn, tokens by a module that is loaded on first use.
import { Tensor, Tokenizer, init, load, nn, optim, version } from "./node_modules/gradloom/dist/index.js";

async function main() {
  const device = await init({ device: "wasm" });
  const model = await load("model.onnx", { device: "wasm" });
  const inputs = await (await fetch("inputs.json")).json();
  const { output } = await model.run({
    input: new Tensor(inputs.input, [1, 576]),
    state: new Tensor(inputs.state, [2, 1, 128]),
    sr: BigInt64Array.of(16000n),
  });
  const line = new nn.Linear(1, 1);
  const optimizer = new optim.Adam(line.parameters(), { learningRate: 0.1 });
  const [x, y] = [new Tensor([[0], [1], [2]]), new Tensor([[1], [3], [5]])];
  const losses = [];
  for (let step = 0; step < 60; step += 1) losses.push(await optimizer.minimize(() => line.forward(x).mseLoss(y)));
  const tokens = (await Tokenizer.load("tokenizer.json")).encode(inputs.greeting);
  return { version: version(), kind: device.kind, speech: await output.item(), losses: [losses[0], losses.at(-1)], tokens };
}

const answer = (to) => main().then((result) => to.postMessage(result), (error) => to.postMessage({ error: String(error.stack) }));

if (globalThis.SharedWorkerGlobalScope) {
  globalThis.onconnect = ({ ports: [port] }) => (port.onmessage = () => answer(port));
} else globalThis.onmessage = () => answer(globalThis);
