// ONNX models with external data (weights in separate files, as exporters write large models): reads these tensors by
// byte ranges and embeds them in the model's own bytes, the only form that the wasm module accepts. Loaded with the
// first such model.
import { FormatError, UnsupportedError } from "./errors.js";
import { DATA_LOCATION, type Field, GRAPH, INITIALIZER, LENGTH_DELIMITED, fields } from "./protobuf.js";
import { type FetchOptions, type FileSource, allocate } from "./progress.js";
import { type RangeReader, type OnBytes, openRanges } from "./ranges.js";

/** The separate files of a model by the names under which the model refers to them. */
export type DataFiles = Readonly<Record<string, FileSource>>;

/** Field numbers of `TensorProto` and `StringStringEntryProto`. */
const [RAW, EXTERNAL] = [9, 13];
const [KEY, VALUE] = [1, 2];

/** A tensor whose data is in another file: its field in the graph, and the location of the data. */
interface ExternalTensor {
  field: Field;
  location: string;
  offset: number;
  length: number | undefined;
}

const text = (bytes: Uint8Array, { payload, end }: Field): string => new TextDecoder().decode(bytes.subarray(payload, end));

function parseExternalTensor(bytes: Uint8Array, field: Field): ExternalTensor {
  const entries: Record<string, string> = {};
  for (const entry of fields(bytes, field.payload, field.end)) {
    if (entry.id !== EXTERNAL || entry.wireType !== LENGTH_DELIMITED) continue;
    const keyAndValue = ["", ""];
    for (const each of fields(bytes, entry.payload, entry.end)) if (each.id === KEY || each.id === VALUE) keyAndValue[each.id - 1] = text(bytes, each);
    entries[keyAndValue[0] as string] = keyAndValue[1] as string;
  }
  const { location = "", offset = "0", length } = entries;
  // accept only a relative path below the model's folder, on any server or file system: no `..`, no URL, no escapes
  const parts = location.split("/");
  if (/[\\:%?#\0]/.test(location) || parts.some((part) => part === "" || /^\.|[. ]$/.test(part))) {
    throw new FormatError("E_FORMAT", `a tensor of the model is in ${JSON.stringify(location)}, which is no file below its folder`);
  }
  const numbers = [offset, length ?? "0"].map(Number);
  if (!numbers.every((n) => Number.isSafeInteger(n) && n >= 0)) {
    throw new FormatError("E_FORMAT", `a tensor of the model is at byte ${offset} of ${location}, ${length} long`);
  }
  return { field, location, offset: numbers[0] as number, length: length === undefined ? undefined : (numbers[1] as number) };
}

/** The graph field of a model and its tensors with external data. */
export function findExternalTensors(bytes: Uint8Array): { graph: Field; tensors: ExternalTensor[] } | undefined {
  for (const graph of fields(bytes, 0, bytes.length)) {
    if (graph.id !== GRAPH || graph.wireType !== LENGTH_DELIMITED) continue;
    const tensors: ExternalTensor[] = [];
    for (const field of fields(bytes, graph.payload, graph.end)) {
      if (field.id !== INITIALIZER || field.wireType !== LENGTH_DELIMITED) continue;
      for (const each of fields(bytes, field.payload, field.end)) {
        if (each.id === DATA_LOCATION && each.value === 1) tensors.push(parseExternalTensor(bytes, field));
      }
    }
    return { graph, tensors };
  }
  return undefined;
}

const fieldHeader = (id: number, length: number): number[] => [...varintOf(id * 8 + LENGTH_DELIMITED), ...varintOf(length)];

function varintOf(value: number): number[] {
  const out: number[] = [];
  for (let rest = value; ; rest = Math.floor(rest / 128)) {
    if (rest < 128) return [...out, rest];
    out.push((rest % 128) + 128);
  }
}

const totalLength = (parts: readonly ArrayLike<number>[]): number => parts.reduce((sum, part) => sum + part.length, 0);

/** The source of one of the model's separate files. */
function sourceOf(location: string, from: FileSource, files: DataFiles | undefined): FileSource {
  const given = files && Object.hasOwn(files, location) ? files[location] : undefined;
  if (given !== undefined) return given;
  if (typeof from !== "string" && !(from instanceof URL)) {
    const hint = `load it from its address, or give the file: load(model, { files: { ${JSON.stringify(location)}: file } })`;
    throw new UnsupportedError("E_UNSUPPORTED", `weights of the model are in another file, ${location}`, { hint });
  }
  const address = String(from);
  const path = location.split("/").map(encodeURIComponent).join("/");
  if (from instanceof URL || /^[a-z][a-z0-9+.-]+:/i.test(address)) return new URL(path, address);
  // relative to the page's address, or a path in Node
  return address.replace(/[^/\\]*$/, "") + (globalThis.document ? path : location);
}

/** The model with all tensors embedded; `bytes` themselves if no tensor is external. */
export async function embedExternalData(bytes: Uint8Array, from: FileSource, files: DataFiles | undefined, options: FetchOptions): Promise<Uint8Array> {
  const found = findExternalTensors(bytes);
  if (!found || found.tensors.length === 0) return bytes;
  const { graph, tensors } = found;
  const { hash: _, onProgress, signal, ...fetchOptions } = options;
  let [loaded, expectedTotal] = [0, 0];
  const onBytes: OnBytes = (more) => onProgress?.({ phase: "download", loaded: (loaded += more), total: Math.max(expectedTotal, loaded) });
  const openFiles = new Map<string, RangeReader>();
  try {
    for (const { location } of tensors) {
      if (openFiles.has(location)) continue;
      openFiles.set(location, await openRanges(sourceOf(location, from, files), { ...fetchOptions, ...(signal && { signal }) }, onBytes));
    }
    const ends = tensors.map(({ location, offset, length }) => {
      const { size } = openFiles.get(location) as RangeReader;
      const end = length === undefined ? size : offset + length;
      if (end > size || offset > size) throw new FormatError("E_FORMAT", `a tensor of the model ends at byte ${end} of ${location}, which has ${size}`);
      return end;
    });
    expectedTotal = loaded + tensors.reduce((sum, { offset }, at) => sum + (ends[at] as number) - offset, 0);
    const parts: ArrayLike<number>[] = [];
    let copiedTo = graph.payload;
    for (const [i, { field, location, offset }] of tensors.entries()) {
      const data = await (openFiles.get(location) as RangeReader).read(offset, ends[i] as number, onBytes);
      signal?.throwIfAborted();
      const rest = [...fields(bytes, field.payload, field.end)].filter(({ id }) => id !== EXTERNAL && id !== DATA_LOCATION && id !== RAW);
      const keptFields = rest.map(({ start, end }) => bytes.subarray(start, end));
      const raw = [fieldHeader(RAW, data.length), data];
      parts.push(bytes.subarray(copiedTo, field.start), fieldHeader(INITIALIZER, totalLength(keptFields) + totalLength(raw)), ...keptFields, ...raw);
      copiedTo = field.end;
    }
    parts.push(bytes.subarray(copiedTo, graph.end));
    const graphLength = totalLength(parts);
    const list = [bytes.subarray(0, graph.start), fieldHeader(GRAPH, graphLength), ...parts, bytes.subarray(graph.end)];
    const out = allocate(totalLength(list));
    let outOffset = 0;
    for (const part of list) {
      out.set(part, outOffset);
      outOffset += part.length;
    }
    return out;
  } finally {
    for (const file of openFiles.values()) await file.close();
  }
}
