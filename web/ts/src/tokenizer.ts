// Tokenizers: text to tokens and back.
import type { RawTokenizer } from "./pkg/gradloom_text.js";
import { StateError, guard } from "./errors.js";
import { textModule } from "./extras.js";
import { readHeader } from "./files.js";
import type { FetchOptions, FileSource } from "./progress.js";

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

/** The tokens of several texts, filled to the length of the longest: inputs of a model as they are. */
export interface BatchEncoding {
  /** `[texts, tokens]` */
  ids: number[][];
  typeIds: number[][];
  /** 1 for tokens, 0 for what is filled. */
  mask: number[][];
}

/** Tokens that end a text, as the models of our time write them. */
const ENDS = [
  "</s>", "<eos>", "<|endoftext|>", "<|end_of_text|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|return|>", "<end_of_turn>",
  "<|END_OF_TURN_TOKEN|>", "<｜end▁of▁sentence｜>",
];
const PADS = ["[PAD]", "<pad>", "<|pad|>", "<|finetune_right_pad_id|>"];

/** BPE, WordPiece, Unigram or WordLevel, as a tokenizer.json or a GGUF file describes it. */
export class Tokenizer {
  #raw: RawTokenizer | undefined;

  private constructor(raw: RawTokenizer) {
    this.#raw = raw;
  }

  /** Reads a tokenizer.json, or the metadata of a GGUF file, of which no more is read where its name ends in `.gguf`. */
  static async load(from: FileSource, options: FetchOptions = {}): Promise<Tokenizer> {
    const { RawTokenizer: Raw } = await textModule();
    return readHeader("tokenizer", from, options, (bytes) => new Tokenizer(guard(() => new Raw(bytes))));
  }

  /** The same from bytes or text at hand. */
  static async fromJson(json: Uint8Array | string): Promise<Tokenizer> {
    return Tokenizer.load(typeof json === "string" ? new TextEncoder().encode(json) : json);
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

  /** The tokens of several texts. `pad` is the token that fills the short ones: the vocabulary's own, or 0 if it has none. */
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

  /** Text as its tokens come: of a character that several tokens make, nothing before it is whole. */
  stream(options: { skipSpecial?: boolean } = {}): TextStream {
    return new TextStream((ids) => this.decode(ids, options));
  }

  /** Tokens after which a model has finished, by the names that models give them. A model's own configuration may name others. */
  get eosIds(): number[] {
    return ENDS.flatMap((token) => this.id(token) ?? []);
  }

  #first(tokens: readonly string[]): number | undefined {
    return tokens.map((token) => this.id(token)).find((id) => id !== undefined);
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

/** Gives text as its tokens come. */
export class TextStream {
  readonly #decode: (ids: readonly number[]) => string;
  /** Tokens of the text's end: those before `#done` are known, and say how the others begin. */
  #ids: number[] = [];
  #done = 0;

  /** @internal */
  constructor(decode: (ids: readonly number[]) => string) {
    this.#decode = decode;
  }

  /** The text that tokens add; empty where a character is not whole. */
  push(...ids: readonly number[]): string {
    this.#ids.push(...ids);
    const text = this.#added();
    // the mark of bytes that are no character yet
    if (text.endsWith("\ufffd")) return "";
    // tokens that give no text do not say how the next one begins
    if (text !== "") this.#ids.splice(0, this.#done);
    this.#done = this.#ids.length;
    return text;
  }

  /** What is left, broken or not. The stream begins anew. */
  end(): string {
    const text = this.#added();
    this.#ids = [];
    this.#done = 0;
    return text;
  }

  /** What the new tokens add to the known ones: a token's text may depend on those before it. */
  #added(): string {
    return this.#decode(this.#ids).slice(this.#decode(this.#ids.slice(0, this.#done)).length);
  }
}
