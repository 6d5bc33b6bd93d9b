// A Vite application in strict TypeScript that uses the package as its users do.
import { type Device, type Model, Tensor, Tokenizer, init, load, loadWeights, nn, optim, probeWebGpu, tidy, version } from "gradloom";
import { LLM } from "gradloom/llm";
import { type Speech, vad } from "gradloom/tasks";

interface Result {
  version: string;
  webgpu: boolean;
  speech: number;
  threads: number;
  losses: number[];
  tokens: number[];
  weights: number[];
  order: string[];
  segments: Speech["segments"];
  written: number[];
}

// what begins in which order: the threads' workers come up while the module is on its way
const order: string[] = [];
const { Worker: Plain } = globalThis;
globalThis.Worker = class extends Plain {
  constructor(url: string | URL, options?: WorkerOptions) {
    super(url, options);
    order.push("worker");
  }
};
const stream = WebAssembly.instantiateStreaming;
WebAssembly.instantiateStreaming = async (source, imports) => {
  const made = await stream(source, imports);
  order.push("module");
  return made;
};

const device: Device = await init({ device: "wasm" });
using model: Model = await load("model.onnx", { device: "wasm" });
const inputs: { input: number[]; state: number[]; greeting: string; prompt: number[] } = await (await fetch("inputs.json")).json();
const { output } = await model.run({
  input: new Tensor(inputs.input, [1, 576]),
  state: new Tensor(inputs.state, [2, 1, 128]),
  sr: BigInt64Array.of(16000n),
});

const net = new nn.Sequential(new nn.Linear(2, 8), (x) => x.tanh(), new nn.Linear(8, 1));
const optimizer = new optim.Adam(net.parameters(), { learningRate: 0.05 });
const x = new Tensor([[0, 0], [0, 1], [1, 0], [1, 1]]);
const y = new Tensor([[0], [1], [1], [0]]);
const losses: number[] = [];
for (let step = 0; step < 100; step += 1) {
  const loss = tidy(() => {
    const value = net.forward(x).mseLoss(y);
    value.backward();
    return value;
  });
  await optimizer.step();
  optimizer.zeroGrad();
  losses.push(await loss.item());
}

using tokenizer: Tokenizer = await Tokenizer.load("tokenizer.json");
const weights = await loadWeights("weights.pt");

const { segments } = await vad("speech.wav", { model: "recipe.json", device: "wasm" });
const llm = await LLM.load("language.gguf", { device: "wasm", context: 64 });
const written: number[] = [];
for await (const token of llm.tokens(inputs.prompt, { maxTokens: 8, ignoreEnd: true })) written.push(token);
llm.dispose();

const result: Result = {
  version: version(),
  webgpu: (await probeWebGpu()) !== null,
  speech: (await output?.data())?.[0] ?? Number.NaN,
  threads: device.threads,
  losses: [losses[0] ?? 0, losses.at(-1) ?? 0],
  tokens: tokenizer.encode(inputs.greeting),
  weights: [...((await weights["shared.1"]?.data()) ?? [])].slice(0, 3),
  order: order.slice(0, 2),
  segments: segments.map(({ start, end }) => ({ start, end })),
  written,
};
Object.assign(globalThis, { result });
