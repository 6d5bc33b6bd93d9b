// Locates and opens the files of a language model: a GGUF file, a split GGUF file, or a Hugging Face folder
// (`config.json`, safetensors files and their index, `tokenizer.json`), at URLs, on Node's disk, or as File objects.
// Weight files are opened for reading by ranges, never read whole.
import { FetchError, InputError, ValueError, guard, guardAsync } from "../errors.js";
import { parseGrowingHead } from "../gguf.js";
import { withFormatHint } from "../files.js";
import { builtin, inNode } from "../module.js";
import { type FetchOptions, type FileSource, allocate, localPath, readSource } from "../progress.js";
import { type RangeReader, type OnBytes, openRanges } from "../ranges.js";
import type { Metadata, MetaValue, ModelSource } from "./options.js";

/** A tokenizer of a wasm module. */
export interface RawTokenizer {
  encode(text: string, special: boolean): Uint32Array;
  decode(ids: Uint32Array, skipSpecial: boolean): string;
  free(): void;
}

/** A model of a wasm module, as far as reading its files goes. */
export interface RawFiles {
  part(start: Uint8Array, size: number, name: string): void;
  shards(index: Uint8Array): string[];
  entries(): unknown[];
  architecture(): string;
  metadata(): object;
  tokenizer(): RawTokenizer;
  weight(number: number, bytes: Uint8Array): unknown[];
  free(): void;
}

type ReadFile = (name: string) => Promise<Uint8Array>;

/** A kind of model: how one is made of the header of a GGUF file, or of a folder's configuration. */
export interface ModelKind<R extends RawFiles> {
  ofGguf(start: Uint8Array, size: number): R;
  /** Names of further files of a folder that matter, if they are there; `ofFolder` and the chat template get them. */
  optional: readonly string[];
  ofFolder(config: Uint8Array, optional: readonly (Uint8Array | undefined)[], read: ReadFile): R | Promise<R>;
  tokenizer(file: Uint8Array): RawTokenizer;
}

/** The longest safetensors header that is fetched; the wasm module accepts none that is longer. */
const HEADER_BYTES = 100_000_008;
/** Longer lists of a configuration are left out of the metadata. */
const MAX_LIST_LENGTH = 64;

/** A model whose headers are read and whose weights are not. */
export interface OpenedModel<R extends RawFiles> {
  raw: R;
  /** Weight files, in the order of the file indices in the model's entries. */
  files: readonly RangeReader[];
  metadata: Metadata;
  /** The tokenizer, or why the one that the files have cannot be used. */
  tokenizer: RawTokenizer | Error | undefined;
  /** The source of the chat template, if any: the beginning of a GGUF file, or a tokenizer_config.json. */
  template: Uint8Array | undefined;
}

/** An optional component, or the error of reading it. */
function optional<T>(body: () => T): T | Error {
  try {
    return guard(body);
  } catch (error) {
    return error as Error;
  }
}

/**
 * Opens the files of a model. Opened files are appended to `files` at once, so that the caller can close them after a
 * failure.
 */
export async function openModel<R extends RawFiles>(
  kind: ModelKind<R>,
  from: ModelSource,
  options: FetchOptions,
  onBytes: OnBytes,
  files: RangeReader[],
): Promise<OpenedModel<R>> {
  const location = await locate(from, options);
  const open = async (source: FileSource): Promise<RangeReader> => {
    const file = await openRanges(source, options, onBytes);
    files.push(file);
    return file;
  };
  if ("fileNamed" in location) return openFolder(kind, location, options, onBytes, open, files);
  return openGguf(kind, location, onBytes, open, files);
}

type OpenFile = (source: FileSource) => Promise<RangeReader>;

async function openGguf<R extends RawFiles>(
  kind: ModelKind<R>,
  { first, partOf }: GgufSource,
  onBytes: OnBytes,
  open: OpenFile,
  files: RangeReader[],
): Promise<OpenedModel<R>> {
  const file = await open(first);
  let header = file.head;
  const raw = await withFormatHint("llm", first, file, () => parseGrowingHead(file, onBytes, (start) => guard(() => kind.ofGguf((header = start), file.size))));
  try {
    const metadata = guard(() => raw.metadata()) as Metadata;
    const count = Number(metadata["split.count"] ?? 1);
    for (let number = 2; number <= count; number += 1) {
      const partSource = partOf(number, count);
      if (partSource === undefined) {
        const hint = "the files of a split model are called x-00001-of-00003.gguf and so on, and lie side by side";
        throw new InputError("E_INPUT", `the model is in ${count} files, and it is not known where the others are`, { hint });
      }
      const next = await open(partSource);
      await withFormatHint("llm", partSource, next, () => parseGrowingHead(next, onBytes, (start) => guard(() => raw.part(start, next.size, ""))));
    }
    return { raw, files, metadata, tokenizer: optional(() => raw.tokenizer()), template: "tokenizer.chat_template" in metadata ? header : undefined };
  } catch (error) {
    raw.free();
    throw error;
  }
}

async function openFolder<R extends RawFiles>(
  kind: ModelKind<R>,
  location: FolderSource,
  options: FetchOptions,
  onBytes: OnBytes,
  open: OpenFile,
  files: RangeReader[],
): Promise<OpenedModel<R>> {
  const { onProgress: _, hash: __, ...silentOptions } = options;
  const read = async (name: string): Promise<Uint8Array> => {
    const source = location.fileNamed(name);
    if (source === undefined) throw new InputError("E_INPUT", `the model's files lack \`${name}\``);
    return readSource(source, silentOptions);
  };
  /** Reads an optional file. */
  const readOptional = (name: string): Promise<Uint8Array | undefined> =>
    read(name).catch((error: unknown) => {
      if (options.signal?.aborted || !(error instanceof FetchError || error instanceof InputError)) throw error;
      return undefined;
    });
  const readNamed = (name: string): Promise<Uint8Array | undefined> =>
    name.endsWith(".json") ? readOptional(name).then(jsonObject) : readOptional(name);
  const [config, vocabulary, ...optionalFiles] = await Promise.all([read("config.json"), readOptional("tokenizer.json"), ...kind.optional.map(readNamed)]);
  const raw = await withFormatHint("config", "config.json", config, () => guardAsync(async () => kind.ofFolder(config, optionalFiles, read)));
  try {
    const index = location.weights ? undefined : jsonObject(await readOptional("model.safetensors.index.json"));
    const names = index ? guard(() => raw.shards(index)) : [location.weights ?? "model.safetensors"];
    for (const name of names) {
      const source = location.fileNamed(name);
      if (source === undefined) throw new InputError("E_INPUT", `the model's files lack \`${name}\``);
      const file = await open(source);
      await withFormatHint("weights", source, file, async () => guard(raw.part.bind(raw, await readSafetensorsHeader(file, onBytes), file.size, name)));
    }
    return {
      raw,
      files,
      metadata: { "general.architecture": guard(() => raw.architecture()), ...plainMetadata(config) },
      tokenizer: vocabulary && optional(() => kind.tokenizer(vocabulary)),
      template: templateOf(optionalFiles[kind.optional.indexOf("tokenizer_config.json")], optionalFiles[kind.optional.indexOf("chat_template.jinja")]),
    };
  } catch (error) {
    raw.free();
    throw error;
  }
}

/** Some servers respond with an HTML page for a missing file: accept only JSON objects. */
function jsonObject(bytes: Uint8Array | undefined): Uint8Array | undefined {
  return bytes && typeof parseJson(bytes) === "object" ? bytes : undefined;
}

function parseJson(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(bytes)) as unknown;
  } catch {
    return undefined;
  }
}

/** A tokenizer_config.json that contains the chat template, which may come from a separate file. */
function templateOf(tokenizerConfig: Uint8Array | undefined, jinja: Uint8Array | undefined): Uint8Array | undefined {
  const config = (tokenizerConfig && (parseJson(tokenizerConfig) as Record<string, unknown>)) ?? {};
  const source = jinja && new TextDecoder().decode(jinja);
  if (!source || /^\s*<(!doctype|html)/i.test(source)) return "chat_template" in config ? tokenizerConfig : undefined;
  return new TextEncoder().encode(JSON.stringify({ ...config, chat_template: source }));
}

/** The plain values of a configuration, without long lists. */
function plainMetadata(config: Uint8Array): Metadata {
  const isPlain = (x: unknown): boolean => ["string", "number", "boolean"].includes(typeof x);
  const list = Object.entries((parseJson(config) ?? {}) as Record<string, unknown>);
  const kept = list.filter(([, x]) => isPlain(x) || (Array.isArray(x) && x.length <= MAX_LIST_LENGTH && x.every(isPlain)));
  return Object.fromEntries(kept as [string, MetaValue][]);
}

/** The header of a safetensors file, whose length is in its first eight bytes. */
async function readSafetensorsHeader(file: RangeReader, onBytes: OnBytes): Promise<Uint8Array> {
  const { head, size } = file;
  if (head.length < 8) return head;
  const length = 8 + Number(new DataView(head.buffer, head.byteOffset, 8).getBigUint64(0, true));
  if (length <= head.length || length > Math.min(size, HEADER_BYTES)) return head;
  const whole = allocate(length);
  whole.set(head);
  whole.set(await file.read(head.length, length, onBytes), head.length);
  return whole;
}

/** A GGUF file, and the sources of the parts of a split one, numbered from 1. */
interface GgufSource {
  first: FileSource;
  partOf(number: number, count: number): FileSource | undefined;
}

/** The sources of a folder's files by name, and the name of the weights file if it is known. */
interface FolderSource {
  fileNamed(name: string): FileSource | undefined;
  weights: string | undefined;
}

const SPLIT_NAME = /-\d{5}-of-(\d{5})\.gguf$/i;
const partName = (name: string, number: number): string =>
  name.replace(SPLIT_NAME, (_, count: string) => `-${String(number).padStart(5, "0")}-of-${count}.gguf`);

async function locate(from: ModelSource, options: FetchOptions): Promise<GgufSource | FolderSource> {
  if (typeof from === "string" || from instanceof URL) return locateAddress(from, options);
  if (from instanceof Uint8Array || from instanceof ArrayBuffer || (typeof Blob !== "undefined" && from instanceof Blob)) {
    return { first: from, partOf: () => undefined };
  }
  const namedEntries = (list: readonly File[]): [string, FileSource][] => list.map((file) => [file.name, file]);
  const files = Array.isArray(from) ? namedEntries(from) : Object.entries((from ?? {}) as Record<string, FileSource>);
  if (files.length === 0) {
    throw new ValueError("E_VALUE", "a language model comes from a URL, a path, a File or Blob, bytes, or an object of such files by name");
  }
  return locateFiles(new Map<string, FileSource>(files));
}

/** Interprets files that are given by name. */
function locateFiles(files: ReadonlyMap<string, FileSource>): GgufSource | FolderSource {
  const names = [...files.keys()];
  if (files.has("config.json")) {
    const weights = names.filter((name) => name.endsWith(".safetensors"));
    const [only] = files.has("model.safetensors.index.json") ? [] : weights;
    return { fileNamed: (name) => files.get(name), weights: weights.length === 1 ? only : undefined };
  }
  const [name] = names.filter((each) => /\.gguf$/i.test(each)).sort();
  if (name === undefined) throw new InputError("E_INPUT", "among the files is neither a config.json nor a GGUF file");
  const first = files.get(SPLIT_NAME.test(name) ? partName(name, 1) : name);
  if (first === undefined) throw new InputError("E_INPUT", `among the files is no ${partName(name, 1)}`);
  return { first, partOf: (number) => (SPLIT_NAME.test(name) ? files.get(partName(name, number)) : undefined) };
}

/** Interprets a URL, or a path on Node's disk. */
async function locateAddress(from: string | URL, options: FetchOptions): Promise<GgufSource | FolderSource> {
  const [, address = "", rest = ""] = /^([^?#]*)(.*)$/s.exec(String(from)) ?? [];
  const isPath = localPath(from, options) !== undefined;
  const [path, query] = isPath && typeof from === "string" ? [String(from), ""] : [address, rest];
  const nameStart = Math.max(path.lastIndexOf("/"), isPath && !(from instanceof URL) ? path.lastIndexOf("\\") : -1) + 1;
  const name = path.slice(nameStart);
  const sibling = (base: string) => (file: string): FileSource => (from instanceof URL ? new URL(base + file + query) : base + file + query);
  if (name === "" || name === "config.json" || name.endsWith(".safetensors") || name.endsWith(".safetensors.index.json")) {
    const weights = name.endsWith(".safetensors") ? name : undefined;
    return { fileNamed: sibling(path.slice(0, nameStart)), weights };
  }
  if (isPath && inNode && (await isFolder(from, options))) return { fileNamed: sibling(`${path}/`), weights: undefined };
  const siblingFile = sibling(path.slice(0, nameStart));
  if (!SPLIT_NAME.test(name)) return { first: from, partOf: () => undefined };
  return { first: siblingFile(partName(name, 1)), partOf: (number) => siblingFile(partName(name, number)) };
}

async function isFolder(from: string | URL, options: FetchOptions): Promise<boolean> {
  const { stat } = await builtin("node:fs/promises");
  const path = localPath(from, options) as string | URL;
  return stat(path).then((found: { isDirectory(): boolean }) => found.isDirectory(), () => false);
}
