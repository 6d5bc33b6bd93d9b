// ONNX models with external data (weights in separate files, as exporters write large models): reads these tensors by
// byte ranges and writes them to their places in one file in the wasm module's memory, the only form that it accepts.
// Loaded with the first such model.
import { FormatError, UnsupportedError } from "./errors.js";
import type { WasmFile } from "./event-loop.js";
import { DATA_LOCATION, type Field, GRAPH, INITIALIZER, LENGTH_DELIMITED, fields } from "./protobuf.js";
import type { FetchOptions, FileSource } from "./progress.js";
import { type RangeReader, type OnBytes, openRanges } from "./ranges.js";
import { type ByteRange, coalesce, cut, forEachLimited } from "./requests.js";

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

const totalLength = (parts: readonly { readonly length: number }[]): number => parts.reduce((sum, part) => sum + part.length, 0);

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

/** A part of a separate file, and its position in the model with all tensors embedded. */
interface Part extends ByteRange {
  at: number;
}

/**
 * Writes the model with all tensors embedded to the file that `open` makes for its size; undefined if no tensor is
 * external.
 */
export async function embedExternalData(
  bytes: Uint8Array,
  from: FileSource,
  files: DataFiles | undefined,
  options: FetchOptions,
  open: (size: number, fill: (file: WasmFile) => Promise<void>) => Promise<WasmFile>,
): Promise<WasmFile | undefined> {
  const found = findExternalTensors(bytes);
  if (!found || found.tensors.length === 0) return undefined;
  const { graph, tensors } = found;
  const { hash: _, onProgress, signal, ...fetchOptions } = options;
  let [loaded, expectedTotal] = [0, 0];
  // the store of downloads reads whole blocks, which can be more than was asked for
  const onBytes: OnBytes = (more) => {
    loaded += more;
    onProgress?.({ phase: "download", loaded: expectedTotal > 0 ? Math.min(loaded, expectedTotal) : loaded, total: Math.max(expectedTotal, 0) });
  };
  const openFiles = new Map<string, { reader: RangeReader; parts: Part[] }>();
  try {
    for (const { location } of tensors) {
      if (openFiles.has(location)) continue;
      const reader = await openRanges(sourceOf(location, from, files), { ...fetchOptions, ...(signal && { signal }) }, onBytes);
      openFiles.set(location, { reader, parts: [] });
    }
    // The own bytes of the model from the graph on: they are kept, but for the fields that say where a tensor is.
    const pieces: (ArrayLike<number> | { parts: Part[]; start: number; length: number })[] = [];
    let copiedTo = graph.payload;
    for (const { field, location, offset, length } of tensors) {
      const { reader, parts } = openFiles.get(location) as { reader: RangeReader; parts: Part[] };
      const end = length === undefined ? reader.size : offset + length;
      if (end > reader.size || offset > reader.size) {
        throw new FormatError("E_FORMAT", `a tensor of the model ends at byte ${end} of ${location}, which has ${reader.size}`);
      }
      const data = { parts, start: offset, length: end - offset };
      const rest = [...fields(bytes, field.payload, field.end)].filter(({ id }) => id !== EXTERNAL && id !== DATA_LOCATION && id !== RAW);
      const raw = [...rest.map((kept) => bytes.subarray(kept.start, kept.end)), fieldHeader(RAW, data.length), data];
      pieces.push(bytes.subarray(copiedTo, field.start), fieldHeader(INITIALIZER, totalLength(raw)), ...raw);
      copiedTo = field.end;
    }
    pieces.push(bytes.subarray(copiedTo, graph.end));
    const list = [bytes.subarray(0, graph.start), fieldHeader(GRAPH, totalLength(pieces)), ...pieces, bytes.subarray(graph.end)];
    return await open(totalLength(list), async (file) => {
      let at = 0;
      for (const piece of list) {
        if ("parts" in piece) piece.parts.push({ start: piece.start, end: piece.start + piece.length, at });
        else await file.write(at, piece instanceof Uint8Array ? piece : Uint8Array.from(piece), signal);
        at += piece.length;
      }
      const requests = [...openFiles.values()].flatMap(({ reader, parts }) => {
        const small = parts.flatMap((part) => cut(part).map((range) => ({ ...range, at: part.at + range.start - part.start })));
        const inOrder = small.sort((a, b) => a.start - b.start);
        return coalesce(inOrder, (part): ByteRange => part).map((request) => ({ ...request, reader }));
      });
      expectedTotal = loaded + requests.reduce((sum, { start, end }) => sum + end - start, 0);
      await forEachLimited(requests, async ({ reader, start, end, items }) => {
        const data = await reader.read(start, end, onBytes);
        for (const part of items) await file.write(part.at, data.subarray(part.start - start, part.end - start), signal);
      });
    });
  } finally {
    for (const { reader } of openFiles.values()) await reader.close();
  }
}
