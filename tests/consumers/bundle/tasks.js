// A task and a language model, which run in workers of their own.
import { LLM } from "gradloom/llm";
import { vad } from "gradloom/tasks";

/** Where somebody speaks in a recording, in seconds, and what a language model writes after some tokens. */
export async function tasksAndChats() {
  const { segments } = await vad("speech.wav", { model: "recipe.json", device: "wasm" });
  const llm = await LLM.load("language.gguf", { device: "wasm", context: 64 });
  const { prompt } = await (await fetch("inputs.json")).json();
  const written = [];
  for await (const token of llm.tokens(prompt, { maxTokens: 8, ignoreEnd: true })) written.push(token);
  llm.dispose();
  return { segments, written };
}
