// Answers of language models. A model has a worker of its own, which is told what to load and gives text.
import type { ChatMessage } from "../chat.js";
import { ValueError, isLost, missing } from "../errors.js";
import type { LLM } from "../llm.js";
import type { AnswerOptions } from "../llm/options.js";
import { addressOf, alsoUnloaded } from "./opened.js";
import { type TaskOptions, readRecipe } from "./recipe.js";

/** How `chat` answers: as `LLM.chat` does, by the model of a recipe. */
export interface ChatTaskOptions extends Omit<TaskOptions, "model">, AnswerOptions {
  /** The address of a recipe, whose model is a GGUF file, or the `config.json` of a folder as Hugging Face has it; or a model that `LLM.load` gave. */
  model: string | URL | LLM;
  /** Tokens that there is room for. */
  context?: number;
  /** Hears the answer as it comes. */
  onText?: (text: string) => void;
}

const loaded = new Map<string, Promise<LLM>>();

alsoUnloaded.add(() => {
  const all = [...loaded.values()];
  loaded.clear();
  for (const each of all) void each.then((llm) => llm.dispose(), () => {});
});

async function load(address: string | URL, { onProgress, context, device, worker, ...options }: ChatTaskOptions): Promise<LLM> {
  const { recipe, file, own } = await readRecipe(address, options);
  if (recipe.task !== "chat") throw new ValueError("E_VALUE", `${recipe.name} is a model for ${recipe.task}, not for chat`);
  // by itself, since the entry finds its worker beside it
  const llm = await import("../llm.js").catch(missing);
  return llm.LLM.load(file, {
    ...own,
    ...(onProgress && { onProgress }),
    ...(context !== undefined && { context }),
    ...(device !== undefined && { device }),
    ...(worker !== undefined && { worker }),
  });
}

/** The model that a task is for; undefined for one that was loaded elsewhere. */
function keyOf({ model, device, context, worker }: ChatTaskOptions): string | undefined {
  return typeof model === "string" || model instanceof URL ? `${String(device ?? "auto")} ${context} ${worker} ${model}` : undefined;
}

/** Loaded once for each address, device, room and thread, until `unload`, or until its device is gone. */
function modelOf(options: ChatTaskOptions): Promise<LLM> {
  const model = addressOf("chat", options);
  const key = keyOf(options);
  if (key === undefined) return Promise.resolve(model as LLM);
  let found = loaded.get(key);
  if (!found) {
    loaded.set(key, (found = load(model as string | URL, options)));
    found.catch(() => loaded.delete(key));
  }
  return found;
}

/** The answer to messages, or to a text. A model without a template for chats goes on with the text. */
export async function chat(messages: string | readonly ChatMessage[], options: ChatTaskOptions): Promise<string> {
  const wanted = modelOf(options);
  const key = keyOf(options);
  let isTold = false;
  const onText = (piece: string): void => {
    isTold = true;
    options.onText?.(piece);
  };
  try {
    return await answered(await wanted, messages, { ...options, onText });
  } catch (error) {
    if (!isLost(error) || key === undefined) throw error;
    // its weights are gone: whoever asks next has it loaded again, as this answer does if nobody heard of it yet
    if (loaded.get(key) === wanted) loaded.delete(key);
    void wanted.then((llm) => llm.dispose(), () => {});
    if (isTold || options.signal?.aborted) throw error;
    return answered(await modelOf(options), messages, options);
  }
}

async function answered(llm: LLM, messages: string | readonly ChatMessage[], options: ChatTaskOptions): Promise<string> {
  // the rest is how the answer is made
  const { model: _, device: __, worker: ___, context: ____, cache, fetch, hash, onModel, onProgress, onText, ...how } = options;
  const list = typeof messages === "string" ? [{ role: "user", content: messages }] : messages;
  const text = list.map(({ content }) => String(content ?? "")).join("\n");
  let answer = "";
  for await (const piece of llm.info.hasTemplate ? llm.chat(list, how) : llm.generate(text, how)) {
    answer += piece;
    onText?.(piece);
  }
  return answer;
}
