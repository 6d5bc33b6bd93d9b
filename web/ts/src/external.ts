// ONNX models with external data (weights in separate files, as exporters write large models): reads these tensors by
// byte ranges and embeds them in the model's own bytes, the only form that the wasm module accepts. Loaded with the
// first such model.
import { FormatError, UnsupportedError } from "./errors.js";
import { BYTES, type Field, GRAPH, INITIALIZER, LOCATION, fields } from "./fields.js";
import { type FetchOptions, type FileSource, room } from "./progress.js";
import { type Ranged, type Told, openRanges } from "./ranges.js";

/** The separate files of a model by the names under which the model refers to them. */
export type DataFiles = Readonly<Record<string, FileSource>>;

/** Field numbers of `TensorProto` and `StringStringEntryProto`. */
const [RAW, EXTERNAL] = [9, 13];
const [KEY, VALUE] = [1, 2];

/** A tensor whose data is in another file: its field in the graph, and the location of the data. */
interface Away {
  field: Field;
  location: string;
  offset: number;
  length: number | undefined;
}

const text = (bytes: Uint8Array, { from, end }: Field): string => new TextDecoder().decode(bytes.subarray(from, end));

function placeOf(bytes: Uint8Array, field: Field): Away {
  const known: Record<string, string> = {};
  for (const entry of fields(bytes, field.from, field.end)) {
    if (entry.id !== EXTERNAL || entry.kind !== BYTES) continue;
    const pair = ["", ""];
    for (const each of fields(bytes, entry.from, entry.end)) if (each.id === KEY || each.id === VALUE) pair[each.id - 1] = text(bytes, each);
    known[pair[0] as string] = pair[1] as string;
  }
  const { location = "", offset = "0", length } = known;
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
export function externals(bytes: Uint8Array): { graph: Field; tensors: Away[] } | undefined {
  for (const graph of fields(bytes, 0, bytes.length)) {
    if (graph.id !== GRAPH || graph.kind !== BYTES) continue;
    const tensors: Away[] = [];
    for (const field of fields(bytes, graph.from, graph.end)) {
      if (field.id !== INITIALIZER || field.kind !== BYTES) continue;
      for (const each of fields(bytes, field.from, field.end)) {
        if (each.id === LOCATION && each.value === 1) tensors.push(placeOf(bytes, field));
      }
    }
    return { graph, tensors };
  }
  return undefined;
}

const head = (id: number, length: number): number[] => [...varintOf(id * 8 + BYTES), ...varintOf(length)];

function varintOf(value: number): number[] {
  const out: number[] = [];
  for (let rest = value; ; rest = Math.floor(rest / 128)) {
    if (rest < 128) return [...out, rest];
    out.push((rest % 128) + 128);
  }
}

const total = (parts: readonly ArrayLike<number>[]): number => parts.reduce((sum, part) => sum + part.length, 0);

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
export async function whole(bytes: Uint8Array, from: FileSource, files: DataFiles | undefined, options: FetchOptions): Promise<Uint8Array> {
  const found = externals(bytes);
  if (!found || found.tensors.length === 0) return bytes;
  const { graph, tensors } = found;
  const { hash: _, onProgress, signal, ...how } = options;
  let [loaded, all] = [0, 0];
  const told: Told = (more) => onProgress?.({ phase: "download", loaded: (loaded += more), total: Math.max(all, loaded) });
  const open = new Map<string, Ranged>();
  try {
    for (const { location } of tensors) {
      if (!open.has(location)) open.set(location, await openRanges(sourceOf(location, from, files), { ...how, ...(signal && { signal }) }, told));
    }
    const ends = tensors.map(({ location, offset, length }) => {
      const { size } = open.get(location) as Ranged;
      const end = length === undefined ? size : offset + length;
      if (end > size || offset > size) throw new FormatError("E_FORMAT", `a tensor of the model ends at byte ${end} of ${location}, which has ${size}`);
      return end;
    });
    all = loaded + tensors.reduce((sum, { offset }, at) => sum + (ends[at] as number) - offset, 0);
    const parts: ArrayLike<number>[] = [];
    let at = graph.from;
    for (const [i, { field, location, offset }] of tensors.entries()) {
      const data = await (open.get(location) as Ranged).read(offset, ends[i] as number, told);
      signal?.throwIfAborted();
      const rest = [...fields(bytes, field.from, field.end)].filter(({ id }) => id !== EXTERNAL && id !== LOCATION && id !== RAW);
      const kept = rest.map(({ begin, end }) => bytes.subarray(begin, end));
      const raw = [head(RAW, data.length), data];
      parts.push(bytes.subarray(at, field.begin), head(INITIALIZER, total(kept) + total(raw)), ...kept, ...raw);
      at = field.end;
    }
    parts.push(bytes.subarray(at, graph.end));
    const inside = total(parts);
    const list = [bytes.subarray(0, graph.begin), head(GRAPH, inside), ...parts, bytes.subarray(graph.end)];
    const out = room(total(list));
    let place = 0;
    for (const part of list) {
      out.set(part, place);
      place += part.length;
    }
    return out;
  } finally {
    for (const file of open.values()) await file.close();
  }
}
