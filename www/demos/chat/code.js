// Talks with a language model of a GGUF file: its weights go to the device as they come,
// and the file is never whole in memory.
import { LLM } from "gradloom/llm";
import { chat } from "gradloom/tasks";

/** Loads a model from an address or a File. */
export const open = (file, options) => LLM.load(file, { context: 2048, ...options });

/**
 * Answers the last of some messages; `onText` receives the answer as it comes.
 * A model without a chat template continues the text.
 */
export const answer = (llm, messages, options) => chat(messages, { model: llm, ...options });
