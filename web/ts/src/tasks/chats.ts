// The task `chat`: answers of a language model by a recipe. The model runs in a worker of its own (`LLM`).
import type { ChatMessage } from "../chat.js";
import { loadChunk } from "../chunks.js";
import { ValueError, isLost } from "../errors.js";
import type { LLM } from "../llm.js";
import type { AnswerOptions } from "../llm/options.js";
import { addressOf, unloadCallbacks } from "./dispatch.js";
import { type TaskOptions, readRecipe } from "./recipe.js";

/** Options of `chat`: those of `LLM.chat`, with the model given by a recipe. */
export interface ChatTaskOptions extends Omit<TaskOptions, "model">, AnswerOptions {
  /**
   * The address of a recipe whose model is a GGUF file or the `config.json` of a Hugging Face folder; or a model that
   * `LLM.load` returned. Default: the model for `chat` in the folder of `setModelBase`.
   */
  model?: string | URL | LLM;
  /** The context length in tokens. */
  context?: number;
  /** Receives the answer piece by piece. */
  onText?: (text: string) => void;
}

const loaded = new Map<string, Promise<LLM>>();

unloadCallbacks.add(() => {
  const all = [...loaded.values()];
  loaded.clear();
  for (const each of all) void each.then((llm) => llm.dispose(), () => {});
});

async function load(address: string | URL, { onProgress, context, device, worker, ...options }: ChatTaskOptions): Promise<LLM> {
  const { recipe, file, fetchOptions } = await readRecipe(address, options).catch(async (error: unknown) => {
    throw await loadChunk("advice", () => import("./advice.js")).then(({ withAdvice }) => withAdvice(error, address), () => error);
  });
  if (recipe.task !== "chat") throw new ValueError("E_VALUE", `${recipe.name} is a model for ${recipe.task}, not for chat`);
  // imported as an entry of its own, since that locates its worker's script relative to itself
  const llm = await loadChunk("llm", () => import("../llm.js"));
  return llm.LLM.load(file, {
    ...fetchOptions,
    ...(onProgress && { onProgress }),
    ...(context !== undefined && { context }),
    ...(device !== undefined && { device }),
    ...(worker !== undefined && { worker }),
  });
}

const isLoaded = (model: ChatTaskOptions["model"]): model is LLM => typeof model === "object" && !(model instanceof URL);

/** The cache key of the model; undefined for a model that the caller loaded. */
function keyOf({ model, device, context, worker }: ChatTaskOptions): string | undefined {
  return !isLoaded(model) ? `${String(device ?? "auto")} ${context} ${worker} ${model}` : undefined;
}

/**
 * The model, loaded once per address, device, context length and thread, and kept until `unload`.
 */
function modelOf(options: ChatTaskOptions): Promise<LLM> {
  const { model } = options;
  const key = keyOf(options);
  if (key === undefined) return Promise.resolve(model as LLM);
  let found = loaded.get(key);
  if (!found) {
    loaded.set(key, (found = load(model as string | URL, options)));
    found.catch(() => loaded.delete(key));
  }
  return found;
}

/** Answers messages or a text. A model without a chat template continues the text. */
export async function chat(messages: string | readonly ChatMessage[], given: ChatTaskOptions): Promise<string> {
  const options = { ...given };
  if (!isLoaded(given.model)) {
    const { address, ...hash } = await addressOf("chat", { ...given, model: given.model });
    Object.assign(options, { model: address }, hash);
  }
  const llm = await modelOf(options);
  let hasEmitted = false;
  const onText = (piece: string): void => {
    hasEmitted = true;
    options.onText?.(piece);
  };
  try {
    return await generateAnswer(llm, messages, { ...options, onText });
  } catch (error) {
    // the model loads itself again, and the question is repeated unless a part of the answer was already delivered
    if (!isLost(error) || hasEmitted || options.signal?.aborted) throw error;
    return generateAnswer(llm, messages, options);
  }
}

async function generateAnswer(llm: LLM, messages: string | readonly ChatMessage[], options: ChatTaskOptions): Promise<string> {
  // the remaining options control generation
  const { model: _, device: __, worker: ___, context: ____, cache, fetch, hash, onModel, onProgress, onText, ...generateOptions } = options;
  if (typeof messages !== "string" && !Array.isArray(messages)) {
    throw new ValueError("E_VALUE", "chat takes a text, or a list of messages such as { role: \"user\", content: \"Hello\" }");
  }
  const list = typeof messages === "string" ? [{ role: "user", content: messages }] : messages;
  const text = list.map(({ content }) => String(content ?? "")).join("\n");
  let answer = "";
  for await (const piece of llm.info.hasTemplate ? llm.chat(list, generateOptions) : llm.generate(text, generateOptions)) {
    answer += piece;
    onText?.(piece);
  }
  return answer;
}
