// A program in Node that uses the package as its users do.
import { readFile } from "node:fs/promises";
import { Tensor, Tokenizer, init, load, loadWeights, version } from "gradloom";
import { LLM } from "gradloom/llm";
import { vad } from "gradloom/tasks";

const device = await init();
const phases = new Set();
const model = await load("model.onnx", { onProgress: ({ phase }) => phases.add(phase) });
const inputs = JSON.parse(await readFile("inputs.json", "utf8"));
const { output } = await model.run({
  input: new Tensor(inputs.input, [1, 576]),
  state: new Tensor(inputs.state, [2, 1, 128]),
  sr: BigInt64Array.of(16000n),
});
const sum = await new Tensor([1, 2, 3]).mul(2).sum().item();
const tokens = (await Tokenizer.load("tokenizer.json")).encode(inputs.greeting);
const weights = [...(await (await loadWeights("weights.pt"))["shared.1"].data())].slice(0, 3);
const speech = await output.item();
const { segments } = await vad("speech.wav", { model: "recipe.json", device: "wasm" });
const llm = await LLM.load("language.gguf", { device: "wasm", context: 64 });
const written = [];
for await (const token of llm.tokens(inputs.prompt, { maxTokens: 8, ignoreEnd: true })) written.push(token);
llm.dispose();
console.log(JSON.stringify({ version: version(), device: device.kind, speech, sum, phases: [...phases], tokens, weights, segments, written }));
