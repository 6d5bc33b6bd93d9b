// Language models and encoders: the entry `gradloom/llm`.
import "./page-chunks.js";
import type { ChatMessage } from "./chat.js";
import { loadChunk } from "./chunks.js";
import { InternalError, guardAsync, isLost } from "./errors.js";
import type {
  AnswerOptions, Backend, Finetuned, FinetuneOptions, GenerateOptions, Generated, Job, LLMOptions, Lesson, Metadata, ModelInfo, ModelSource, Step,
} from "./llm/options.js";
import type { GgufFile } from "./llm/gguf-file.js";
import type { HeldFile, Origin } from "./llm/reload.js";
import { loadRemote } from "./llm/remote.js";
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
  return (await loadChunk("ggufFile", () => import("./llm/gguf-file.js"))).openGguf(from, options);
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
  return (await loadChunk("languageModel", () => import("./llm/local.js"))).loadLocal(from, options);
}

const newWorker = (): Worker => new Worker(new URL("./llm-worker.js", import.meta.url), { type: "module" });

/** The ways to start the worker, in the order in which they are tried. */
const STARTERS = [newWorker, () => workerViaBlob(newWorker)];

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

/** Loads a model, in a worker if that is possible. */
async function loadBackend(from: ModelSource, options: LLMOptions): Promise<Backend> {
  const { worker = true } = options;
  const isPage = typeof document !== "undefined" && typeof Worker !== "undefined";
  // options that cannot be posted to a worker keep the model in this thread
  if (!worker || !isPage || options.fetch !== undefined || typeof options.device === "object") return localModel(from, options);
  options.signal?.throwIfAborted();
  const remote = await remoteModel(from, options);
  if (!remote) console.warn("gradloom: the language model runs on the page's own thread, because its worker did not start");
  return remote ?? localModel(from, options);
}

/** What a model can be loaded from again. Bytes are held weakly, since they may be large. */
function hold(from: ModelSource): Origin["from"] {
  const holdFile = (file: FileSource): HeldFile => (file instanceof ArrayBuffer || ArrayBuffer.isView(file) ? new WeakRef(file) : file);
  if (Array.isArray(from)) return from as readonly File[];
  const isRecord = Object.getPrototypeOf(from) === Object.prototype;
  return isRecord ? Object.fromEntries(Object.entries(from).map(([name, file]) => [name, holdFile(file)])) : holdFile(from as FileSource);
}

/**
 * A language model. Requests are processed one at a time; the prefix that a prompt shares with the previous text is not
 * computed again. If its worker or its device is lost, requests in progress fail with `E_DEVICE_LOST`, and the next one
 * loads the model again.
 */
export class LLM {
  #backend: Backend;
  #stats: Generated = EMPTY_STATS;
  readonly #origin: Origin;
  /** Whether a request failed because the model was lost. */
  #lost = false;
  #disposed = false;
  #reloading: Promise<Backend> | undefined;
  /** The model's tokenizer. */
  readonly tokenizer: ModelTokenizer = {
    encode: (text, { special = true } = {}) => this.#request((backend) => backend.encode(text, special)),
    decode: (ids, { skipSpecial = true } = {}) => this.#request((backend) => backend.decode(ids, skipSpecial)),
  };

  private constructor(backend: Backend, origin: Origin) {
    this.#backend = backend;
    this.#origin = origin;
  }

  /** Architecture, sizes and other properties of the model. */
  get info(): ModelInfo {
    return this.#backend.info;
  }

  /** The metadata in its file, except for long lists. */
  get metadata(): Metadata {
    return this.#backend.metadata;
  }

  /**
   * Loads a GGUF file, a split GGUF file, or a Hugging Face folder (`config.json`, safetensors, `tokenizer.json`). If
   * the server supports range requests, weights are read in ranges, never as a whole file; they are stored for later
   * visits and uploaded to the device as they arrive. In a page the model runs in a worker, unless `worker` is false or
   * the browser refuses the worker's script, which the console reports.
   */
  static async load(from: ModelSource, options: LLMOptions = {}): Promise<LLM> {
    return new LLM(await loadBackend(from, options), { from: hold(from), options, adapter: null, trained: {} });
  }

  /** The model; loaded again if it was lost, in one attempt for all who wait. */
  async #live(signal: AbortSignal | undefined): Promise<Backend> {
    if (this.#disposed || !(this.#lost || this.#backend.ended)) return this.#backend;
    const restore = async (): Promise<Backend> => {
      this.#lost = true;
      this.#backend.dispose();
      const { reload } = await loadChunk("reload", () => import("./llm/reload.js"));
      const model = await reload(this.#origin, loadBackend);
      this.#backend = model;
      this.#lost = false;
      if (this.#disposed) model.dispose();
      return model;
    };
    return guardAsync(() => (this.#reloading ??= restore().finally(() => (this.#reloading = undefined))), signal);
  }

  /** Notes whether an error of a request is the loss of the model. */
  #note(error: unknown, backend: Backend): unknown {
    if (backend === this.#backend && (isLost(error) || error instanceof InternalError)) this.#lost = true;
    return error;
  }

  async #request<T>(body: (backend: Backend) => Promise<T>, signal?: AbortSignal): Promise<T> {
    const backend = await this.#live(signal);
    return body(backend).catch((error: unknown) => {
      throw this.#note(error, backend);
    });
  }

  /** Statistics of the last request, or of the current one so far. */
  get stats(): Generated {
    return this.#stats;
  }

  async *#run(job: Omit<Job, "options">, { signal, ...options }: AnswerOptions): AsyncGenerator<Step, void> {
    const backend = await this.#live(signal);
    try {
      for await (const step of backend.run({ ...job, options }, signal)) {
        this.#stats = step.stats;
        yield step;
      }
    } catch (error) {
      throw this.#note(error, backend);
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
    return this.#request((backend) => backend.embed(text, signal), signal);
  }

  /**
   * Switches to the adapter of this name, or to none. Nothing is recompiled, but earlier text has to be processed
   * again. Waits until the current request is done.
   */
  async useAdapter(name: string | null): Promise<void> {
    await this.#request((backend) => backend.useAdapter(name));
    this.#origin.adapter = name;
  }

  /**
   * Trains a low-rank adapter (LoRA) on texts or chats with AdamW; the weights stay as they are. Returns the adapter's
   * files; `useAdapter` activates it. Waits until the current request is done.
   */
  async finetune(texts: readonly Lesson[], options: FinetuneOptions = {}): Promise<Finetuned> {
    const result = await this.#request((backend) => backend.finetune(texts, options), options.signal);
    const { name, file, config } = result;
    this.#origin.trained[name] = { from: file, config };
    if (!this.info.adapters.includes(result.name)) (this.info.adapters as string[]).push(result.name);
    return result;
  }

  /** Frees the model and ends its worker; pending requests fail with `E_STATE`. */
  dispose(): void {
    this.#disposed = true;
    this.#backend.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
