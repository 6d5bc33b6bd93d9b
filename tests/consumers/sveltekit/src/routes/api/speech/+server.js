// The same model on the server.
import { readFile } from "node:fs/promises";
import { json } from "@sveltejs/kit";
import { Tensor, init, load } from "gradloom";
import { LLM } from "gradloom/llm";
import { vad } from "gradloom/tasks";

export async function GET() {
  const device = await init();
  const model = await load(await readFile("static/model.onnx"));
  const inputs = JSON.parse(await readFile("static/inputs.json", "utf8"));
  const { output } = await model.run({
    input: new Tensor(inputs.input, [1, 576]),
    state: new Tensor(inputs.state, [2, 1, 128]),
    sr: BigInt64Array.of(16000n),
  });
  const { segments } = await vad("static/speech.wav", { model: "static/recipe.json", device: "wasm" });
  const llm = await LLM.load("static/language.gguf", { device: "wasm", context: 64 });
  const written = [];
  for await (const token of llm.tokens(inputs.prompt, { maxTokens: 8, ignoreEnd: true })) written.push(token);
  llm.dispose();
  return json({ device: device.kind, speech: await output.item(), segments, written });
}
