// Language models and encoders: the entry `gradloom/llm`.
import "./page-chunks.js";
import type { ChatMessage } from "./chat.js";
import { missing } from "./errors.js";
import type {
  AnswerOptions, Backend, Finetuned, FinetuneOptions, GenerateOptions, Generated, Job, LLMOptions, Lesson, Metadata, ModelInfo, ModelSource, Step,
} from "./llm/options.js";
import type { GgufFile } from "./llm/gguf-file.js";
import { loadRemote } from "./llm/remote.js";
import { packageFile } from "./module.js";
import type { FetchOptions, FileSource } from "./progress.js";
import { workerViaBlob } from "./workers.js";

export type { ChatMessage } from "./chat.js";
export { Encoder, type EncoderInfo, type EncoderOptions, type EncoderText, type Ranked } from "./encoder.js";
export type { GgufFile, GgufTensor, GgufValue } from "./llm/gguf-file.js";
export type {
  AdapterSource, AnswerOptions, End, Finetuned, FinetuneOptions, GenerateOptions, Generated, LLMOptions, Lesson, MetaValue, Metadata, ModelInfo,
  ModelSource, ToolCall,
} from "./llm/options.js";

/**
 * Opens a GGUF file by its header: metadata, the list of tensors, tokenizer and chat template. Of a server with ranges only
 * the header is fetched, once. Fails with `E_FORMAT` for another or a malformed file, and with `E_FETCH`.
 */
export async function openGguf(from: FileSource, options: FetchOptions = {}): Promise<GgufFile> {
  return (await import("./llm/gguf-file.js").catch(missing)).openGguf(from, options);
}

/** Converts text to a model's tokens and back. */
export interface ModelTokenizer {
  /** The tokens of a text; with `special` (default) including those that the model expects around a text. */
  encode(text: string, options?: { special?: boolean }): Promise<number[]>;
  /** The text of tokens; special tokens are left out unless `skipSpecial` is false. */
  decode(ids: readonly number[], options?: { skipSpecial?: boolean }): Promise<string>;
}

const EMPTY_STATS: Generated = { promptTokens: 0, reusedTokens: 0, tokens: 0, firstTokenMs: 0, tokensPerSecond: 0, end: undefined, calls: [] };

/** Loads a model in this thread. Its code is a separate module, which pages with a worker do not load. */
async function localModel(from: ModelSource, options: LLMOptions): Promise<Backend> {
  return (await import("./llm/local.js").catch(missing)).loadLocal(from, options);
}

/** The ways to start the worker, in the order in which they are tried. */
const STARTERS = [
  () => new Worker(new URL("./llm-worker.js", import.meta.url), { type: "module" }),
  () => workerViaBlob(packageFile("./llm-worker.js")),
];

/** Loads a model in a worker; null if the browser refuses the worker. */
async function remoteModel(from: ModelSource, options: LLMOptions): Promise<Backend | null> {
  for (const start of STARTERS) {
    let worker: Worker;
    try {
      worker = start();
    } catch {
      continue;
    }
    const model = await loadRemote(worker, from, options);
    if (model) return model;
  }
  return null;
}

/**
 * A language model. Requests are processed one at a time; the prefix that a prompt shares with the previous text is not
 * computed again.
 */
export class LLM {
  readonly #backend: Backend;
  #stats: Generated = EMPTY_STATS;
  /** Architecture, sizes and other properties of the model. */
  readonly info: ModelInfo;
  /** The metadata in its file, except for long lists. */
  readonly metadata: Metadata;
  /** The model's tokenizer. */
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
   * Loads a GGUF file, a split GGUF file, or a Hugging Face folder (`config.json`, safetensors, `tokenizer.json`). If
   * the server supports range requests, weights are read in ranges, never as a whole file; they are stored for later
   * visits and uploaded to the device as they arrive. In a page the model runs in a worker, unless `worker` is false or
   * the browser refuses the worker's script, which the console reports.
   */
  static async load(from: ModelSource, options: LLMOptions = {}): Promise<LLM> {
    const { worker = true } = options;
    const isPage = typeof document !== "undefined" && typeof Worker !== "undefined";
    // options that cannot be posted to a worker keep the model in this thread
    const isLocal = !worker || !isPage || options.fetch !== undefined || typeof options.device === "object";
    if (isLocal) return new LLM(await localModel(from, options));
    options.signal?.throwIfAborted();
    const remote = await remoteModel(from, options);
    if (!remote) console.warn("gradloom: the language model runs on the page's own thread, because its worker did not start");
    return new LLM(remote ?? (await localModel(from, options)));
  }

  /** Statistics of the last request, or of the current one so far. */
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
   * Streams the answer to messages, formatted by the file's chat template. The oldest messages are dropped if the
   * context is too short for all. Calls of functions (`tools`) that the model makes are in `stats.calls` at the end:
   * append them and their results to the messages and call `chat` again.
   */
  chat(messages: readonly ChatMessage[], options: AnswerOptions = {}): AsyncGenerator<string, void> {
    return this.#texts({ messages }, options);
  }

  /** Streams the continuation of a text or of tokens. */
  generate(prompt: string | readonly number[], options: GenerateOptions = {}): AsyncGenerator<string, void> {
    return this.#texts({ prompt }, options);
  }

  /** Streams the continuation as tokens. */
  async *tokens(prompt: string | readonly number[], options: GenerateOptions = {}): AsyncGenerator<number, void> {
    for await (const { token } of this.#run({ prompt }, options)) if (token !== undefined) yield token;
  }

  /** An embedding of the text: the mean of the model's hidden states over its tokens, as a unit vector. */
  embed(text: string | readonly number[], { signal }: { signal?: AbortSignal } = {}): Promise<Float32Array> {
    return this.#backend.embed(text, signal);
  }

  /**
   * Switches to the adapter of this name, or to none. Nothing is recompiled, but earlier text has to be processed
   * again. Waits until the current request is done.
   */
  useAdapter(name: string | null): Promise<void> {
    return this.#backend.useAdapter(name);
  }

  /**
   * Trains a low-rank adapter (LoRA) on texts or chats with AdamW; the weights stay as they are. Returns the adapter's
   * files; `useAdapter` activates it. Waits until the current request is done.
   */
  async finetune(texts: readonly Lesson[], options: FinetuneOptions = {}): Promise<Finetuned> {
    const result = await this.#backend.finetune(texts, options);
    if (!this.info.adapters.includes(result.name)) (this.info.adapters as string[]).push(result.name);
    return result;
  }

  /** Frees the model and ends its worker; pending requests fail with `E_STATE`. */
  dispose(): void {
    this.#backend.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
