// Encoders: vectors of texts, and how relevant documents are for a query. Exported by `gradloom/llm`.
import { loadChunk } from "./chunks.js";
import { ValueError } from "./errors.js";
import type { Device, DeviceKind } from "./device.js";
import { type HeldSource, KeptModel, hold } from "./llm/kept.js";
import type { Metadata, ModelSource, ModelTokenizer } from "./llm/options.js";
import { loadAnywhere, loadInWorker } from "./llm/remote.js";
import type { FetchOptions } from "./progress.js";

/** Options of `Encoder.load`. */
export interface EncoderOptions extends FetchOptions {
  /** The device to run on, as for `LLM.load`. */
  device?: DeviceKind | "auto" | Device;
  /** The most tokens of a text. Default: what the model was trained for, but at most 2048. */
  context?: number;
  /** False runs the model in the caller's thread, as for `LLM.load`. */
  worker?: boolean;
}

/** Properties of an encoder. */
export interface EncoderInfo {
  /** The architecture by its name in GGUF, e.g. `bert`. */
  architecture: string;
  /** The most tokens of a text, and what the model was trained for. */
  context: number;
  trainedContext: number;
  /** Number of tokens in the vocabulary. */
  vocabulary: number;
  layers: number;
  /** Elements of a hidden state, and of an embedding. */
  width: number;
  /** The number of scores of the classification head; 0 for models without one, which give embeddings. */
  labels: number;
  /** Bytes of its weights in the file. */
  bytes: number;
  /** The device and the number of threads. */
  device: DeviceKind;
  threads: number;
  hasTokenizer: boolean;
}

/** A document that was compared with a query. */
export interface Ranked {
  /** Its index in the list of documents. */
  index: number;
  /** The model's score, without bounds, and the same as a relevance from 0 to 1. */
  score: number;
  relevance: number;
}

/** A text, or its tokens, with the special ones that the model expects. */
export type EncoderText = string | readonly number[];

/** An encoder in this thread or in a worker. */
export interface EncoderBackend {
  readonly info: EncoderInfo;
  readonly metadata: Metadata;
  /** Whether its worker has ended. */
  readonly ended?: boolean;
  vectors(texts: readonly EncoderText[], signal: AbortSignal | undefined): Promise<Float32Array[]>;
  scores(query: string, documents: readonly string[], signal: AbortSignal | undefined): Promise<Float32Array>;
  encode(text: string, special: boolean): Promise<number[]>;
  decode(ids: readonly number[], skipSpecial: boolean): Promise<string>;
  dispose(): void;
}

const newWorker = (): Worker => new Worker(new URL("./encoder-worker.js", import.meta.url), { type: "module" });

/** Loads a model in a worker; null if the browser refuses the worker. */
async function loadRemoteEncoder(from: ModelSource, options: EncoderOptions): Promise<EncoderBackend | null> {
  const model = await loadInWorker<EncoderInfo>(newWorker, "encoder", from, options);
  if (!model) return null;
  const { client } = model;
  // the getter `ended` is not copied by spreading
  return Object.assign(model, {
    vectors: (texts: readonly EncoderText[], signal: AbortSignal | undefined) => client.call<Float32Array[]>("vectors", texts, { signal }),
    scores: (query: string, documents: readonly string[], signal: AbortSignal | undefined) =>
      client.call<Float32Array>("scores", { query, documents }, { signal }),
  });
}

const loadBackend = (from: ModelSource, options: EncoderOptions): Promise<EncoderBackend> =>
  loadAnywhere("encoder", options, () => loadRemoteEncoder(from, options), async () => {
    // a separate module, which pages with a worker do not load
    const { loadLocalEncoder } = await loadChunk("encoder", () => import("./llm/local-encoder.js"));
    return loadLocalEncoder(from, options);
  });

/**
 * A model that reads a text as a whole: BERT, RoBERTa, XLM-R, MPNet, Nomic BERT. It gives either vectors of texts,
 * or scores of pairs of them (a cross-encoder). Texts are run several at once; requests one at a time. If its worker or
 * its device is lost, requests in progress fail with `E_DEVICE_LOST`, and the next one loads the model again.
 */
export class Encoder {
  readonly #model: KeptModel<EncoderBackend>;
  /** The model's tokenizer. */
  readonly tokenizer: ModelTokenizer;

  private constructor(backend: EncoderBackend, from: HeldSource, options: EncoderOptions) {
    this.#model = new KeptModel(backend, ({ reload }) => reload(from, options, loadBackend));
    this.tokenizer = this.#model.tokenizer;
  }

  /** Architecture, sizes and other properties of the model. */
  get info(): EncoderInfo {
    return this.#model.last.info;
  }

  /** The metadata in its file, except for long lists. */
  get metadata(): Metadata {
    return this.#model.last.metadata;
  }

  /**
   * Loads a GGUF file, or a Hugging Face folder, whose files of sentence-transformers (`modules.json`) say how states
   * become a vector. Everything else is as for `LLM.load`.
   */
  static async load(from: ModelSource, options: EncoderOptions = {}): Promise<Encoder> {
    return new Encoder(await loadBackend(from, options), hold(from), options);
  }

  /**
   * The vector of a text, or those of several, pooled and normalised as the model's files say. Fails with
   * `E_UNSUPPORTED` for a cross-encoder, and with `E_VALUE` for a text that is empty or has more tokens than `context`.
   */
  embed(text: string, options?: { signal?: AbortSignal }): Promise<Float32Array>;
  embed(texts: readonly EncoderText[], options?: { signal?: AbortSignal }): Promise<Float32Array[]>;
  async embed(texts: string | readonly EncoderText[], { signal }: { signal?: AbortSignal } = {}): Promise<Float32Array | Float32Array[]> {
    const list = typeof texts === "string" ? [texts] : texts;
    const vectors = await this.#model.request((model) => model.vectors(list, signal), signal);
    return typeof texts === "string" ? (vectors[0] as Float32Array) : vectors;
  }

  /**
   * Orders documents by how relevant they are for a query, the most relevant first, at most `top` of them. Documents
   * that are too long are cut. Fails with `E_UNSUPPORTED` for a model that is no cross-encoder with one score.
   */
  async rerank(query: string, documents: readonly string[], options: { top?: number; signal?: AbortSignal } = {}): Promise<Ranked[]> {
    const { top = documents.length, signal } = options;
    if (!Number.isInteger(top) || top < 0) throw new ValueError("E_VALUE", `rerank: \`top\` is ${top}`);
    const scores = await this.#model.request((model) => model.scores(query, documents, signal), signal);
    const ranked = Array.from(scores, (score, index): Ranked => ({ index, score, relevance: 1 / (1 + Math.exp(-score)) }));
    return ranked.sort((a, b) => b.score - a.score || a.index - b.index).slice(0, top);
  }

  /** Frees the model and ends its worker; pending requests fail with `E_STATE`. */
  dispose(): void {
    this.#model.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
