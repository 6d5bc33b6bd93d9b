// Language models and encoders: the entry `gradloom/llm`.
import "./page-chunks.js";
import type { ChatMessage } from "./chat.js";
import { loadChunk } from "./chunks.js";
import type {
  AnswerOptions, Backend, Finetuned, FinetuneOptions, GenerateOptions, Generated, Job, LLMOptions, Lesson, Metadata, ModelInfo, ModelSource,
  ModelTokenizer, Step,
} from "./llm/options.js";
import type { GgufFile } from "./llm/gguf-file.js";
import { KeptModel, hold } from "./llm/kept.js";
import type { Origin } from "./llm/reload.js";
import { loadAnywhere, loadRemote } from "./llm/remote.js";
import type { FetchOptions, FileSource } from "./progress.js";

export type { ChatMessage } from "./chat.js";
export { Encoder, type EncoderInfo, type EncoderOptions, type EncoderText, type Ranked } from "./encoder.js";
export type { GgufFile, GgufTensor, GgufValue } from "./llm/gguf-file.js";
export type {
  AdapterSource, AnswerOptions, End, Finetuned, FinetuneOptions, GenerateOptions, Generated, LLMOptions, Lesson, MetaValue, Metadata, ModelInfo,
  ModelSource, ModelTokenizer, ToolCall,
} from "./llm/options.js";

/**
 * Opens a GGUF file by its header: metadata, the list of tensors, tokenizer and chat template. Of a server with ranges only
 * the header is fetched, once. Fails with `E_FORMAT` for another or a malformed file, and with `E_FETCH`.
 */
export async function openGguf(from: FileSource, options: FetchOptions = {}): Promise<GgufFile> {
  return (await loadChunk("ggufFile", () => import("./llm/gguf-file.js"))).openGguf(from, options);
}

const EMPTY_STATS: Generated = { promptTokens: 0, reusedTokens: 0, tokens: 0, firstTokenMs: 0, tokensPerSecond: 0, end: undefined, calls: [] };

const newWorker = (): Worker => new Worker(new URL("./llm-worker.js", import.meta.url), { type: "module" });

const loadBackend = (from: ModelSource, options: LLMOptions): Promise<Backend> =>
  loadAnywhere("language model", options, () => loadRemote(newWorker, from, options), async () => {
    // a separate module, which pages with a worker do not load
    const { loadLocal } = await loadChunk("languageModel", () => import("./llm/local.js"));
    return loadLocal(from, options);
  });

/**
 * A language model. Requests are processed one at a time; the prefix that a prompt shares with the previous text is not
 * computed again. If its worker or its device is lost, requests in progress fail with `E_DEVICE_LOST`, and the next one
 * loads the model again.
 */
export class LLM {
  readonly #model: KeptModel<Backend>;
  readonly #origin: Origin;
  #stats: Generated = EMPTY_STATS;
  /** The model's tokenizer. */
  readonly tokenizer: ModelTokenizer;

  private constructor(backend: Backend, origin: Origin) {
    this.#origin = origin;
    this.#model = new KeptModel(backend, ({ reloadAdapted }) => reloadAdapted(origin, loadBackend));
    this.tokenizer = this.#model.tokenizer;
  }

  /** Architecture, sizes and other properties of the model. */
  get info(): ModelInfo {
    return this.#model.last.info;
  }

  /** The metadata in its file, except for long lists. */
  get metadata(): Metadata {
    return this.#model.last.metadata;
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

  /** Statistics of the last request, or of the current one so far. */
  get stats(): Generated {
    return this.#stats;
  }

  async *#run(job: Omit<Job, "options">, { signal, ...options }: AnswerOptions): AsyncGenerator<Step, void> {
    const backend = await this.#model.live(signal);
    try {
      for await (const step of backend.run({ ...job, options }, signal)) {
        this.#stats = step.stats;
        yield step;
      }
    } catch (error) {
      throw this.#model.note(error, backend);
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
    return this.#model.request((backend) => backend.embed(text, signal), signal);
  }

  /**
   * Switches to the adapter of this name, or to none. Nothing is recompiled, but earlier text has to be processed
   * again. Waits until the current request is done.
   */
  async useAdapter(name: string | null): Promise<void> {
    await this.#model.request((backend) => backend.useAdapter(name));
    this.#origin.adapter = name;
  }

  /**
   * Trains a low-rank adapter (LoRA) on texts or chats with AdamW; the weights stay as they are. Returns the adapter's
   * files; `useAdapter` activates it. Waits until the current request is done.
   */
  async finetune(texts: readonly Lesson[], options: FinetuneOptions = {}): Promise<Finetuned> {
    const result = await this.#model.request((backend) => backend.finetune(texts, options), options.signal);
    const { name, file, config } = result;
    this.#origin.trained[name] = { from: file, config };
    if (!this.info.adapters.includes(result.name)) (this.info.adapters as string[]).push(result.name);
    return result;
  }

  /** Frees the model and ends its worker; pending requests fail with `E_STATE`. */
  dispose(): void {
    this.#model.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
