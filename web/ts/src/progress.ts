// Progress events, and downloads that tell them.
import { FetchError, ValueError } from "./errors.js";
import { inNode, readFile } from "./module.js";

/** What is going on. `loaded` and `total` are bytes in `download`; `total` is 0 where it is not known. */
export interface Progress {
  phase: "download" | "device" | "parse" | "compile" | "run";
  loaded: number;
  total: number;
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
}

/** The bytes of a source. */
export async function readSource(source: FileSource, options: FetchOptions): Promise<Uint8Array> {
  options.signal?.throwIfAborted();
  if (source instanceof Uint8Array) return source;
  if (source instanceof ArrayBuffer) return new Uint8Array(source);
  if (typeof Blob !== "undefined" && source instanceof Blob) {
    const bytes = new Uint8Array(await source.arrayBuffer());
    options.signal?.throwIfAborted();
    options.onProgress?.({ phase: "download", loaded: bytes.length, total: bytes.length });
    return bytes;
  }
  if (typeof source !== "string" && !(source instanceof URL)) {
    throw new ValueError("E_VALUE", "a model comes from a URL, a File or Blob, an ArrayBuffer or a Uint8Array");
  }
  const isPath = typeof source === "string" ? !/^[a-z][a-z0-9+.-]+:/i.test(source) : source.protocol === "file:";
  if (inNode && (isPath || String(source).startsWith("file:")) && !options.fetch) {
    try {
      const bytes = await readFile(isPath && typeof source === "string" ? source : new URL(source));
      options.signal?.throwIfAborted();
      options.onProgress?.({ phase: "download", loaded: bytes.length, total: bytes.length });
      return bytes;
    } catch (error) {
      if (options.signal?.aborted) throw options.signal.reason;
      throw new FetchError("E_FETCH", `${source} could not be read: ${(error as Error).message}`, { cause: error });
    }
  }
  return download(source, options);
}

async function download(source: string | URL, { onProgress, signal, fetch: get = fetch }: FetchOptions): Promise<Uint8Array> {
  try {
    const response = await get(source, signal ? { signal } : {});
    if (!response.ok) throw new FetchError("E_FETCH", `${source} could not be fetched: status ${response.status}`);
    // With a content encoding the length is that of the packed bytes, which says nothing here.
    const packed = response.headers.get("content-encoding");
    const total = packed && packed !== "identity" ? 0 : Number(response.headers.get("content-length") ?? 0);
    if (!response.body) return new Uint8Array(await response.arrayBuffer());
    const parts: Uint8Array[] = [];
    let loaded = 0;
    const reader = response.body.getReader();
    onProgress?.({ phase: "download", loaded, total });
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      parts.push(value);
      loaded += value.length;
      onProgress?.({ phase: "download", loaded, total });
    }
    const bytes = new Uint8Array(loaded);
    let at = 0;
    for (const part of parts) {
      bytes.set(part, at);
      at += part.length;
    }
    return bytes;
  } catch (error) {
    if (signal?.aborted) throw signal.reason;
    if (error instanceof FetchError) throw error;
    throw new FetchError("E_FETCH", `${source} could not be fetched: ${(error as Error).message}`, { cause: error });
  }
}
