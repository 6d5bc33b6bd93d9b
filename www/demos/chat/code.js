// Talks with a language model of a GGUF file: its weights go to the device as they come, and the file is never whole in memory.
import { LLM } from "gradloom/llm";

/** Loads a model from an address or a File. */
export const open = (file, options) => LLM.load(file, { context: 2048, ...options });

/** Answers the last of some messages, piece by piece. A model without a template for chats goes on with the text. */
export async function* answer(llm, messages, options) {
  const text = messages.map(({ content }) => content).join("\n");
  yield* llm.info.hasTemplate ? llm.chat(messages, options) : llm.generate(text, options);
}
