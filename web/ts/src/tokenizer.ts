// Tokenizers: convert text to tokens and back.
import type { RawTokenizer } from "./pkg/gradloom_text.js";
import { StateError, guard } from "./errors.js";
import { textModule } from "./lazy-wasm.js";
import { readHeader } from "./files.js";
import type { FetchOptions, FileSource } from "./progress.js";

/** The tokens of a text, or of a pair of texts. */
export interface Encoding {
  ids: number[];
  /** 0 for tokens of the first text, 1 for those of the second, if the model distinguishes them. */
  typeIds: number[];
}

/** Options of `encode`. */
export interface EncodeOptions {
  /** A second text, for models that compare pairs. */
  pair?: string;
  /** False omits the special tokens that the model expects around a text. */
  special?: boolean;
}

/** The tokens of several texts, padded to the length of the longest, in the form of a model's inputs. */
export interface BatchEncoding {
  /** `[texts, tokens]` */
  ids: number[][];
  typeIds: number[][];
  /** 1 for tokens, 0 for padding. */
  mask: number[][];
}

/** End-of-text tokens of common models. */
const ENDS = [
  "</s>", "<eos>", "<|endoftext|>", "<|end_of_text|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|return|>", "<end_of_turn>",
  "<|END_OF_TURN_TOKEN|>", "<｜end▁of▁sentence｜>",
];
const PADS = ["[PAD]", "<pad>", "<|pad|>", "<|finetune_right_pad_id|>"];

/** A BPE, WordPiece, Unigram or WordLevel tokenizer, as described by a tokenizer.json or a GGUF file. */
export class Tokenizer {
  #raw: RawTokenizer | undefined;

  private constructor(raw: RawTokenizer) {
    this.#raw = raw;
  }

  /**
   * Reads a tokenizer.json, or the metadata of a GGUF file; if the name ends in `.gguf`, only the metadata is
   * downloaded.
   */
  static async load(from: FileSource, options: FetchOptions = {}): Promise<Tokenizer> {
    const { RawTokenizer: Raw } = await textModule();
    return readHeader("tokenizer", from, options, (bytes) => new Tokenizer(guard(() => new Raw(bytes))));
  }

  /** Reads a tokenizer.json from bytes or text. */
  static async fromJson(json: Uint8Array | string): Promise<Tokenizer> {
    return Tokenizer.load(typeof json === "string" ? new TextEncoder().encode(json) : json);
  }

  get #live(): RawTokenizer {
    if (!this.#raw) throw new StateError("E_STATE", "this tokenizer was disposed");
    return this.#raw;
  }

  /** The tokens of a text, including the special tokens that the model expects around it. */
  encode(text: string, options: EncodeOptions = {}): number[] {
    return this.encodeTyped(text, options).ids;
  }

  /** Like `encode`, with the index of the text that each token belongs to. */
  encodeTyped(text: string, { pair, special = true }: EncodeOptions = {}): Encoding {
    const both = Array.from(guard(() => this.#live.encode(text, pair, special)));
    return { ids: both.slice(0, both.length / 2), typeIds: both.slice(both.length / 2) };
  }

  /** The text of tokens; special tokens are left out unless `skipSpecial` is false. */
  decode(ids: Iterable<number>, { skipSpecial = true }: { skipSpecial?: boolean } = {}): string {
    return guard(() => this.#live.decode(Uint32Array.from(ids), skipSpecial));
  }

  /**
   * Encodes several texts. `pad` is the token that pads short ones; default: the vocabulary's own padding token, or 0
   * if it has none.
   */
  encodeBatch(texts: readonly string[], options: Omit<EncodeOptions, "pair"> & { pad?: number } = {}): BatchEncoding {
    const { pad = this.#first(PADS) ?? 0, ...how } = options;
    const all = texts.map((text) => this.encodeTyped(text, how));
    const length = Math.max(0, ...all.map(({ ids }) => ids.length));
    const filled = (list: readonly number[], by: number): number[] => [...list, ...new Array<number>(length - list.length).fill(by)];
    return {
      ids: all.map(({ ids }) => filled(ids, pad)),
      typeIds: all.map(({ typeIds }) => filled(typeIds, 0)),
      mask: all.map(({ ids }) => filled(ids.map(() => 1), 0)),
    };
  }

  /**
   * Decodes tokens incrementally: text of a character that spans several tokens is emitted once the character is
   * complete.
   */
  stream(options: { skipSpecial?: boolean } = {}): TextStream {
    return new TextStream((ids) => this.decode(ids, options));
  }

  /** Tokens that end a text, found by their usual names. A model's own configuration may list others. */
  get eosIds(): number[] {
    return ENDS.flatMap((token) => this.id(token) ?? []);
  }

  #first(tokens: readonly string[]): number | undefined {
    return tokens.map((token) => this.id(token)).find((id) => id !== undefined);
  }

  /** The id of a token, spelled as in the vocabulary. */
  id(token: string): number | undefined {
    return this.#live.id(token);
  }

  /** The token of an id, spelled as in the vocabulary. */
  token(id: number): string | undefined {
    return this.#live.token(id);
  }

  /** The size of the vocabulary. */
  get size(): number {
    return this.#live.size();
  }

  /** Truncates texts to this many tokens, special ones included; undefined disables truncation. */
  setMaxLength(tokens: number | undefined): void {
    this.#live.setMaxLength(tokens ?? 0);
  }

  /** Frees the tokenizer's memory in the wasm module. */
  dispose(): void {
    this.#raw?.free();
    this.#raw = undefined;
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** Decodes a stream of tokens incrementally. */
export class TextStream {
  readonly #decode: (ids: readonly number[]) => string;
  /**
   * The last tokens of the text. The first `#done` of them are already emitted and kept as context for decoding the
   * others.
   */
  #ids: number[] = [];
  #done = 0;

  /** @internal */
  constructor(decode: (ids: readonly number[]) => string) {
    this.#decode = decode;
  }

  /** Adds tokens and returns the text that they complete; empty while a character is incomplete. */
  push(...ids: readonly number[]): string {
    this.#ids.push(...ids);
    const text = this.#added();
    // the replacement character marks bytes that do not form a character yet
    if (text.endsWith("\ufffd")) return "";
    // tokens without text give no context for the next one, so keep the older ones
    if (text !== "") this.#ids.splice(0, this.#done);
    this.#done = this.#ids.length;
    return text;
  }

  /** Returns the remaining text, even if its last character is incomplete, and resets the stream. */
  end(): string {
    const text = this.#added();
    this.#ids = [];
    this.#done = 0;
    return text;
  }

  /**
   * The text that the new tokens add: decoded with and without them, as a token's text may depend on the tokens before
   * it.
   */
  #added(): string {
    return this.#decode(this.#ids).slice(this.#decode(this.#ids.slice(0, this.#done)).length);
  }
}
