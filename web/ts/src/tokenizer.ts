// Tokenizers: convert text to tokens and back.
import type { RawTokenizer } from "./pkg/gradloom_text.js";
import { StateError, ValueError, guard } from "./errors.js";
import { textModule } from "./lazy-wasm.js";
import { readHeader } from "./files.js";
import type { FetchOptions, FileSource } from "./progress.js";

/** The tokens of a text, or of a pair of texts. */
export interface Encoding {
  ids: number[];
  /** 0 for tokens of the first text, 1 for those of the second, if the model distinguishes them. */
  typeIds: number[];
}

/** Tokens that say where in the texts they are. */
export interface OffsetEncoding extends Encoding {
  /**
   * For each token the range of its text, as `text.slice(start, end)` takes it; `[0, 0]` for special tokens around the
   * texts. They are those of Hugging Face's tokenizers, in UTF-16 units.
   */
  offsets: [start: number, end: number][];
  /** For each token the text that it is from, 0 or 1; null for special tokens around the texts. */
  sequenceIds: (0 | 1 | null)[];
}

const STRATEGIES = ["longest_first", "only_first", "only_second"] as const;
const SIDES = ["right", "left"] as const;

/** Options of `encode`. */
export interface EncodeOptions {
  /** A second text, for models that compare pairs. */
  pair?: string;
  /** False omits the special tokens that the model expects around a text. */
  special?: boolean;
  /** At most so many tokens, special ones included. Default: that of `setMaxLength`, or of the tokenizer's file. */
  maxLength?: number;
  /** Which text loses tokens if both are too long together, and on which side. Defaults: the file's, or the first ones. */
  truncation?: (typeof STRATEGIES)[number];
  truncationSide?: (typeof SIDES)[number];
}

/** Options of `encodeWindows`. */
export interface WindowOptions extends EncodeOptions {
  /** How many tokens a window shares with the one before. Default: 0. */
  stride?: number;
}

/** Options of `encodeBatch`. */
export interface BatchOptions extends Omit<WindowOptions, "pair"> {
  /** The token that pads short texts. Default: the vocabulary's own padding token, or 0 if it has none. */
  pad?: number;
  /** The length of the rows. Default: that of the longest. */
  length?: number;
  /** The side on which rows are padded: `left` for models that continue texts. Default: `right`. */
  paddingSide?: (typeof SIDES)[number];
}

/** The tokens of several texts, padded to one length, in the form of a model's inputs. */
export interface BatchEncoding {
  /** `[rows, tokens]`; a text is one row, or with a `stride` a row for each of its windows. */
  ids: number[][];
  typeIds: number[][];
  /** 1 for tokens, 0 for padding. */
  mask: number[][];
}

/** Rows with offsets, and for each row the index of its text. */
export interface BatchWindows extends BatchEncoding {
  offsets: OffsetEncoding["offsets"][];
  sequenceIds: OffsetEncoding["sequenceIds"][];
  textIndices: number[];
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

  /** Like `encode`, with the index of the text that each token belongs to, and with `offsets` where in it they are. */
  encodeTyped(text: string, options: EncodeOptions & { offsets: true }): OffsetEncoding;
  encodeTyped(text: string, options?: EncodeOptions & { offsets?: boolean }): Encoding;
  encodeTyped(text: string, options: EncodeOptions & { offsets?: boolean } = {}): Encoding {
    const { ids, typeIds, ...where } = this.#windows(text, options)[0] as OffsetEncoding;
    return { ids, typeIds, ...(options.offsets && where) };
  }

  /**
   * Encodes a text that may be too long in windows of at most `maxLength` tokens, of which each shares `stride` tokens
   * with the one before; with a `pair` and `truncation: "only_second"`, each has the whole first text, as question
   * answering does. `E_VALUE` if a text that may not be truncated leaves no room for the other one.
   */
  encodeWindows(text: string, options: WindowOptions = {}): OffsetEncoding[] {
    return this.#windows(text, { stride: 0, ...options });
  }

  #windows(text: string, options: WindowOptions & { offsets?: boolean | undefined }): OffsetEncoding[] {
    const { pair, special = true, maxLength, truncation, truncationSide, stride, offsets = stride !== undefined } = options;
    const numbers = [maxLength ?? 0, stride ?? 0];
    const choices = [STRATEGIES.indexOf(truncation as "only_first"), SIDES.indexOf(truncationSide as "left")];
    if (numbers.some((n) => !Number.isInteger(n) || n < 0) || maxLength === 0) throw new ValueError("E_VALUE", `encode: ${String(numbers)} tokens`);
    const how = Uint32Array.of(numbers[0] as number, ...choices, Number(offsets), ...(stride === undefined ? [] : [stride]));
    const packed = guard(() => this.#live.windows(text, pair, special, how));
    const windows: OffsetEncoding[] = [];
    for (let at = 0; at < packed.length; ) {
      const n = packed[at++] as number;
      const list = (): number[] => [...packed.subarray(at, (at += n))];
      const [ids, typeIds, sequences, starts, ends] = [list(), list(), list(), list(), list()];
      const sequenceIds = sequences.map((s) => (s > 1 ? null : s) as 0 | 1 | null);
      windows.push({ ids, typeIds, offsets: starts.map((start, i) => [start, ends[i] as number]), sequenceIds });
    }
    return windows;
  }

  /** The text of tokens; special tokens are left out unless `skipSpecial` is false. */
  decode(ids: Iterable<number>, { skipSpecial = true }: { skipSpecial?: boolean } = {}): string {
    return guard(() => this.#live.decode(Uint32Array.from(ids), skipSpecial));
  }

  /**
   * Encodes several texts, or pairs of texts. With a `stride`, texts that are too long have several rows, and the result
   * says of which text each row is and where its tokens are.
   */
  encodeBatch(texts: readonly (string | readonly [string, string])[], options: BatchOptions & { stride: number }): BatchWindows;
  encodeBatch(texts: readonly (string | readonly [string, string])[], options?: BatchOptions): BatchEncoding;
  encodeBatch(texts: readonly (string | readonly [string, string])[], options: BatchOptions = {}): BatchEncoding {
    const { pad = this.#first(PADS) ?? 0, length: wanted = 0, paddingSide, ...how } = options;
    const rows = texts.flatMap((each, index) => {
      const [text, pair] = typeof each === "string" ? [each] : each;
      return this.#windows(text, pair === undefined ? how : { ...how, pair }).map((row) => ({ ...row, index }));
    });
    const length = rows.reduce((most, { ids }) => Math.max(most, ids.length), wanted);
    const column = <T>(of: (row: (typeof rows)[number]) => T[], by: T): T[][] =>
      rows.map((row) => {
        const list = of(row);
        const padding = new Array<T>(length - list.length).fill(by);
        return paddingSide === "left" ? [...padding, ...list] : [...list, ...padding];
      });
    return {
      ids: column(({ ids }) => ids, pad),
      typeIds: column(({ typeIds }) => typeIds, 0),
      mask: column(({ ids }) => ids.map(() => 1), 0),
      ...(how.stride !== undefined && {
        offsets: column(({ offsets }) => offsets, [0, 0]),
        sequenceIds: column(({ sequenceIds }) => sequenceIds, null),
        textIndices: rows.map(({ index }) => index),
      }),
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
