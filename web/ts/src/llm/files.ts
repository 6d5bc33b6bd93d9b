// Locates and opens the files of a language model: a GGUF file, a split GGUF file, or a Hugging Face folder
// (`config.json`, safetensors files and their index, `tokenizer.json`), at URLs, on Node's disk, or as File objects.
// Weight files are opened for reading by ranges, never read whole.
import { FetchError, InputError, ValueError, guard } from "../errors.js";
import type { llmModule } from "./module.js";
import { parsedStart } from "../gguf.js";
import { reading } from "../files.js";
import { builtin, inNode } from "../module.js";
import { type FetchOptions, type FileSource, pathOf, readSource, room } from "../progress.js";
import { type Ranged, type Told, openRanges } from "../ranges.js";
import type { Metadata, MetaValue, ModelSource } from "./options.js";

type Module = Awaited<ReturnType<typeof llmModule>>;
export type RawModel = InstanceType<Module["RawModel"]>;
export type RawTokenizer = ReturnType<RawModel["tokenizer"]>;

/** The longest safetensors header that is fetched; the wasm module accepts none that is longer. */
const HEADER_BYTES = 100_000_008;
/** Longer lists of a configuration are left out of the metadata. */
const LONG = 64;

/** A model whose headers are read and whose weights are not. */
export interface Opened {
  raw: RawModel;
  /** Weight files, in the order of the file indices in the model's entries. */
  files: readonly Ranged[];
  metadata: Metadata;
  tokenizer: RawTokenizer | undefined;
  /** The source of the chat template, if any: the beginning of a GGUF file, or a tokenizer_config.json. */
  template: Uint8Array | undefined;
}

/** An optional component: undefined if it cannot be read. */
function maybe<T>(body: () => T): T | undefined {
  try {
    return guard(body);
  } catch {
    return undefined;
  }
}

/**
 * Opens the files of a model. Opened files are appended to `files` at once, so that the caller can close them after a
 * failure.
 */
export async function openModel(module: Module, from: ModelSource, options: FetchOptions, told: Told, files: Ranged[]): Promise<Opened> {
  const place = await placeOf(from, options);
  const open = async (source: FileSource): Promise<Ranged> => {
    const file = await openRanges(source, options, told);
    files.push(file);
    return file;
  };
  if ("folder" in place) return ofFolder(module, place, options, told, open, files);
  return ofGguf(module, place, told, open, files);
}

type Open = (source: FileSource) => Promise<Ranged>;

async function ofGguf({ RawModel: Raw }: Module, { first, part }: Gguf, told: Told, open: Open, files: Ranged[]): Promise<Opened> {
  const file = await open(first);
  let header = file.head;
  const raw = await reading("llm", first, file, () => parsedStart(file, told, (start) => guard(() => new Raw((header = start), file.size))));
  try {
    const metadata = guard(() => raw.metadata()) as Metadata;
    const count = Number(metadata["split.count"] ?? 1);
    for (let number = 2; number <= count; number += 1) {
      const source = part(number, count);
      if (source === undefined) {
        const hint = "the files of a split model are called x-00001-of-00003.gguf and so on, and lie side by side";
        throw new InputError("E_INPUT", `the model is in ${count} files, and it is not known where the others are`, { hint });
      }
      const next = await open(source);
      await reading("llm", source, next, () => parsedStart(next, told, (start) => guard(() => raw.part(start, next.size, ""))));
    }
    return { raw, files, metadata, tokenizer: maybe(() => raw.tokenizer()), template: "tokenizer.chat_template" in metadata ? header : undefined };
  } catch (error) {
    raw.free();
    throw error;
  }
}

async function ofFolder(module: Module, place: Folder, options: FetchOptions, told: Told, open: Open, files: Ranged[]): Promise<Opened> {
  const { RawModel: Raw, RawTokenizer: Read } = module;
  const { onProgress: _, hash: __, ...quiet } = options;
  const read = async (name: string): Promise<Uint8Array> => {
    const source = place.folder(name);
    if (source === undefined) throw new InputError("E_INPUT", `the model's files lack \`${name}\``);
    return readSource(source, quiet);
  };
  /** Reads an optional file. */
  const find = (name: string): Promise<Uint8Array | undefined> =>
    read(name).catch((error: unknown) => {
      if (options.signal?.aborted || !(error instanceof FetchError || error instanceof InputError)) throw error;
      return undefined;
    });
  const [config, generation, settings, jinja, vocabulary] = await Promise.all([
    read("config.json"),
    find("generation_config.json").then(jsonOrNone),
    find("tokenizer_config.json").then(jsonOrNone),
    find("chat_template.jinja"),
    find("tokenizer.json"),
  ]);
  const raw = await reading("config", "config.json", config, () => guard(() => Raw.ofFolder(config, generation)));
  try {
    const index = place.weights ? undefined : jsonOrNone(await find("model.safetensors.index.json"));
    const names = index ? guard(() => raw.shards(index)) : [place.weights ?? "model.safetensors"];
    for (const name of names) {
      const source = place.folder(name);
      if (source === undefined) throw new InputError("E_INPUT", `the model's files lack \`${name}\``);
      const file = await open(source);
      await reading("weights", source, file, async () => guard(raw.part.bind(raw, await headerOf(file, told), file.size, name)));
    }
    return {
      raw,
      files,
      metadata: { "general.architecture": guard(() => raw.architecture()), ...plainOf(config) },
      tokenizer: vocabulary && maybe(() => new Read(vocabulary)),
      template: templateOf(settings, jinja),
    };
  } catch (error) {
    raw.free();
    throw error;
  }
}

/** Some servers respond with an HTML page for a missing file: accept only JSON objects. */
function jsonOrNone(bytes: Uint8Array | undefined): Uint8Array | undefined {
  return bytes && typeof jsonOf(bytes) === "object" ? bytes : undefined;
}

function jsonOf(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(bytes)) as unknown;
  } catch {
    return undefined;
  }
}

/** A tokenizer_config.json that contains the chat template, which may come from a separate file. */
function templateOf(settings: Uint8Array | undefined, jinja: Uint8Array | undefined): Uint8Array | undefined {
  const known = (settings && (jsonOf(settings) as Record<string, unknown>)) ?? {};
  const source = jinja && new TextDecoder().decode(jinja);
  if (!source || /^\s*<(!doctype|html)/i.test(source)) return "chat_template" in known ? settings : undefined;
  return new TextEncoder().encode(JSON.stringify({ ...known, chat_template: source }));
}

/** The plain values of a configuration, without long lists. */
function plainOf(config: Uint8Array): Metadata {
  const isPlain = (x: unknown): boolean => ["string", "number", "boolean"].includes(typeof x);
  const list = Object.entries((jsonOf(config) ?? {}) as Record<string, unknown>);
  const kept = list.filter(([, x]) => isPlain(x) || (Array.isArray(x) && x.length <= LONG && x.every(isPlain)));
  return Object.fromEntries(kept as [string, MetaValue][]);
}

/** The header of a safetensors file, whose length is in its first eight bytes. */
async function headerOf(file: Ranged, told: Told): Promise<Uint8Array> {
  const { head, size } = file;
  if (head.length < 8) return head;
  const length = 8 + Number(new DataView(head.buffer, head.byteOffset, 8).getBigUint64(0, true));
  if (length <= head.length || length > Math.min(size, HEADER_BYTES)) return head;
  const whole = room(length);
  whole.set(head);
  whole.set(await file.read(head.length, length, told), head.length);
  return whole;
}

/** A GGUF file, and the sources of the parts of a split one, numbered from 1. */
interface Gguf {
  first: FileSource;
  part(number: number, count: number): FileSource | undefined;
}

/** The sources of a folder's files by name, and the name of the weights file if it is known. */
interface Folder {
  folder(name: string): FileSource | undefined;
  weights: string | undefined;
}

const SPLIT = /-\d{5}-of-(\d{5})\.gguf$/i;
const partName = (name: string, number: number): string => name.replace(SPLIT, (_, count: string) => `-${String(number).padStart(5, "0")}-of-${count}.gguf`);

async function placeOf(from: ModelSource, options: FetchOptions): Promise<Gguf | Folder> {
  if (typeof from === "string" || from instanceof URL) return atAddress(from, options);
  if (from instanceof Uint8Array || from instanceof ArrayBuffer || (typeof Blob !== "undefined" && from instanceof Blob)) {
    return { first: from, part: () => undefined };
  }
  const named = (list: readonly File[]): [string, FileSource][] => list.map((file) => [file.name, file]);
  const files = Array.isArray(from) ? named(from) : Object.entries((from ?? {}) as Record<string, FileSource>);
  if (files.length === 0) {
    throw new ValueError("E_VALUE", "a language model comes from a URL, a path, a File or Blob, bytes, or an object of such files by name");
  }
  return ofNamed(new Map<string, FileSource>(files));
}

/** Interprets files that are given by name. */
function ofNamed(files: ReadonlyMap<string, FileSource>): Gguf | Folder {
  const names = [...files.keys()];
  if (files.has("config.json")) {
    const weights = names.filter((name) => name.endsWith(".safetensors"));
    const [only] = files.has("model.safetensors.index.json") ? [] : weights;
    return { folder: (name) => files.get(name), weights: weights.length === 1 ? only : undefined };
  }
  const [name] = names.filter((each) => /\.gguf$/i.test(each)).sort();
  if (name === undefined) throw new InputError("E_INPUT", "among the files is neither a config.json nor a GGUF file");
  const first = files.get(SPLIT.test(name) ? partName(name, 1) : name);
  if (first === undefined) throw new InputError("E_INPUT", `among the files is no ${partName(name, 1)}`);
  return { first, part: (number) => (SPLIT.test(name) ? files.get(partName(name, number)) : undefined) };
}

/** Interprets a URL, or a path on Node's disk. */
async function atAddress(from: string | URL, options: FetchOptions): Promise<Gguf | Folder> {
  const [, address = "", rest = ""] = /^([^?#]*)(.*)$/s.exec(String(from)) ?? [];
  const isPath = pathOf(from, options) !== undefined;
  const [path, query] = isPath && typeof from === "string" ? [String(from), ""] : [address, rest];
  const cut = Math.max(path.lastIndexOf("/"), isPath && !(from instanceof URL) ? path.lastIndexOf("\\") : -1) + 1;
  const name = path.slice(cut);
  const beside = (base: string) => (file: string): FileSource => (from instanceof URL ? new URL(base + file + query) : base + file + query);
  if (name === "" || name === "config.json" || name.endsWith(".safetensors") || name.endsWith(".safetensors.index.json")) {
    const weights = name.endsWith(".safetensors") ? name : undefined;
    return { folder: beside(path.slice(0, cut)), weights };
  }
  if (isPath && inNode && (await isFolder(from, options))) return { folder: beside(`${path}/`), weights: undefined };
  const near = beside(path.slice(0, cut));
  if (!SPLIT.test(name)) return { first: from, part: () => undefined };
  return { first: near(partName(name, 1)), part: (number) => near(partName(name, number)) };
}

async function isFolder(from: string | URL, options: FetchOptions): Promise<boolean> {
  const { stat } = await builtin("node:fs/promises");
  const path = pathOf(from, options) as string | URL;
  return stat(path).then((found: { isDirectory(): boolean }) => found.isDirectory(), () => false);
}
