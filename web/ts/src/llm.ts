// Language models: the entry `gradloom/llm`.
import "./apart.js";
import type { ChatMessage } from "./chat.js";
import { missing } from "./errors.js";
import type {
  AnswerOptions, Backend, Finetuned, FinetuneOptions, GenerateOptions, Generated, Job, LLMOptions, Lesson, Metadata, ModelInfo, ModelSource, Step,
} from "./llm/options.js";
import { loadRemote } from "./llm/remote.js";

export type { ChatMessage } from "./chat.js";
export type {
  AdapterSource, AnswerOptions, End, Finetuned, FinetuneOptions, GenerateOptions, Generated, LLMOptions, Lesson, MetaValue, Metadata, ModelInfo,
  ModelSource, ToolCall,
} from "./llm/options.js";

/** Text to tokens of a model and back. */
export interface ModelTokenizer {
  /** Tokens of a text, with the special ones that the model expects around it. */
  encode(text: string, options?: { special?: boolean }): Promise<number[]>;
  /** The text of tokens; special ones are left out unless told otherwise. */
  decode(ids: readonly number[], options?: { skipSpecial?: boolean }): Promise<string>;
}

const NOTHING: Generated = { promptTokens: 0, reusedTokens: 0, tokens: 0, firstTokenMs: 0, tokensPerSecond: 0, end: undefined, calls: [] };

/** A model in this thread: pages whose worker has it load none of this. */
async function localModel(from: ModelSource, options: LLMOptions): Promise<Backend> {
  return (await import("./llm/local.js").catch(missing)).loadLocal(from, options);
}

/** Null for a script of another origin. */
function startedWorker(): Worker | null {
  try {
    return new Worker(new URL("./llm-worker.js", import.meta.url), { type: "module" });
  } catch {
    return null;
  }
}

/** A language model. Texts are made one after the other; what a text has in common with the one before is not read again. */
export class LLM {
  readonly #backend: Backend;
  #stats: Generated = NOTHING;
  /** What it is. */
  readonly info: ModelInfo;
  /** What its file says of itself, but for long lists. */
  readonly metadata: Metadata;
  /** Its tokenizer. */
  readonly tokenizer: ModelTokenizer;

  private constructor(backend: Backend) {
    this.#backend = backend;
    this.info = backend.info;
    this.metadata = backend.metadata;
    this.tokenizer = {
      encode: (text, { special = true } = {}) => backend.encode(text, special),
      decode: (ids, { skipSpecial = true } = {}) => backend.decode(ids, skipSpecial),
    };
  }

  /**
   * Loads a GGUF file, a split one, or a folder of Hugging Face's (`config.json`, safetensors, `tokenizer.json`). Weights are read by ranges, never a
   * whole file, where the server answers them, and kept for later visits; each goes to the device's memory as it comes. In a page all this happens
   * in a worker, unless told otherwise, or where the browser refuses the worker's script: then the console says so.
   */
  static async load(from: ModelSource, options: LLMOptions = {}): Promise<LLM> {
    const { worker = true } = options;
    const page = typeof document !== "undefined" && typeof Worker !== "undefined";
    // what cannot be sent stays here
    const here = !worker || !page || options.fetch !== undefined || typeof options.device === "object";
    if (here) return new LLM(await localModel(from, options));
    options.signal?.throwIfAborted();
    const thread = startedWorker();
    const remote = thread && (await loadRemote(thread, from, options));
    if (!remote) console.warn("gradloom: the language model runs on the page's own thread, because its worker did not start");
    return new LLM(remote ?? (await localModel(from, options)));
  }

  /** What the last text took, or the one under way so far. */
  get stats(): Generated {
    return this.#stats;
  }

  async *#run(job: Omit<Job, "options">, { signal, ...options }: AnswerOptions): AsyncGenerator<Step, void> {
    for await (const step of this.#backend.run({ ...job, options }, signal)) {
      this.#stats = step.stats;
      yield step;
    }
  }

  async *#texts(job: Omit<Job, "options">, options: AnswerOptions): AsyncGenerator<string, void> {
    for await (const { text } of this.#run(job, options)) if (text !== "") yield text;
  }

  /**
   * Answers messages, piece by piece, as the file's chat template has it. The oldest are left out where there is no room for all. Functions that it calls
   * (`tools`) are in `stats.calls` at the end: add them to the messages, and what they gave, and ask again.
   */
  chat(messages: readonly ChatMessage[], options: AnswerOptions = {}): AsyncGenerator<string, void> {
    return this.#texts({ messages }, options);
  }

  /** Goes on with a text, or with tokens, piece by piece. */
  generate(prompt: string | readonly number[], options: GenerateOptions = {}): AsyncGenerator<string, void> {
    return this.#texts({ prompt }, options);
  }

  /** The same, token by token. */
  async *tokens(prompt: string | readonly number[], options: GenerateOptions = {}): AsyncGenerator<number, void> {
    for await (const { token } of this.#run({ prompt }, options)) if (token !== undefined) yield token;
  }

  /** The mean of the model's states over a text, of length 1. */
  embed(text: string | readonly number[], { signal }: { signal?: AbortSignal } = {}): Promise<Float32Array> {
    return this.#backend.embed(text, signal);
  }

  /**
   * From now on texts are made with the adapter of that name, or with none: nothing is compiled for it, and what was read is read again. It waits
   * until the text under way is done.
   */
  useAdapter(name: string | null): Promise<void> {
    return this.#backend.useAdapter(name);
  }

  /**
   * Trains an adapter of low rank (LoRA) on texts or chats, by AdamW, beside the weights, which stay as they are: `useAdapter` puts it into use, and
   * what comes back are its files. It waits until the text under way is done.
   */
  async finetune(texts: readonly Lesson[], options: FinetuneOptions = {}): Promise<Finetuned> {
    const learned = await this.#backend.finetune(texts, options);
    if (!this.info.adapters.includes(learned.name)) (this.info.adapters as string[]).push(learned.name);
    return learned;
  }

  /** Ends it and frees its memory; what is under way fails with `E_STATE`. */
  dispose(): void {
    this.#backend.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
