// Tokenizers: text to tokens and back.
import type { RawTokenizer } from "./pkg/gradloom_text.js";
import { StateError, guard } from "./errors.js";
import { textModule } from "./extras.js";
import { reading } from "./lazy.js";
import { type FetchOptions, type FileSource, readSource } from "./progress.js";

/** The tokens of a text, or of two. */
export interface Encoding {
  ids: number[];
  /** 0 for tokens of the first text, 1 for those of the second, where the model tells them apart. */
  typeIds: number[];
}

/** How a text becomes tokens. */
export interface EncodeOptions {
  /** A second text, for models that compare two. */
  pair?: string;
  /** False leaves out the tokens that the model expects around a text. */
  special?: boolean;
}

/** BPE, WordPiece, Unigram or WordLevel, as a tokenizer.json or a GGUF file describes it. */
export class Tokenizer {
  #raw: RawTokenizer | undefined;

  private constructor(raw: RawTokenizer) {
    this.#raw = raw;
  }

  /** Reads a tokenizer.json, or a GGUF file's metadata. */
  static async load(from: FileSource, options: FetchOptions = {}): Promise<Tokenizer> {
    return Tokenizer.#of(readSource(from, options), from);
  }

  /** The same from bytes or text at hand. */
  static fromJson(json: Uint8Array | string): Promise<Tokenizer> {
    return Tokenizer.#of(typeof json === "string" ? new TextEncoder().encode(json) : json);
  }

  static async #of(file: Uint8Array | Promise<Uint8Array>, from?: FileSource): Promise<Tokenizer> {
    const [bytes, { RawTokenizer: Raw }] = await Promise.all([file, textModule()]);
    return reading("tokenizer", from, bytes, () => new Tokenizer(guard(() => new Raw(bytes))));
  }

  get #live(): RawTokenizer {
    if (!this.#raw) throw new StateError("E_STATE", "this tokenizer was disposed");
    return this.#raw;
  }

  /** Tokens of a text, with the special tokens that the model expects around it. */
  encode(text: string, options: EncodeOptions = {}): number[] {
    return this.encodeTyped(text, options).ids;
  }

  /** The same with the text that each token is of. */
  encodeTyped(text: string, { pair, special = true }: EncodeOptions = {}): Encoding {
    const both = Array.from(guard(() => this.#live.encode(text, pair, special)));
    return { ids: both.slice(0, both.length / 2), typeIds: both.slice(both.length / 2) };
  }

  /** The text of tokens; special ones are left out unless told otherwise. */
  decode(ids: Iterable<number>, { skipSpecial = true }: { skipSpecial?: boolean } = {}): string {
    return guard(() => this.#live.decode(Uint32Array.from(ids), skipSpecial));
  }

  /** The number of a token as the vocabulary writes it. */
  id(token: string): number | undefined {
    return this.#live.id(token);
  }

  /** The token of a number. */
  token(id: number): string | undefined {
    return this.#live.token(id);
  }

  /** How many tokens there are. */
  get size(): number {
    return this.#live.size();
  }

  /** Cuts texts to so many tokens, special ones included; undefined leaves them whole. */
  setMaxLength(tokens: number | undefined): void {
    this.#live.setMaxLength(tokens ?? 0);
  }

  /** Frees its memory. */
  dispose(): void {
    this.#raw?.free();
    this.#raw = undefined;
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
