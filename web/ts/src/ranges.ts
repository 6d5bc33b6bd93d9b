// Files that are read in parts: on a server that supports Range requests, in a File or Blob, on Node's disk, or in
// memory. From a server without Range requests the whole file is fetched.
import { FetchError } from "./errors.js";
import { builtin } from "./module.js";
import { type FetchOptions, type FileSource, bodyOf, checkSource, fetchFailure, keeper, pathOf, readSource, room } from "./progress.js";

/** Receives the number of bytes that have arrived since the last call. */
export type Told = (bytes: number) => void;

/** An open file. */
export interface Ranged {
  /** Its length in bytes. */
  readonly size: number;
  /** Its first bytes, as many as the first request returned. */
  readonly head: Uint8Array;
  /** The bytes from `start` up to `end`. */
  read(start: number, end: number, told: Told): Promise<Uint8Array>;
  close(): Promise<void>;
}

type Plain = Uint8Array<ArrayBuffer>;

/** Size of the first request: the headers of most files are shorter. */
const HEAD_BYTES = 1 << 16;

const closed = async (): Promise<void> => {};

/** A file that is in memory. */
export function ofMemory(bytes: Uint8Array): Ranged {
  return { size: bytes.length, head: bytes, read: async (start, end) => bytes.subarray(start, end), close: closed };
}

/** Opens a file; the bytes of the first request are reported to `told`. */
export async function openRanges(source: FileSource, options: FetchOptions, told: Told): Promise<Ranged> {
  options.signal?.throwIfAborted();
  checkSource(source);
  if (source instanceof Uint8Array) return ofMemory(source);
  if (source instanceof ArrayBuffer) return ofMemory(new Uint8Array(source));
  if (typeof source !== "string" && !(source instanceof URL)) return ofBlob(source, options, told);
  const path = pathOf(source, options);
  if (path !== undefined) return onDisk(path, options, told);
  return options.hash === undefined ? ofServer(source, options, told) : ofWhole(source, options, told);
}

async function ofBlob(blob: Blob, { signal }: FetchOptions, told: Told): Promise<Ranged> {
  const read = async (start: number, end: number, tell: Told): Promise<Plain> => {
    const bytes = new Uint8Array(await blob.slice(start, end).arrayBuffer());
    signal?.throwIfAborted();
    tell(bytes.length);
    return bytes;
  };
  return { size: blob.size, head: await read(0, HEAD_BYTES, told), read, close: closed };
}

/** The part of Node's file handles that is used here. */
interface FileHandle {
  stat(): Promise<{ size: number }>;
  read(into: Uint8Array, offset: number, length: number, position: number): Promise<{ bytesRead: number }>;
  close(): Promise<void>;
}

async function onDisk(path: string | URL, { signal }: FetchOptions, told: Told): Promise<Ranged> {
  const failed = (error: unknown): never => {
    if (signal?.aborted) throw signal.reason;
    throw error instanceof FetchError ? error : new FetchError("E_FETCH", `${path} could not be read: ${(error as Error).message}`, { cause: error });
  };
  const { open } = await builtin("node:fs/promises");
  const handle: FileHandle = await open(path).catch(failed);
  const read = async (start: number, end: number, tell: Told): Promise<Plain> => {
    const bytes = room(end - start);
    for (let at = 0; at < bytes.length; ) {
      const { bytesRead } = await handle.read(bytes, at, bytes.length - at, start + at).catch(failed);
      signal?.throwIfAborted();
      if (bytesRead === 0) throw new FetchError("E_FETCH", `${path} ended at byte ${start + at} of ${end}`);
      at += bytesRead;
      tell(bytesRead);
    }
    return bytes;
  };
  try {
    const { size } = await handle.stat().catch(failed);
    return { size, head: await read(0, Math.min(size, HEAD_BYTES), told), read, close: () => handle.close() };
  } catch (error) {
    await handle.close();
    throw error;
  }
}

/** The range of a partial response, and the size of the whole file. */
interface Part {
  start: number;
  end: number;
  size: number;
  /** The version of the file: ETag or modification date. */
  version: string | null;
}

/** Undefined if the range is unknown: e.g. another origin does not expose the header, or the response is compressed. */
function partOf({ headers }: Response): Part | undefined {
  const found = /^bytes (\d+)-(\d+)\/(\d+)$/.exec(headers.get("content-range") ?? "");
  const packed = headers.get("content-encoding");
  if (!found || (packed && packed !== "identity")) return undefined;
  const [start, last, size] = found.slice(1).map(Number) as [number, number, number];
  return { start, end: last + 1, size, version: headers.get("etag") ?? headers.get("last-modified") };
}

/** Fetches the whole file. Its length may be unknown in advance, so it is reported to `told` like a part. */
async function ofWhole(source: string | URL, options: FetchOptions, told: Told): Promise<Ranged> {
  let before = 0;
  const onProgress = ({ loaded }: { loaded: number }): void => {
    told(loaded - before);
    before = loaded;
  };
  return ofMemory(await readSource(source, { ...options, onProgress }));
}

async function ofServer(source: string | URL, options: FetchOptions, told: Told): Promise<Ranged> {
  const { signal, fetch: get = fetch } = options;
  const ask = (start: number, end: number): Promise<Response> => {
    return get(source, { headers: { Range: `bytes=${start}-${end - 1}` }, ...(signal && { signal }) });
  };
  const whole = (): Promise<Ranged> => ofWhole(source, options, told);
  const wrong = (what: string): FetchError => new FetchError("E_FETCH", `${source} could not be read by ranges: ${what}`);
  try {
    let first: Response;
    try {
      first = await ask(0, HEAD_BYTES);
    } catch (error) {
      if (signal?.aborted) throw error;
      // A server of another origin may refuse requests with a Range header but allow plain ones.
      return await whole();
    }
    if (first.status === 200) return ofMemory(await bodyOf(first, told));
    const part = first.status === 206 ? partOf(first) : undefined;
    if (!part) {
      await first.body?.cancel();
      // an empty file has no valid range
      if (first.status === 206 || first.status === 416) return await whole();
      throw new FetchError("E_FETCH", `${source} could not be fetched: status ${first.status}`);
    }
    const { size, version } = part;
    if (part.start !== 0 || part.end !== Math.min(size, HEAD_BYTES)) {
      await first.body?.cancel();
      throw wrong(`bytes ${part.start} to ${part.end} came for 0 to ${HEAD_BYTES}`);
    }
    const head = await bodyOf(first, told, part.end);
    const read = async (start: number, end: number, tell: Told): Promise<Uint8Array> => {
      try {
        const response = await ask(start, end);
        const got = response.status === 206 ? partOf(response) : undefined;
        const same = got && got.start === start && got.end === end && got.size === size && got.version === version;
        if (same) return await bodyOf(response, tell, end - start);
        await response.body?.cancel();
        if (!got) throw wrong(`status ${response.status} came for bytes ${start} to ${end}`);
        const changed = got.size !== size || got.version !== version;
        throw wrong(changed ? "it changed meanwhile" : `bytes ${got.start} to ${got.end} came for ${start} to ${end}`);
      } catch (error) {
        throw fetchFailure(source, error, signal);
      }
    };
    const plain = { size, head, read, close: closed };
    return (await (await keeper(options))?.cachedRanges(source, plain, version, first)) ?? plain;
  } catch (error) {
    throw fetchFailure(source, error, signal);
  }
}
