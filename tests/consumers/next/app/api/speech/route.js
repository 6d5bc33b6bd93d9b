// The same model on the server.
import { readFile } from "node:fs/promises";
import { Tensor, init, load } from "gradloom";
import { LLM } from "gradloom/llm";
import { vad } from "gradloom/tasks";

export const dynamic = "force-dynamic";

export async function GET() {
  const device = await init();
  const model = await load(await readFile("public/model.onnx"));
  const inputs = JSON.parse(await readFile("public/inputs.json", "utf8"));
  const { output } = await model.run({
    input: new Tensor(inputs.input, [1, 576]),
    state: new Tensor(inputs.state, [2, 1, 128]),
    sr: BigInt64Array.of(16000n),
  });
  const { segments } = await vad("public/speech.wav", { model: "public/recipe.json", device: "wasm" });
  const llm = await LLM.load("public/language.gguf", { device: "wasm", context: 64 });
  const written = [];
  for await (const token of llm.tokens(inputs.prompt, { maxTokens: 8, ignoreEnd: true })) written.push(token);
  llm.dispose();
  return Response.json({ device: device.kind, speech: await output.item(), segments, written });
}
