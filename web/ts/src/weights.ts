// Files of tensors: loads weights by name, by range requests where possible, reads single arrays, and saves tensors.
// Loaded on first use.
import { type Host, hostOf, useByDefault } from "./device.js";
import { type DType, bytesOf, decode } from "./dtype.js";
import { FormatError, InputError, ValueError, guard, guardAsync } from "./errors.js";
import { filesModule } from "./lazy-wasm.js";
import { parseGrowingHead } from "./gguf.js";
import { type SaveOptions, type WeightOptions, hasGgufName, withFormatHint } from "./files.js";
import { loadPart, prefetch } from "./wasm-parts.js";
import { loadChunk } from "./chunks.js";
import { type FetchOptions, type FileSource, allocate, readSource } from "./progress.js";
import { type RangeReader, type OnBytes, readerOfMemory, openRanges } from "./ranges.js";
import { type ByteRange, type ReadRequest, coalesce, forEachLimited } from "./requests.js";
import { type FileOptions, Tensor, type TensorOptions, bind, made } from "./tensor.js";
import { TimeSlices } from "./event-loop.js";

/** The longest safetensors header that is fetched; the wasm module accepts none that is longer. */
const HEADER_BYTES = 100_000_008;

type Entry = [name: string, dtype: DType, shape: number[], start: number, end: number];

/** Creates a tensor from its bytes and returns its id. */
type CreateTensor = (entry: Entry, bytes: Uint8Array) => number;

/** A tensor to load: its index in the result, and its entry in the file. */
type PlannedTensor = { at: number; entry: Entry };

/** A byte range that is read in one request, and the function that creates tensors from it. */
interface PlannedRead extends ByteRange {
  file: RangeReader;
  use(bytes: Uint8Array): Promise<void>;
}

/** The implementation of the function of this name in `files.ts`. */
export async function loadWeights(from: FileSource, options: WeightOptions): Promise<Record<string, Tensor>> {
  const { signal, onProgress } = options;
  const hostLoading = hostOf(options.device);
  if (!hasGgufName(from)) prefetch("weights");
  const host = await guardAsync(() => hostLoading, signal);
  // One failure aborts everything that is in progress.
  const controller = new AbortController();
  const abort = (): void => controller.abort(signal?.reason);
  if (signal?.aborted) abort();
  signal?.addEventListener("abort", abort);
  let [loaded, total] = [0, 0];
  const onBytes: OnBytes = (bytes) => {
    loaded += bytes;
    onProgress?.({ phase: "download", loaded, total });
  };
  const abortableOptions = { ...options, signal: controller.signal };
  const loader = new WeightsLoader(host, abortableOptions, onBytes, (bytes) => (total = loaded + bytes));
  try {
    const out = await loader.load(from);
    useByDefault(host);
    return out;
  } catch (error) {
    controller.abort();
    loader.disposeLoaded();
    throw signal?.aborted ? signal.reason : error;
  } finally {
    signal?.removeEventListener("abort", abort);
    await loader.close();
  }
}

class WeightsLoader {
  readonly #openFiles: RangeReader[] = [];
  /** Names and tensors in the order of the files; a tensor is undefined until it is loaded. */
  readonly #loaded: [name: string, tensor: Tensor | undefined][] = [];
  readonly #reads: PlannedRead[] = [];
  readonly #indices: { free(): void }[] = [];
  readonly #slices = new TimeSlices();

  constructor(
    readonly host: Host,
    readonly options: WeightOptions & { signal: AbortSignal },
    readonly onBytes: OnBytes,
    /** Receives how many bytes remain to be read, once that is known. */
    readonly onRemaining: (bytes: number) => void,
  ) {}

  async load(from: FileSource): Promise<Record<string, Tensor>> {
    const { only } = this.options;
    const names = typeof only === "function" || !only ? undefined : new Set(only);
    const wanted = typeof only === "function" ? only : (name: string) => !names || names.has(name);
    if (isUrl(from) && /^[^?#]*\.index\.json([?#]|$)/.test(String(from))) await this.#planShards(from, wanted);
    else await this.#openAndPlan(from, wanted);
    this.onRemaining(this.#reads.reduce((sum, { file, start, end }) => sum + (end <= file.head.length ? 0 : end - start), 0));
    await forEachLimited(this.#reads, (run) => this.#read(run));
    const out = Object.fromEntries(this.#loaded as [string, Tensor][]);
    const missing = [...(names ?? [])].find((name) => !Object.hasOwn(out, name));
    if (missing !== undefined) throw new InputError("E_INPUT", `${isUrl(from) ? from : "the file"} has no tensor ${missing}`);
    return out;
  }

  /** Loads those files listed in an index that contain requested tensors. */
  async #planShards(from: string | URL, wanted: (name: string) => boolean): Promise<void> {
    const { onProgress: _, ...silentOptions } = this.options;
    const bytes = await readSource(from, silentOptions);
    const files = new Map<string, Set<string>>();
    await loadPart(this.host.engine, "weights");
    const pairs = await withFormatHint("index", from, bytes, () => guard(() => this.host.raw.shards(bytes)) as [string, string][]);
    for (const [name, file] of pairs) {
      if (!wanted(name)) continue;
      if (!files.has(file)) files.set(file, new Set());
      files.get(file)?.add(name);
    }
    for (const [file, names] of files) {
      // tensors of a file that the index does not list are not part of the model
      await this.#openAndPlan(siblingFile(from, file), (name) => names.delete(name));
      const [missing] = names;
      if (missing !== undefined) throw new InputError("E_INPUT", `the files of ${from} lack the tensor ${missing}`);
    }
  }

  async #openAndPlan(from: FileSource, wanted: (name: string) => boolean): Promise<void> {
    const file = await openRanges(from, this.options, this.onBytes);
    this.#openFiles.push(file);
    await withFormatHint("weights", from, file, () => this.#planFile(file, wanted));
  }

  async #planFile(from: RangeReader, wanted: (name: string) => boolean): Promise<void> {
    let file = from;
    const [a, b] = file.head;
    if (String.fromCharCode(...file.head.subarray(0, 4)) === "GGUF") return this.#planGguf(file, wanted);
    // the length field of a safetensors header may begin with any bytes, but it is small (bytes 6 and 7 are 0), and `{`
    // follows it
    const header = file.head[6] === 0 && file.head[7] === 0 && file.head[8] === 0x7b;
    if (!header && ((a === 0x50 && b === 0x4b) || a === 0x80)) {
      if (await this.#planArchive(file, wanted)) return;
      const bytes = await file.read(0, file.size, this.onBytes);
      file = await this.#convertToSafetensors(bytes);
    }
    this.#planReads(file, await this.#index(file), wanted, this.#createTensor);
  }

  readonly #createTensor: CreateTensor = ([, dtype, shape], bytes) => this.host.raw.tensor(dtype, Uint32Array.from(shape), bytes);

  /** Converts a torch.save file or npz archive to safetensors. */
  async #convertToSafetensors(bytes: Uint8Array): Promise<RangeReader> {
    const { toSafetensors } = await filesModule();
    return readerOfMemory(guard(() => toSafetensors(bytes)));
  }

  /**
   * Plans partial reads of a torch.save file or npz archive, each repacked as a small file; false if this file has to
   * be read whole.
   */
  async #planArchive(file: RangeReader, wanted: (name: string) => boolean): Promise<boolean> {
    // the script of the page's worker does not include `archives`; its tasks read such files whole
    const [{ toSafetensors }, archives] = await Promise.all([filesModule(), loadChunk("archives").catch(() => undefined)]);
    const archive = await archives?.openArchive(file, this.onBytes, (bytes) => guard(() => toSafetensors(bytes)));
    if (!archive) return false;
    const resultIndices = new Map<string, number>();
    for (const name of archive.names) if (wanted(name)) resultIndices.set(name, this.#loaded.push([name, undefined]) - 1);
    const isWanted = (name: string): boolean => resultIndices.has(name);
    const pieces = archive.pieces.filter(({ names }) => names.some(isWanted));
    for (const { start, end, items } of coalesce(pieces, (piece) => piece)) {
      const use = async (bytes: Uint8Array): Promise<void> => {
        const part = await this.#convertToSafetensors(archive.part(items, bytes, start, isWanted));
        const list = (await this.#index(part)).map((entry) => ({ at: resultIndices.get(entry[0]) as number, entry }));
        await this.#createTensors(list, part.head, 0, this.#createTensor);
      };
      this.#reads.push({ file, start, end, use });
    }
    return true;
  }

  /**
   * Loads the tensors of a GGUF file, whose blocks stay quantised: the graph of each tensor decodes elements where they
   * are read.
   */
  async #planGguf(file: RangeReader, wanted: (name: string) => boolean): Promise<void> {
    const [{ GgufIndex }] = await Promise.all([filesModule(), loadPart(this.host.engine, "graphs")]);
    const ggufIndex = await parseGrowingHead(file, this.onBytes, (start) => guard(() => new GgufIndex(start, file.size)));
    this.#indices.push(ggufIndex);
    const { raw } = this.host;
    const tensorNumbers = new Map<string, number>();
    const entries = (guard(() => ggufIndex.entries()) as [string, number, number][]).map(([name, from, to], number): Entry => {
      tensorNumbers.set(name, number);
      return [name, "f32", [], from, to];
    });
    entries.sort((a, b) => a[3] - b[3]);
    this.#planReads(file, entries, wanted, ([name], bytes) => {
      const [, draws] = raw.random();
      return raw.graph(ggufIndex.graph(tensorNumbers.get(name) as number, bytes, draws as number), new Uint32Array())[0] as number;
    });
  }

  async #index(file: RangeReader): Promise<Entry[]> {
    const { head, size } = file;
    let header = head.subarray(0, 8);
    if (header.length === 8) {
      const length = Number(new DataView(head.buffer, head.byteOffset).getBigUint64(0, true)) + 8;
      if (length <= head.length) header = head.subarray(0, length);
      else if (length <= Math.min(size, HEADER_BYTES)) {
        header = allocate(length);
        header.set(head);
        header.set(await file.read(head.length, length, this.onBytes), head.length);
      }
    }
    await loadPart(this.host.engine, "weights");
    // the module reports an error for a length that is too small or too large
    return guard(() => this.host.engine.api.safetensorsIndex(header, size)) as Entry[];
  }

  /** Groups the requested tensors into requests; the entries are in the order of their data. */
  #planReads(file: RangeReader, index: readonly Entry[], wanted: (name: string) => boolean, create: CreateTensor): void {
    const items = index
      .filter(([name]) => wanted(name))
      .map((entry) => ({ at: this.#loaded.push([entry[0], undefined]) - 1, entry }));
    const spanOf = ({ entry: [, , , start, end] }: PlannedTensor): ByteRange => ({ start, end });
    const plannedRead = ({ start, end, items }: ReadRequest<PlannedTensor>): PlannedRead => {
      return { file, start, end, use: (bytes) => this.#createTensors(items, bytes, start, create) };
    };
    this.#reads.push(...coalesce(items, spanOf).map(plannedRead));
  }

  async #read({ file, start, end, use }: PlannedRead): Promise<void> {
    const { head } = file;
    const bytes = end <= head.length ? head.subarray(start, end) : await file.read(start, end, this.onBytes);
    this.options.signal.throwIfAborted();
    await use(bytes);
  }

  async #createTensors(items: readonly PlannedTensor[], bytes: Uint8Array, start: number, create: CreateTensor): Promise<void> {
    for (const { at, entry } of items) {
      const [name, , , from, to] = entry;
      const id = guard(() => create(entry, bytes.subarray(from - start, to - start)));
      this.#loaded[at] = [name, made(this.host, id)];
      // data that is already in memory arrives without waiting, so yield here
      await this.#slices.yieldIfDue(this.options.signal);
    }
  }

  /** Disposes the tensors loaded so far. */
  disposeLoaded(): void {
    for (const [, tensor] of this.#loaded) tensor?.dispose();
  }

  async close(): Promise<void> {
    for (const index of this.#indices) index.free();
    await Promise.all(this.#openFiles.map((file) => file.close()));
  }
}

const isUrl = (source: FileSource): source is string | URL => typeof source === "string" || source instanceof URL;

/** The address of a file in the folder of `index`. */
function siblingFile(index: string | URL, file: string): string | URL {
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
  await loadPart(host.engine, "weights");
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
  const bytes = gunzip ? await decompressGzip(file) : file;
  const tensorOptions = { ...(device && { device }), ...(requiresGrad && { requiresGrad }) };
  return withFormatHint("array", from, bytes, () => arrayOf(bytes, dtype, shape, tensorOptions));
}

async function arrayOf(bytes: Uint8Array, dtype: DType, shape: readonly number[] | undefined, tensorOptions: TensorOptions): Promise<Tensor> {
  if (String.fromCharCode(...bytes.subarray(0, 6)) === "\x93NUMPY") {
    const { npy } = await filesModule();
    const [fileDtype, sizes, data] = guard(() => npy(bytes) as [DType, number[], Uint8Array]);
    return new Tensor(decode(data, fileDtype), sizes, { ...tensorOptions, dtype: fileDtype });
  }
  if (bytes.length % bytesOf(dtype) !== 0) throw new ValueError("E_VALUE", `${bytes.length} bytes are no whole number of ${dtype}`);
  return new Tensor(decode(bytes, dtype), shape, { ...tensorOptions, dtype });
}

async function decompressGzip(file: Uint8Array): Promise<Uint8Array> {
  const out = new Response(file as Uint8Array<ArrayBuffer>).body?.pipeThrough(new DecompressionStream("gzip"));
  const bytes = await new Response(out).arrayBuffer().catch((cause: Error) => {
    throw new FormatError("E_FORMAT", `gzip: ${cause.message}`, { cause });
  });
  return new Uint8Array(bytes);
}
