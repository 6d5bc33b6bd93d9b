// Files of tensors: loads weights by name, by range requests where possible, reads single arrays, and saves tensors.
// Loaded on first use.
import { type Host, hostOf, useByDefault } from "./device.js";
import { type DType, bytesOf, decode } from "./dtype.js";
import { FormatError, InputError, ValueError, guard, guardAsync } from "./errors.js";
import { filesModule } from "./extras.js";
import { parsedStart } from "./gguf.js";
import { type SaveOptions, type WeightOptions, isNamedGguf, reading } from "./files.js";
import { join, prefetch } from "./parts.js";
import { piece } from "./pieces.js";
import { type FetchOptions, type FileSource, readSource, room } from "./progress.js";
import { type Ranged, type Told, ofMemory, openRanges } from "./ranges.js";
import { type Run, type Span, inTurn, runsOf } from "./runs.js";
import { type FileOptions, Tensor, type TensorOptions, bind, made } from "./tensor.js";
import { Slices } from "./turns.js";

/** The longest safetensors header that is fetched; the wasm module accepts none that is longer. */
const HEADER_BYTES = 100_000_008;

type Entry = [name: string, dtype: DType, shape: number[], start: number, end: number];

/** Creates a tensor from its bytes and returns its id. */
type Make = (entry: Entry, bytes: Uint8Array) => number;

/** A tensor to load: its index in the result, and its entry in the file. */
type Item = { at: number; entry: Entry };

/** A byte range that is read in one request, and the function that creates tensors from it. */
interface Reading extends Span {
  file: Ranged;
  fill(bytes: Uint8Array): Promise<void>;
}

/** The implementation of the function of this name in `files.ts`. */
export async function loadWeights(from: FileSource, options: WeightOptions): Promise<Record<string, Tensor>> {
  const { signal, onProgress } = options;
  const started = hostOf(options.device);
  if (!isNamedGguf(from)) prefetch("weights");
  const host = await guardAsync(() => started, signal);
  // One failure aborts everything that is in progress.
  const stop = new AbortController();
  const abort = (): void => stop.abort(signal?.reason);
  if (signal?.aborted) abort();
  signal?.addEventListener("abort", abort);
  let [loaded, total] = [0, 0];
  const told: Told = (bytes) => {
    loaded += bytes;
    onProgress?.({ phase: "download", loaded, total });
  };
  const reading = { ...options, signal: stop.signal };
  const loading = new Loading(host, reading, told, (bytes) => (total = loaded + bytes));
  try {
    const out = await loading.all(from);
    useByDefault(host);
    return out;
  } catch (error) {
    stop.abort();
    loading.forget();
    throw signal?.aborted ? signal.reason : error;
  } finally {
    signal?.removeEventListener("abort", abort);
    await loading.close();
  }
}

class Loading {
  readonly #open: Ranged[] = [];
  /** Names and tensors in the order of the files; a tensor is undefined until it is loaded. */
  readonly #found: [name: string, tensor: Tensor | undefined][] = [];
  readonly #runs: Reading[] = [];
  readonly #indices: { free(): void }[] = [];
  readonly #slices = new Slices();

  constructor(
    readonly host: Host,
    readonly options: WeightOptions & { signal: AbortSignal },
    readonly told: Told,
    /** Receives how many bytes remain to be read, once that is known. */
    readonly left: (bytes: number) => void,
  ) {}

  async all(from: FileSource): Promise<Record<string, Tensor>> {
    const { only } = this.options;
    const asked = typeof only === "function" || !only ? undefined : new Set(only);
    const wanted = typeof only === "function" ? only : (name: string) => !asked || asked.has(name);
    if (isUrl(from) && /^[^?#]*\.index\.json([?#]|$)/.test(String(from))) await this.#shards(from, wanted);
    else await this.#file(from, wanted);
    this.left(this.#runs.reduce((sum, { file, start, end }) => sum + (end <= file.head.length ? 0 : end - start), 0));
    await inTurn(this.#runs, (run) => this.#read(run));
    const out = Object.fromEntries(this.#found as [string, Tensor][]);
    const missing = [...(asked ?? [])].find((name) => !Object.hasOwn(out, name));
    if (missing !== undefined) throw new InputError("E_INPUT", `${isUrl(from) ? from : "the file"} has no tensor ${missing}`);
    return out;
  }

  /** Loads those files listed in an index that contain requested tensors. */
  async #shards(from: string | URL, wanted: (name: string) => boolean): Promise<void> {
    const { onProgress: _, ...quiet } = this.options;
    const bytes = await readSource(from, quiet);
    const files = new Map<string, Set<string>>();
    await join(this.host.engine, "weights");
    const pairs = await reading("index", from, bytes, () => guard(() => this.host.raw.shards(bytes)) as [string, string][]);
    for (const [name, file] of pairs) {
      if (!wanted(name)) continue;
      if (!files.has(file)) files.set(file, new Set());
      files.get(file)?.add(name);
    }
    for (const [file, names] of files) {
      // tensors of a file that the index does not list are not part of the model
      await this.#file(beside(from, file), (name) => names.delete(name));
      const [missing] = names;
      if (missing !== undefined) throw new InputError("E_INPUT", `the files of ${from} lack the tensor ${missing}`);
    }
  }

  async #file(from: FileSource, wanted: (name: string) => boolean): Promise<void> {
    const file = await openRanges(from, this.options, this.told);
    this.#open.push(file);
    await reading("weights", from, file, () => this.#tensors(file, wanted));
  }

  async #tensors(from: Ranged, wanted: (name: string) => boolean): Promise<void> {
    let file = from;
    const [a, b] = file.head;
    if (String.fromCharCode(...file.head.subarray(0, 4)) === "GGUF") return this.#blocks(file, wanted);
    // the length field of a safetensors header may begin with any bytes, but it is small (bytes 6 and 7 are 0), and `{`
    // follows it
    const header = file.head[6] === 0 && file.head[7] === 0 && file.head[8] === 0x7b;
    if (!header && ((a === 0x50 && b === 0x4b) || a === 0x80)) {
      if (await this.#archive(file, wanted)) return;
      const bytes = await file.read(0, file.size, this.told);
      file = await this.#converted(bytes);
    }
    this.#plan(file, await this.#index(file), wanted, this.#make);
  }

  readonly #make: Make = ([, dtype, shape], bytes) => this.host.raw.tensor(dtype, Uint32Array.from(shape), bytes);

  /** Converts a torch.save file or npz archive to safetensors. */
  async #converted(bytes: Uint8Array): Promise<Ranged> {
    const { toSafetensors } = await filesModule();
    return ofMemory(guard(() => toSafetensors(bytes)));
  }

  /**
   * Plans partial reads of a torch.save file or npz archive, each repacked as a small file; false if this file has to
   * be read whole.
   */
  async #archive(file: Ranged, wanted: (name: string) => boolean): Promise<boolean> {
    // the script of the page's worker does not include `archives`; its tasks read such files whole
    const [{ toSafetensors }, archives] = await Promise.all([filesModule(), piece("archives").catch(() => undefined)]);
    const archive = await archives?.openArchive(file, this.told, (bytes) => guard(() => toSafetensors(bytes)));
    if (!archive) return false;
    const places = new Map<string, number>();
    for (const name of archive.names) if (wanted(name)) places.set(name, this.#found.push([name, undefined]) - 1);
    const isChosen = (name: string): boolean => places.has(name);
    const pieces = archive.pieces.filter(({ names }) => names.some(isChosen));
    for (const { start, end, items } of runsOf(pieces, (piece) => piece)) {
      const fill = async (bytes: Uint8Array): Promise<void> => {
        const part = await this.#converted(archive.part(items, bytes, start, isChosen));
        const list = (await this.#index(part)).map((entry) => ({ at: places.get(entry[0]) as number, entry }));
        await this.#fill(list, part.head, 0, this.#make);
      };
      this.#runs.push({ file, start, end, fill });
    }
    return true;
  }

  /**
   * Loads the tensors of a GGUF file, whose blocks stay quantised: the graph of each tensor decodes elements where they
   * are read.
   */
  async #blocks(file: Ranged, wanted: (name: string) => boolean): Promise<void> {
    const [{ GgufIndex }] = await Promise.all([filesModule(), join(this.host.engine, "graphs")]);
    const found = await parsedStart(file, this.told, (start) => guard(() => new GgufIndex(start, file.size)));
    this.#indices.push(found);
    const { raw } = this.host;
    const numbers = new Map<string, number>();
    const entries = (guard(() => found.entries()) as [string, number, number][]).map(([name, from, to], number): Entry => {
      numbers.set(name, number);
      return [name, "f32", [], from, to];
    });
    entries.sort((a, b) => a[3] - b[3]);
    this.#plan(file, entries, wanted, ([name], bytes) => {
      const [, draws] = raw.random();
      return raw.graph(found.graph(numbers.get(name) as number, bytes, draws as number), new Uint32Array())[0] as number;
    });
  }

  async #index(file: Ranged): Promise<Entry[]> {
    const { head, size } = file;
    let header = head.subarray(0, 8);
    if (header.length === 8) {
      const length = Number(new DataView(head.buffer, head.byteOffset).getBigUint64(0, true)) + 8;
      if (length <= head.length) header = head.subarray(0, length);
      else if (length <= Math.min(size, HEADER_BYTES)) {
        header = room(length);
        header.set(head);
        header.set(await file.read(head.length, length, this.told), head.length);
      }
    }
    await join(this.host.engine, "weights");
    // the module reports an error for a length that is too small or too large
    return guard(() => this.host.engine.api.safetensorsIndex(header, size)) as Entry[];
  }

  /** Groups the requested tensors into requests; the entries are in the order of their data. */
  #plan(file: Ranged, index: readonly Entry[], wanted: (name: string) => boolean, make: Make): void {
    const items = index
      .filter(([name]) => wanted(name))
      .map((entry) => ({ at: this.#found.push([entry[0], undefined]) - 1, entry }));
    const where = ({ entry: [, , , start, end] }: Item): Span => ({ start, end });
    const reading = ({ start, end, items }: Run<Item>): Reading => ({ file, start, end, fill: (bytes) => this.#fill(items, bytes, start, make) });
    this.#runs.push(...runsOf(items, where).map(reading));
  }

  async #read({ file, start, end, fill }: Reading): Promise<void> {
    const { head } = file;
    const bytes = end <= head.length ? head.subarray(start, end) : await file.read(start, end, this.told);
    this.options.signal.throwIfAborted();
    await fill(bytes);
  }

  async #fill(items: readonly Item[], bytes: Uint8Array, start: number, make: Make): Promise<void> {
    for (const { at, entry } of items) {
      const [name, , , from, to] = entry;
      const id = guard(() => make(entry, bytes.subarray(from - start, to - start)));
      this.#found[at] = [name, made(this.host, id)];
      // data that is already in memory arrives without waiting, so yield here
      await this.#slices.breathe(this.options.signal);
    }
  }

  /** Disposes the tensors loaded so far. */
  forget(): void {
    for (const [, tensor] of this.#found) tensor?.dispose();
  }

  async close(): Promise<void> {
    for (const index of this.#indices) index.free();
    await Promise.all(this.#open.map((file) => file.close()));
  }
}

const isUrl = (source: FileSource): source is string | URL => typeof source === "string" || source instanceof URL;

/** The address of a file in the folder of `index`. */
function beside(index: string | URL, file: string): string | URL {
  return index instanceof URL ? new URL(file, index) : index.replace(/[?#].*$/s, "").replace(/[^/]*$/, "") + file;
}

/** The implementation of the function of this name in `files.ts`. */
export async function saveWeights(
  tensors: Readonly<Record<string, Tensor>>,
  { format = "safetensors" }: SaveOptions,
): Promise<Uint8Array> {
  const names = Object.keys(tensors);
  const list = Object.values(tensors);
  const host = (list.find((t) => t.device)?.device as Host | undefined) ?? (await hostOf(undefined));
  await join(host.engine, "weights");
  const ids = Uint32Array.from(list, (t) => bind(t, host).id);
  const file = await guardAsync(() => host.raw.saveWeights(names, ids) as Promise<Uint8Array>);
  if (format === "safetensors") return file;
  const { fromSafetensors } = await filesModule();
  return guard(() => fromSafetensors(file, format));
}

/** The implementation of `Tensor.fromUrl`. */
export async function readArray(from: FileSource, options: FileOptions & FetchOptions): Promise<Tensor> {
  const { dtype = "u8", shape, gunzip, device, requiresGrad } = options;
  const file = await readSource(from, options);
  const bytes = gunzip ? await unpacked(file) : file;
  const on = { ...(device && { device }), ...(requiresGrad && { requiresGrad }) };
  return reading("array", from, bytes, () => arrayOf(bytes, dtype, shape, on));
}

async function arrayOf(bytes: Uint8Array, dtype: DType, shape: readonly number[] | undefined, on: TensorOptions): Promise<Tensor> {
  if (String.fromCharCode(...bytes.subarray(0, 6)) === "\x93NUMPY") {
    const { npy } = await filesModule();
    const [own, sizes, data] = guard(() => npy(bytes) as [DType, number[], Uint8Array]);
    return new Tensor(decode(data, own), sizes, { ...on, dtype: own });
  }
  if (bytes.length % bytesOf(dtype) !== 0) throw new ValueError("E_VALUE", `${bytes.length} bytes are no whole number of ${dtype}`);
  return new Tensor(decode(bytes, dtype), shape, { ...on, dtype });
}

async function unpacked(file: Uint8Array): Promise<Uint8Array> {
  const out = new Response(file as Uint8Array<ArrayBuffer>).body?.pipeThrough(new DecompressionStream("gzip"));
  const bytes = await new Response(out).arrayBuffer().catch((cause: Error) => {
    throw new FormatError("E_FORMAT", `gzip: ${cause.message}`, { cause });
  });
  return new Uint8Array(bytes);
}
