// Encoders: vectors of texts, and how relevant documents are for a query. Exported by `gradloom/llm`.
import { loadChunk } from "./chunks.js";
import { ValueError, missing } from "./errors.js";
import type { Device, DeviceKind } from "./device.js";
import { absoluteSource } from "./llm/remote.js";
import type { Metadata, ModelSource } from "./llm/options.js";
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
  vectors(texts: readonly EncoderText[], signal: AbortSignal | undefined): Promise<Float32Array[]>;
  scores(query: string, documents: readonly string[], signal: AbortSignal | undefined): Promise<Float32Array>;
  encode(text: string, special: boolean): Promise<number[]>;
  decode(ids: readonly number[], skipSpecial: boolean): Promise<string>;
  dispose(): void;
}

/** Loads a model in this thread. Its code is a separate module, which pages with a worker do not load. */
async function localEncoder(from: ModelSource, options: EncoderOptions): Promise<EncoderBackend> {
  return (await loadChunk("encoder", () => import("./llm/local-encoder.js"))).loadLocalEncoder(from, options);
}

/** Loads a model in a worker; null if the browser refuses the worker. */
async function remoteEncoder(from: ModelSource, options: EncoderOptions): Promise<EncoderBackend | null> {
  return (await import("./encoder-remote.js").catch(missing)).loadRemoteEncoder(absoluteSource(from), options);
}

/**
 * A model that reads a text as a whole: BERT, RoBERTa, XLM-R, MPNet, Nomic BERT. It gives either vectors of texts,
 * or scores of pairs of them (a cross-encoder). Texts are run several at once; requests one at a time.
 */
export class Encoder {
  readonly #backend: EncoderBackend;
  /** Architecture, sizes and other properties of the model. */
  readonly info: EncoderInfo;
  /** The metadata in its file, except for long lists. */
  readonly metadata: Metadata;
  /** The model's tokenizer, as that of `LLM`. */
  readonly tokenizer: {
    encode(text: string, options?: { special?: boolean }): Promise<number[]>;
    decode(ids: readonly number[], options?: { skipSpecial?: boolean }): Promise<string>;
  };

  private constructor(backend: EncoderBackend) {
    this.#backend = backend;
    this.info = backend.info;
    this.metadata = backend.metadata;
    this.tokenizer = {
      encode: (text, { special = true } = {}) => backend.encode(text, special),
      decode: (ids, { skipSpecial = true } = {}) => backend.decode(ids, skipSpecial),
    };
  }

  /**
   * Loads a GGUF file, or a Hugging Face folder, whose files of sentence-transformers (`modules.json`) say how states
   * become a vector. Everything else is as for `LLM.load`.
   */
  static async load(from: ModelSource, options: EncoderOptions = {}): Promise<Encoder> {
    const { worker = true } = options;
    const isPage = typeof document !== "undefined" && typeof Worker !== "undefined";
    // options that cannot be posted to a worker keep the model in this thread
    const isLocal = !worker || !isPage || options.fetch !== undefined || typeof options.device === "object";
    if (isLocal) return new Encoder(await localEncoder(from, options));
    options.signal?.throwIfAborted();
    const remote = await remoteEncoder(from, options);
    if (!remote) console.warn("gradloom: the encoder runs on the page's own thread, because its worker did not start");
    return new Encoder(remote ?? (await localEncoder(from, options)));
  }

  /**
   * The vector of a text, or those of several, pooled and normalised as the model's files say. Fails with
   * `E_UNSUPPORTED` for a cross-encoder, and with `E_VALUE` for a text that is empty or has more tokens than `context`.
   */
  embed(text: string, options?: { signal?: AbortSignal }): Promise<Float32Array>;
  embed(texts: readonly EncoderText[], options?: { signal?: AbortSignal }): Promise<Float32Array[]>;
  async embed(texts: string | readonly EncoderText[], { signal }: { signal?: AbortSignal } = {}): Promise<Float32Array | Float32Array[]> {
    if (typeof texts !== "string") return this.#backend.vectors(texts, signal);
    return (await this.#backend.vectors([texts], signal))[0] as Float32Array;
  }

  /**
   * Orders documents by how relevant they are for a query, the most relevant first, at most `top` of them. Documents
   * that are too long are cut. Fails with `E_UNSUPPORTED` for a model that is no cross-encoder with one score.
   */
  async rerank(query: string, documents: readonly string[], options: { top?: number; signal?: AbortSignal } = {}): Promise<Ranked[]> {
    const { top = documents.length, signal } = options;
    if (!Number.isInteger(top) || top < 0) throw new ValueError("E_VALUE", `rerank: \`top\` is ${top}`);
    const scores = await this.#backend.scores(query, documents, signal);
    const ranked = Array.from(scores, (score, index): Ranked => ({ index, score, relevance: 1 / (1 + Math.exp(-score)) }));
    return ranked.sort((a, b) => b.score - a.score || a.index - b.index).slice(0, top);
  }

  /** Frees the model and ends its worker; pending requests fail with `E_STATE`. */
  dispose(): void {
    this.#backend.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
