// Progress events, and downloads that tell them.
import { FetchError, GradloomError, OutOfMemoryError, ValueError } from "./errors.js";
import { inNode, readFile } from "./module.js";
import { piece } from "./pieces.js";

/** What is going on. `loaded` and `total` are bytes in `download`; `total` is 0 where it is not known. */
export interface Progress {
  phase: "download" | "device" | "parse" | "compile" | "run";
  loaded: number;
  total: number;
  /** Of those in `download`, bytes that an earlier visit left here. */
  cached?: number;
}

/** Told of progress. */
export type OnProgress = (progress: Progress) => void;

/** What a model or a file of weights can be loaded from. A string is a URL, or in Node also a path. */
export type FileSource = string | URL | Blob | ArrayBuffer | Uint8Array;

/** How a file is fetched. */
export interface FetchOptions {
  onProgress?: OnProgress;
  signal?: AbortSignal;
  /** Used instead of the global `fetch`. */
  fetch?: typeof fetch;
  /**
   * Files of a megabyte and more that come from URLs are kept for later visits, in pages: in the origin's private file system, or else
   * the Cache API. The server is asked whether the file is still the same; where it cannot be reached, what is here is taken. A
   * download that was cut off goes on where it was. False keeps nothing; true does so for a `fetch` of one's own, too. What a server
   * marks `no-store`, or gives neither an ETag nor a date, is not kept.
   */
  cache?: boolean;
  /** The SHA-256 that a fetched file must have: hexadecimal digits, or `sha256-` and base64. What is kept with it needs no asking. */
  hash?: string;
}

/** Fails for what is no source. */
export function checkSource(source: FileSource): void {
  const isBlob = typeof Blob !== "undefined" && source instanceof Blob;
  if (isBlob || typeof source === "string" || source instanceof URL || source instanceof Uint8Array || source instanceof ArrayBuffer) return;
  throw new ValueError("E_VALUE", "a file comes from a URL, a File or Blob, an ArrayBuffer or a Uint8Array");
}

/** What Node's file functions take, if the source is a file of its disk. */
export function pathOf(source: string | URL, options: FetchOptions): string | URL | undefined {
  const isPath = typeof source === "string" ? !/^[a-z][a-z0-9+.-]+:/i.test(source) : source.protocol === "file:";
  if (!inNode || options.fetch || !(isPath || String(source).startsWith("file:"))) return undefined;
  return isPath ? source : new URL(source);
}

/** The bytes of a source. */
export async function readSource(source: FileSource, options: FetchOptions): Promise<Uint8Array> {
  const { signal, onProgress } = options;
  signal?.throwIfAborted();
  checkSource(source);
  if (source instanceof Uint8Array) return source;
  if (source instanceof ArrayBuffer) return new Uint8Array(source);
  const whole = (bytes: Uint8Array): Uint8Array => {
    signal?.throwIfAborted();
    onProgress?.({ phase: "download", loaded: bytes.length, total: bytes.length });
    return bytes;
  };
  if (typeof source !== "string" && !(source instanceof URL)) return whole(new Uint8Array(await source.arrayBuffer()));
  const path = pathOf(source, options);
  if (path === undefined) return download(source, options);
  const bytes = await readFile(path).catch((error: Error) => {
    if (signal?.aborted) throw signal.reason;
    throw new FetchError("E_FETCH", `${source} could not be read: ${error.message}`, { cause: error });
  });
  if (options.hash !== undefined) await (await piece("downloads")).verify(bytes, source, options.hash);
  return whole(bytes);
}

/** Where files of pages are kept, if this one may be. */
export async function keeper({ cache, fetch: own }: FetchOptions): Promise<typeof import("./downloads.js") | undefined> {
  return inNode || !(cache ?? !own) ? undefined : piece("downloads").catch(() => undefined);
}

async function download(source: string | URL, options: FetchOptions): Promise<Uint8Array> {
  const { onProgress, signal, hash, fetch: get = fetch } = options;
  const kept = await (await keeper(options))?.cachedDownload(source, options);
  if (kept) return kept;
  try {
    const response = await get(source, signal ? { signal } : {});
    if (!response.ok) throw new FetchError("E_FETCH", `${source} could not be fetched: status ${response.status}`);
    // With a content encoding the length is that of the packed bytes, which says nothing here.
    const packed = response.headers.get("content-encoding");
    const total = packed && packed !== "identity" ? 0 : Number(response.headers.get("content-length") ?? 0);
    let loaded = 0;
    const tell = (bytes: number): void => {
      loaded += bytes;
      onProgress?.({ phase: "download", loaded, total });
    };
    tell(0);
    const bytes = await bodyOf(response, tell);
    if (hash !== undefined) await (await piece("downloads")).verify(bytes, source, hash);
    return bytes;
  } catch (error) {
    throw fetchFailure(source, error, signal);
  }
}

/** What is thrown when fetching a source failed. */
export function fetchFailure(source: string | URL, error: unknown, signal?: AbortSignal): unknown {
  if (signal?.aborted) return signal.reason;
  if (error instanceof GradloomError) return error;
  return new FetchError("E_FETCH", `${source} could not be fetched: ${(error as Error).message}`, { cause: error });
}

/** Memory for so many bytes. */
export function room(bytes: number): Uint8Array<ArrayBuffer> {
  try {
    return new Uint8Array(bytes);
  } catch (cause) {
    throw new OutOfMemoryError("E_OUT_OF_MEMORY", `there is no memory for ${bytes} bytes`, { cause });
  }
}

/** The body of an answer; `told` hears how many more bytes have come. If a length is given, it must be that. */
export async function bodyOf(response: Response, told: (bytes: number) => void, length?: number): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  const whole = room(length ?? 0);
  let at = 0;
  const take = (value: Uint8Array): void => {
    if (length === undefined) parts.push(value);
    else if (at + value.length <= length) whole.set(value, at);
    at += value.length;
    told(value.length);
  };
  const reader = response.body?.getReader();
  if (!reader) take(new Uint8Array(await response.arrayBuffer()));
  while (reader) {
    const { done, value } = await reader.read();
    if (done) break;
    take(value);
    if (length !== undefined && at > length) await reader.cancel();
  }
  if (length !== undefined) {
    if (at === length) return whole;
    throw new FetchError("E_FETCH", `${at < length ? "only" : "as many as"} ${at} bytes came where ${length} were announced`);
  }
  const bytes = room(at);
  at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}
