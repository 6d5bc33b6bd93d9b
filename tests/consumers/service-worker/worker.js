// A service worker that runs models, tasks and a language model, and reads files of weights. It may not import anything once it runs.
import "./node_modules/gradloom/dist/service-worker.js";
import { Tensor, Tokenizer, init, irKernel, load, loadWeights, saveWeights, torch, version } from "./node_modules/gradloom/dist/index.js";
import { LLM } from "./node_modules/gradloom/dist/llm.js";
import { chat, vad } from "./node_modules/gradloom/dist/tasks.js";
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
  const { greeting } = inputs;
  const [encoded] = (await Tokenizer.load("tokenizer.json")).encodeBatch([greeting]).ids;
  const saved = await loadWeights("weights.pt");
  const sums = [];
  for (const t of Object.values(saved)) sums.push(await t.cast("f32").sum().item());
  const copy = await loadWeights(await saveWeights({ a: new Tensor([1, 2]) }));
  const refused = await load("index.html", { device: "wasm" }).catch(({ code }) => code);
  const { linalg } = await torch();
  const inverse = await linalg.inv(new Tensor([[2, 0], [0, 4]])).tolist();
  const kernel = await irKernel("nonsense").catch(({ code }) => code);
  const { segments } = await vad("speech.wav", { model: "recipe.json", device: "wasm" });
  const llm = await LLM.load("language.gguf", { device: "wasm", context: 64 });
  const written = [];
  for await (const token of llm.tokens(inputs.prompt, { maxTokens: 8, ignoreEnd: true })) written.push(token);
  const recipe = { task: "chat", model: new URL("language.gguf", location.href).href, name: "A tiny model", license: "MIT" };
  const how = { device: "wasm", context: 64, maxTokens: 4, ignoreEnd: true };
  // its files have no tokenizer, as the task says, whose code is here then
  const answer = await chat("Hello", { model: `data:application/json,${encodeURIComponent(JSON.stringify(recipe))}`, ...how }).catch(({ message }) => message);
  const weights = { names: Object.keys(saved), sums, copied: await copy.a.tolist() };
  const others = { refused, inverse, kernel, segments, written, answer };
  return { version: version(), threads: device.threads, speech: await output.item(), half: softmax([1, 1])[0], encoded, ...weights, ...others };
}

globalThis.onmessage = (event) =>
  event.waitUntil(main().then((result) => event.source.postMessage(result), (error) => event.source.postMessage({ error: String(error.stack) })));
