// Opens GGUF files by their headers: what they say of themselves, the list of their tensors, tokenizer and chat template. Follows
// the specification of GGUF (ggml, docs/gguf.md), versions 2 and 3, little-endian. The tensors' bytes are not read.
import { ChatTemplate } from "../chat.js";
import { FormatError } from "../errors.js";
import { withFormatHint } from "../files.js";
import { parseGrowingHead, withoutTensors } from "../gguf.js";
import type { FetchOptions, FileSource } from "../progress.js";
import { openRanges } from "../ranges.js";
import { Tokenizer } from "../tokenizer.js";

/** A value of a file's metadata. 64-bit integers are numbers, rounded beyond 2^53. */
export type GgufValue = string | number | boolean | readonly GgufValue[];

/** A tensor of a GGUF file. */
export interface GgufTensor {
  name: string;
  /** The name of its type in ggml: `F32`, `Q4_K` and so on; `type 99` for one that is not known here. */
  type: string;
  /** Rows first, as everywhere in this package; GGUF itself lists dimensions in the opposite order. */
  shape: readonly number[];
  /** Its size, and its place in the file, in bytes; the size is undefined for types that are not known here. */
  bytes: number | undefined;
  offset: number;
}

/** A GGUF file whose header was read. */
export interface GgufFile {
  version: number;
  /** The size of the file in bytes. */
  size: number;
  /** All of the metadata, vocabularies included. */
  metadata: Readonly<Record<string, GgufValue>>;
  tensors: readonly GgufTensor[];
  /** The tokenizer that the metadata describe; nothing is fetched again. Fails with `E_FORMAT` if there is none. */
  tokenizer(): Promise<Tokenizer>;
  /** The chat template, or undefined if there is none; nothing is fetched again. */
  template(): Promise<ChatTemplate | undefined>;
}

/** Names of ggml's types by number, with the elements and bytes of a block. */
const TYPES: Readonly<Record<number, readonly [name: string, elems: number, bytes: number]>> = {
  0: ["F32", 1, 4], 1: ["F16", 1, 2], 2: ["Q4_0", 32, 18], 3: ["Q4_1", 32, 20], 6: ["Q5_0", 32, 22], 7: ["Q5_1", 32, 24], 8: ["Q8_0", 32, 34],
  9: ["Q8_1", 32, 36], 10: ["Q2_K", 256, 84], 11: ["Q3_K", 256, 110], 12: ["Q4_K", 256, 144], 13: ["Q5_K", 256, 176], 14: ["Q6_K", 256, 210],
  15: ["Q8_K", 256, 292], 16: ["IQ2_XXS", 256, 66], 17: ["IQ2_XS", 256, 74], 18: ["IQ3_XXS", 256, 98], 19: ["IQ1_S", 256, 50],
  20: ["IQ4_NL", 32, 18], 21: ["IQ3_S", 256, 110], 22: ["IQ2_S", 256, 82], 23: ["IQ4_XS", 256, 136], 24: ["I8", 1, 1], 25: ["I16", 1, 2],
  26: ["I32", 1, 4], 27: ["I64", 1, 8], 28: ["F64", 1, 8], 29: ["IQ1_M", 256, 56], 30: ["BF16", 1, 2], 34: ["TQ1_0", 256, 54],
  35: ["TQ2_0", 256, 66], 39: ["MXFP4", 32, 17], 40: ["NVFP4", 64, 36],
};

/** How deep arrays of the metadata may lie in each other, and the most dimensions of a tensor. */
const [MAX_DEPTH, MAX_RANK] = [4, 8];
/** The alignment of tensors unless the metadata give another one. */
const ALIGNMENT = 32;

/** Reads numbers and texts one after another; fails with `E_FORMAT` at the end of what is there. */
class Cursor {
  at = 0;
  readonly #view: DataView;

  constructor(readonly bytes: Uint8Array) {
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  /** The place of the next `count` bytes, which are passed. */
  pass(count: number): number {
    const start = this.at;
    if (!(count <= this.bytes.length - start)) throw new FormatError("E_FORMAT", `gguf: the header ends at byte ${this.bytes.length}`);
    this.at += count;
    return start;
  }

  u32(): number {
    return this.#view.getUint32(this.pass(4), true);
  }

  u64(): number {
    return Number(this.#view.getBigUint64(this.pass(8), true));
  }

  /** A count of things that take at least `least` bytes each, so that no count is larger than the file. */
  count(least: number): number {
    const count = this.u64();
    if (!(count * least <= this.bytes.length)) throw new FormatError("E_FORMAT", `gguf: ${count} entries in a header of ${this.bytes.length} bytes`);
    return count;
  }

  text(): string {
    const length = this.count(1);
    const start = this.pass(length);
    return new TextDecoder().decode(this.bytes.subarray(start, start + length));
  }

  value(type: number, depth = 0): GgufValue {
    const view = this.#view;
    switch (type) {
      case 0: return view.getUint8(this.pass(1));
      case 1: return view.getInt8(this.pass(1));
      case 2: return view.getUint16(this.pass(2), true);
      case 3: return view.getInt16(this.pass(2), true);
      case 4: return this.u32();
      case 5: return view.getInt32(this.pass(4), true);
      case 6: return view.getFloat32(this.pass(4), true);
      case 7: return view.getUint8(this.pass(1)) !== 0;
      case 8: return this.text();
      case 9: return this.#list(depth);
      case 10: return this.u64();
      case 11: return Number(view.getBigInt64(this.pass(8), true));
      case 12: return view.getFloat64(this.pass(8), true);
      default: throw new FormatError("E_FORMAT", `gguf: values of the metadata have no type ${type}`);
    }
  }

  #list(depth: number): GgufValue[] {
    if (depth >= MAX_DEPTH) throw new FormatError("E_FORMAT", `gguf: arrays lie in more than ${MAX_DEPTH} arrays`);
    const type = this.u32();
    const count = this.count(1);
    const list: GgufValue[] = [];
    for (let i = 0; i < count; i += 1) list.push(this.value(type, depth + 1));
    return list;
  }
}

type Header = Pick<GgufFile, "version" | "metadata" | "tensors">;

/** Parses a header; fails with `E_FORMAT` if it is malformed or longer than what is there. */
function parseHeader(start: Uint8Array): Header {
  const cursor = new Cursor(start);
  if (cursor.u32() !== 0x46554747) throw new FormatError("E_FORMAT", "gguf: the file does not begin with GGUF");
  const version = cursor.u32();
  if (version !== 2 && version !== 3) throw new FormatError("E_FORMAT", `gguf: version ${version} is not read here, 2 and 3 are`);
  const [tensorCount, valueCount] = [cursor.u64(), cursor.u64()];
  const metadata: Record<string, GgufValue> = Object.create(null) as Record<string, GgufValue>;
  for (let i = 0; i < valueCount; i += 1) {
    const key = cursor.text();
    metadata[key] = cursor.value(cursor.u32());
  }
  const tensors: GgufTensor[] = [];
  for (let i = 0; i < tensorCount; i += 1) {
    const name = cursor.text();
    const rank = cursor.u32();
    if (rank > MAX_RANK) throw new FormatError("E_FORMAT", `gguf: ${name} has ${rank} dimensions`);
    const shape = Array.from({ length: rank }, () => cursor.u64()).reverse();
    const number = cursor.u32();
    const [type, elems, bytes] = TYPES[number] ?? [`type ${number}`];
    const size = shape.reduce((product, n) => product * n, 1);
    tensors.push({ name, type, shape, bytes: bytes && elems ? (size / elems) * bytes : undefined, offset: cursor.u64() });
  }
  const alignment = Number(metadata["general.alignment"] ?? ALIGNMENT);
  if (!(alignment >= 1)) throw new FormatError("E_FORMAT", `gguf: an alignment of ${alignment}`);
  const data = Math.ceil(cursor.at / alignment) * alignment;
  for (const tensor of tensors) tensor.offset += data;
  return { version, metadata, tensors };
}

/** The implementation of the function of this name in `llm.ts`. */
export async function openGguf(from: FileSource, options: FetchOptions): Promise<GgufFile> {
  let loaded = 0;
  const onBytes = (bytes: number): void => options.onProgress?.({ phase: "download", loaded: (loaded += bytes), total: 0 });
  const file = await openRanges(from, options, onBytes);
  let start = file.head;
  let header: Header;
  try {
    header = await withFormatHint("llm", from, file, () => parseGrowingHead(file, onBytes, (bytes) => parseHeader((start = bytes))));
  } finally {
    await file.close();
  }
  const head = withoutTensors(start);
  return {
    ...header,
    size: file.size,
    tokenizer: () => Tokenizer.load(head),
    template: async () => ("tokenizer.chat_template" in header.metadata ? ChatTemplate.load(head) : undefined),
  };
}
