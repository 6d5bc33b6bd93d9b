// Progress events, and downloads that report them.
import { FetchError, GradloomError, OutOfMemoryError, ValueError } from "./errors.js";
import { inNode, readFile } from "./module.js";
import { loadChunk } from "./chunks.js";

/** A progress event. In `download`, `loaded` and `total` are bytes; `total` is 0 where it is not known. */
export interface Progress {
  phase: "download" | "device" | "parse" | "compile" | "run";
  loaded: number;
  total: number;
  /** In `download`: how many of the loaded bytes came from the store of an earlier visit. */
  cached?: number;
}

/** Receives progress events. */
export type OnProgress = (progress: Progress) => void;

/** The source of a file. A string is a URL, or in Node also a path. */
export type FileSource = string | URL | Blob | ArrayBuffer | Uint8Array;

/** Options for fetching a file. */
export interface FetchOptions {
  onProgress?: OnProgress;
  signal?: AbortSignal;
  /** Replaces the global `fetch`. */
  fetch?: typeof fetch;
  /**
   * In pages, files of at least a megabyte that come from URLs are stored for later visits: in the origin private file
   * system, or else the Cache API. The server is asked whether the file has changed; if it cannot be reached, the
   * stored file is used. Interrupted downloads resume. False stores nothing; true stores even with a custom `fetch`.
   * Files that the server marks `no-store`, or for which it sends neither an ETag nor a modification date, are not
   * stored.
   */
  cache?: boolean;
  /**
   * The expected SHA-256 of the file, in hexadecimal digits or as `sha256-` and base64. A stored file with this hash is
   * used without asking the server.
   */
  hash?: string;
}

/** Throws `E_VALUE` for a value that is no source. */
export function checkSource(source: FileSource): void {
  const isBlob = typeof Blob !== "undefined" && source instanceof Blob;
  if (isBlob || typeof source === "string" || source instanceof URL || source instanceof Uint8Array || source instanceof ArrayBuffer) return;
  throw new ValueError("E_VALUE", "a file comes from a URL, a File or Blob, an ArrayBuffer or a Uint8Array");
}

/** The path for Node's file functions if the source is a local file; otherwise undefined. */
export function localPath(source: string | URL, options: FetchOptions): string | URL | undefined {
  const isPath = typeof source === "string" ? !/^[a-z][a-z0-9+.-]+:/i.test(source) : source.protocol === "file:";
  if (!inNode || options.fetch || !(isPath || String(source).startsWith("file:"))) return undefined;
  return isPath ? source : new URL(source);
}

/** Reads all bytes of a source. */
export async function readSource(source: FileSource, options: FetchOptions): Promise<Uint8Array> {
  const { signal, onProgress } = options;
  signal?.throwIfAborted();
  checkSource(source);
  if (source instanceof Uint8Array) return source;
  if (source instanceof ArrayBuffer) return new Uint8Array(source);
  const reportLoaded = (bytes: Uint8Array): Uint8Array => {
    signal?.throwIfAborted();
    onProgress?.({ phase: "download", loaded: bytes.length, total: bytes.length });
    return bytes;
  };
  if (typeof source !== "string" && !(source instanceof URL)) return reportLoaded(new Uint8Array(await source.arrayBuffer()));
  const path = localPath(source, options);
  if (path === undefined) return download(source, options);
  const bytes = await readFile(path).catch((error: Error) => {
    if (signal?.aborted) throw signal.reason;
    throw new FetchError("E_FETCH", `${source} could not be read: ${error.message}`, { cause: error });
  });
  if (options.hash !== undefined) await (await loadChunk("downloads")).verify(bytes, source, options.hash);
  return reportLoaded(bytes);
}

/** The persistent store of downloads, if this download may use it. */
export async function downloadCache({ cache, fetch: customFetch }: FetchOptions): Promise<typeof import("./downloads.js") | undefined> {
  return inNode || !(cache ?? !customFetch) ? undefined : loadChunk("downloads").catch(() => undefined);
}

async function download(source: string | URL, options: FetchOptions): Promise<Uint8Array> {
  const { onProgress, signal, hash, fetch: get = fetch } = options;
  const cached = await (await downloadCache(options))?.cachedDownload(source, options);
  if (cached) return cached;
  try {
    const response = await get(source, signal ? { signal } : {});
    if (!response.ok) throw new FetchError("E_FETCH", `${source} could not be fetched: status ${response.status}`);
    // With a content encoding, the announced length is that of the compressed bytes and useless here.
    const encoding = response.headers.get("content-encoding");
    const total = encoding && encoding !== "identity" ? 0 : Number(response.headers.get("content-length") ?? 0);
    let loaded = 0;
    const count = (bytes: number): void => {
      loaded += bytes;
      onProgress?.({ phase: "download", loaded, total });
    };
    count(0);
    const bytes = await readBody(response, count);
    if (hash !== undefined) await (await loadChunk("downloads")).verify(bytes, source, hash);
    return bytes;
  } catch (error) {
    throw fetchFailure(source, error, signal);
  }
}

/** The error to throw when fetching a source failed. */
export function fetchFailure(source: string | URL, error: unknown, signal?: AbortSignal): unknown {
  if (signal?.aborted) return signal.reason;
  if (error instanceof GradloomError) return error;
  return new FetchError("E_FETCH", `${source} could not be fetched: ${(error as Error).message}`, { cause: error });
}

/** Allocates a byte array; throws `OutOfMemoryError` if that fails. */
export function allocate(bytes: number): Uint8Array<ArrayBuffer> {
  try {
    return new Uint8Array(bytes);
  } catch (cause) {
    throw new OutOfMemoryError("E_OUT_OF_MEMORY", `there is no memory for ${bytes} bytes`, { cause });
  }
}

/**
 * Reads the body of a response; `onChunk` receives the size of each chunk. If `length` is given, the body must have
 * that length.
 */
export async function readBody(response: Response, onChunk: (bytes: number) => void, length?: number): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  const buffer = allocate(length ?? 0);
  let at = 0;
  const append = (value: Uint8Array): void => {
    if (length === undefined) parts.push(value);
    else if (at + value.length <= length) buffer.set(value, at);
    at += value.length;
    onChunk(value.length);
  };
  const reader = response.body?.getReader();
  if (!reader) append(new Uint8Array(await response.arrayBuffer()));
  while (reader) {
    const { done, value } = await reader.read();
    if (done) break;
    append(value);
    if (length !== undefined && at > length) await reader.cancel();
  }
  if (length !== undefined) {
    if (at === length) return buffer;
    throw new FetchError("E_FETCH", `${at < length ? "only" : "as many as"} ${at} bytes came where ${length} were announced`);
  }
  const bytes = allocate(at);
  at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}
