// Files that are read in parts: on a server that supports Range requests, in a File or Blob, on Node's disk, or in
// memory. From a server without Range requests the whole file is fetched.
import { FetchError } from "./errors.js";
import { builtin } from "./module.js";
import { type FetchOptions, type FileSource, allocate, checkSource, downloadCache, fetchFailure, localPath, readBody, readSource } from "./progress.js";

/** Receives the number of bytes that have arrived since the last call. */
export type OnBytes = (bytes: number) => void;

/** An open file. */
export interface RangeReader {
  /** Its length in bytes. */
  readonly size: number;
  /** Its first bytes, as many as the first request returned. */
  readonly head: Uint8Array;
  /** The bytes from `start` up to `end`. */
  read(start: number, end: number, onBytes: OnBytes): Promise<Uint8Array>;
  close(): Promise<void>;
}

type Bytes = Uint8Array<ArrayBuffer>;

/** Size of the first request: the headers of most files are shorter. */
const HEAD_BYTES = 1 << 16;

const noop = async (): Promise<void> => {};

/** A file that is in memory. */
export function readerOfMemory(bytes: Uint8Array): RangeReader {
  return { size: bytes.length, head: bytes, read: async (start, end) => bytes.subarray(start, end), close: noop };
}

/** Opens a file; the bytes of the first request are reported to `onBytes`. */
export async function openRanges(source: FileSource, options: FetchOptions, onBytes: OnBytes): Promise<RangeReader> {
  options.signal?.throwIfAborted();
  checkSource(source);
  if (source instanceof Uint8Array) return readerOfMemory(source);
  if (source instanceof ArrayBuffer) return readerOfMemory(new Uint8Array(source));
  if (typeof source !== "string" && !(source instanceof URL)) return readerOfBlob(source, options, onBytes);
  const path = localPath(source, options);
  if (path !== undefined) return readerOfPath(path, options, onBytes);
  return options.hash === undefined ? readerOfServer(source, options, onBytes) : downloadWhole(source, options, onBytes);
}

async function readerOfBlob(blob: Blob, { signal }: FetchOptions, onBytes: OnBytes): Promise<RangeReader> {
  const read = async (start: number, end: number, onBytes: OnBytes): Promise<Bytes> => {
    const bytes = new Uint8Array(await blob.slice(start, end).arrayBuffer());
    signal?.throwIfAborted();
    onBytes(bytes.length);
    return bytes;
  };
  return { size: blob.size, head: await read(0, HEAD_BYTES, onBytes), read, close: noop };
}

/** The part of Node's file handles that is used here. */
interface FileHandle {
  stat(): Promise<{ size: number }>;
  read(into: Uint8Array, offset: number, length: number, position: number): Promise<{ bytesRead: number }>;
  close(): Promise<void>;
}

async function readerOfPath(path: string | URL, { signal }: FetchOptions, onBytes: OnBytes): Promise<RangeReader> {
  const throwReadError = (error: unknown): never => {
    if (signal?.aborted) throw signal.reason;
    throw error instanceof FetchError ? error : new FetchError("E_FETCH", `${path} could not be read: ${(error as Error).message}`, { cause: error });
  };
  const { open } = await builtin("node:fs/promises");
  const handle: FileHandle = await open(path).catch(throwReadError);
  const read = async (start: number, end: number, onBytes: OnBytes): Promise<Bytes> => {
    const bytes = allocate(end - start);
    for (let at = 0; at < bytes.length; ) {
      const { bytesRead } = await handle.read(bytes, at, bytes.length - at, start + at).catch(throwReadError);
      signal?.throwIfAborted();
      if (bytesRead === 0) throw new FetchError("E_FETCH", `${path} ended at byte ${start + at} of ${end}`);
      at += bytesRead;
      onBytes(bytesRead);
    }
    return bytes;
  };
  try {
    const { size } = await handle.stat().catch(throwReadError);
    return { size, head: await read(0, Math.min(size, HEAD_BYTES), onBytes), read, close: () => handle.close() };
  } catch (error) {
    await handle.close();
    throw error;
  }
}

/** The range of a partial response, and the size of the whole file. */
interface ContentRange {
  start: number;
  end: number;
  size: number;
  /** The version of the file: ETag or modification date. */
  version: string | null;
}

/** Undefined if the range is unknown: e.g. another origin does not expose the header, or the response is compressed. */
function parseContentRange({ headers }: Response): ContentRange | undefined {
  const found = /^bytes (\d+)-(\d+)\/(\d+)$/.exec(headers.get("content-range") ?? "");
  const contentEncoding = headers.get("content-encoding");
  if (!found || (contentEncoding && contentEncoding !== "identity")) return undefined;
  const [start, last, size] = found.slice(1).map(Number) as [number, number, number];
  return { start, end: last + 1, size, version: headers.get("etag") ?? headers.get("last-modified") };
}

/** Fetches the whole file. Its length may be unknown in advance, so it is reported to `onBytes` like a part. */
async function downloadWhole(source: string | URL, options: FetchOptions, onBytes: OnBytes): Promise<RangeReader> {
  let reported = 0;
  const onProgress = ({ loaded }: { loaded: number }): void => {
    onBytes(loaded - reported);
    reported = loaded;
  };
  return readerOfMemory(await readSource(source, { ...options, onProgress }));
}

async function readerOfServer(source: string | URL, options: FetchOptions, onBytes: OnBytes): Promise<RangeReader> {
  const { signal, fetch: fetchFile = fetch } = options;
  const store = await downloadCache(options);
  const requestRange = (start: number, end: number, init: RequestInit = {}): Promise<Response> => {
    return fetchFile(source, { ...init, headers: { Range: `bytes=${start}-${end - 1}` }, ...(signal && { signal }) });
  };
  const readWhole = (): Promise<RangeReader> => downloadWhole(source, options, onBytes);
  const rangeError = (what: string): FetchError => new FetchError("E_FETCH", `${source} could not be read by ranges: ${what}`);
  try {
    let first: Response;
    try {
      first = await requestRange(0, HEAD_BYTES);
    } catch (error) {
      if (signal?.aborted) throw error;
      // A server of another origin may refuse requests with a Range header but allow plain ones.
      return await readWhole();
    }
    if (first.status === 200) return readerOfMemory(await readBody(first, onBytes));
    const part = first.status === 206 ? parseContentRange(first) : undefined;
    if (!part) {
      await first.body?.cancel();
      // an empty file has no valid range
      if (first.status === 206 || first.status === 416) return await readWhole();
      throw new FetchError("E_FETCH", `${source} could not be fetched: status ${first.status}`);
    }
    const { size, version } = part;
    if (part.start !== 0 || part.end !== Math.min(size, HEAD_BYTES)) {
      await first.body?.cancel();
      throw rangeError(`bytes ${part.start} to ${part.end} came for 0 to ${HEAD_BYTES}`);
    }
    const head = await readBody(first, onBytes, part.end);
    // what is kept in the store of downloads need not be in the browser's HTTP cache too
    const init: RequestInit = store && size >= store.MIN_STORED_BYTES ? { cache: "no-store" } : {};
    const read = async (start: number, end: number, onBytes: OnBytes): Promise<Uint8Array> => {
      try {
        const response = await requestRange(start, end, init);
        const received = response.status === 206 ? parseContentRange(response) : undefined;
        const isExpected = received && received.start === start && received.end === end && received.size === size && received.version === version;
        if (isExpected) return await readBody(response, onBytes, end - start);
        await response.body?.cancel();
        if (!received) throw rangeError(`status ${response.status} came for bytes ${start} to ${end}`);
        const changed = received.size !== size || received.version !== version;
        throw rangeError(changed ? "it changed meanwhile" : `bytes ${received.start} to ${received.end} came for ${start} to ${end}`);
      } catch (error) {
        throw fetchFailure(source, error, signal);
      }
    };
    const uncachedReader = { size, head, read, close: noop };
    return (await store?.cachedRanges(source, uncachedReader, version, first)) ?? uncachedReader;
  } catch (error) {
    throw fetchFailure(source, error, signal);
  }
}
