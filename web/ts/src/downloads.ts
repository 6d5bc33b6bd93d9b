// The persistent store of downloaded files, kept in blocks: an interrupted download resumes, and of a file that is read
// by ranges the blocks read are kept. The server is asked each time whether the file is unchanged, unless the caller
// gives the hash that it must have. Loaded with the first download in a page; the entry `gradloom/cache`.
import "./page-chunks.js";
import { FetchError, UnsupportedError } from "./errors.js";
import { type FetchOptions, allocate, fetchFailure, readBody } from "./progress.js";
import type { RangeReader, OnBytes } from "./ranges.js";
import { type Store, openStore } from "./stores.js";

/** Files are stored in blocks of this many bytes. */
const BLOCK_BYTES = 1 << 23;
/** Smaller files are not stored here, since the browser's HTTP cache handles them well. */
export const MIN_STORED_BYTES = 1 << 20;
/** The shortest time between two updates of a file's time of last use. */
const TOUCH_MS = 3600_000;
/** How many blocks are written to the store while the download goes on; more would only take memory. */
const MAX_WRITES = 3;
/** How many blocks stay in memory that a reader by ranges used last: ranges that follow each other share blocks. */
const RECENT_BLOCKS = 6;
const META = "meta.json";

/** The description that is stored beside a file's blocks. */
interface Meta {
  url: string;
  size: number;
  /** The version that the server reports: the ETag header, or else the Last-Modified header. */
  version: string | null;
  /** The hash that the complete file was verified against, if any. */
  hash: string | undefined;
  used: number;
}

/** A stored file. */
export interface CachedFile {
  url: string;
  /** The size of the whole file, and how many of its bytes are stored. */
  size: number;
  bytes: number;
  complete: boolean;
  /** When it was last used, in milliseconds since 1970. */
  used: number;
}

const versionOf = ({ headers }: Response): string | null => headers.get("etag") ?? headers.get("last-modified");
const blockName = (at: number): string => `block-${at}`;
const blocksOf = (size: number): number => Math.ceil(size / BLOCK_BYTES);

async function folderOf(url: string): Promise<string> {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(url));
  return [...new Uint8Array(digest)].map((b) => b.toString(16).padStart(2, "0")).join("");
}

/** Exclusive access to one file of the store. */
class StoredFile {
  #isStoring = true;
  readonly #writes = new Set<Promise<void>>();

  constructor(
    readonly store: Store,
    readonly folder: string,
    readonly url: string,
    public meta: Meta | undefined,
  ) {}

  /**
   * Runs `body` with exclusive access to the stored file of an address; undefined if nothing can be stored here or
   * another caller holds the file.
   */
  static async withLock<T>(address: string | URL, body: (file: StoredFile) => Promise<T>): Promise<T | undefined> {
    const url = new URL(address, globalThis.location?.href);
    url.hash = "";
    const store = /^https?:$/.test(url.protocol) && globalThis.crypto?.subtle ? await openStore() : undefined;
    if (!store) return undefined;
    const folder = await folderOf(url.href);
    const run = async (): Promise<T> => body(new StoredFile(store, folder, url.href, await readMeta(store, folder)));
    const { locks } = navigator;
    if (!locks) return run();
    return locks.request(`gradloom-file-${folder}`, { ifAvailable: true }, (lock) => (lock ? run() : undefined)) as Promise<T | undefined>;
  }

  /**
   * Replaces the stored file by a new, empty one. `expectedHash` is the hash that the caller expects; it is verified
   * once the download is complete.
   */
  async begin(meta: Pick<Meta, "size" | "version">, response: Response, expectedHash?: string): Promise<void> {
    await this.store.drop(this.folder);
    const isNoStore = /\bno-store\b/.test(response.headers.get("cache-control") ?? "");
    this.#isStoring = !isNoStore && (meta.version !== null || expectedHash !== undefined) && meta.size >= MIN_STORED_BYTES;
    this.meta = { ...meta, hash: undefined, url: this.url, used: Date.now() };
    await this.#write(META, encodeMeta(this.meta));
  }

  async touch(hash?: string): Promise<void> {
    const { meta } = this;
    if (!meta || (Date.now() - meta.used < TOUCH_MS && hash === meta.hash)) return;
    this.meta = { ...meta, hash: hash ?? meta.hash, used: Date.now() };
    await this.#write(META, encodeMeta(this.meta));
  }

  async getBlock(at: number): Promise<Uint8Array | undefined> {
    const { size } = this.meta as Meta;
    const found = await this.store.get(this.folder, blockName(at)).catch(() => undefined);
    const blockLength = Math.min(BLOCK_BYTES, size - at * BLOCK_BYTES);
    return found?.size === blockLength ? new Uint8Array(await found.arrayBuffer()) : undefined;
  }

  /** Stores a block, whose bytes must not change. Resolves as soon as few enough writes are in progress; see `flush`. */
  async putBlock(at: number, bytes: Uint8Array): Promise<void> {
    const write: Promise<void> = this.#write(blockName(at), bytes).finally(() => this.#writes.delete(write));
    this.#writes.add(write);
    while (this.#writes.size >= MAX_WRITES) await Promise.race(this.#writes);
  }

  /** Waits until everything is written. */
  async flush(): Promise<void> {
    await Promise.all(this.#writes);
  }

  drop(): Promise<void> {
    return this.store.drop(this.folder);
  }

  /**
   * Writes a block or the description. If the storage is full, deletes the least recently used files and tries again;
   * if that does not help, gives up storing this file.
   */
  async #write(name: string, bytes: Uint8Array): Promise<void> {
    for (let tries = 0; this.#isStoring; tries += 1) {
      try {
        return await this.store.put(this.folder, name, bytes);
      } catch {
        const others = (await storedFiles(this.store)).filter(({ folder }) => folder !== this.folder);
        const oldest = others.sort((a, b) => a.meta.used - b.meta.used)[0];
        if (oldest && tries < 100) await this.store.drop(oldest.folder);
        else {
          this.#isStoring = false;
          await this.drop();
        }
      }
    }
  }
}

const encodeMeta = (meta: Meta): Uint8Array => new TextEncoder().encode(JSON.stringify(meta));

async function readMeta(store: Store, folder: string): Promise<Meta | undefined> {
  try {
    const meta = JSON.parse((await (await store.get(folder, META))?.text()) ?? "null") as Meta | null;
    return meta && typeof meta.url === "string" && Number.isSafeInteger(meta.size) ? meta : undefined;
  } catch {
    return undefined;
  }
}

/** Whether the server's file is still the stored one; undefined if the server cannot be reached. */
async function isUnchanged(meta: Meta, { signal, fetch: fetchFile = fetch }: FetchOptions): Promise<boolean | undefined> {
  let response: Response;
  try {
    response = await fetchFile(meta.url, { method: "HEAD", cache: "no-cache", ...(signal && { signal }) });
  } catch (error) {
    if (signal?.aborted) throw error;
    return undefined;
  }
  const length = response.headers.get("content-encoding") ? null : response.headers.get("content-length");
  const version = versionOf(response);
  return response.ok && version !== null && version === meta.version && (length === null || Number(length) === meta.size);
}

/**
 * The bytes of a file, read from the store as far as they are there; undefined if the caller should fetch it without
 * the store.
 */
export function cachedDownload(source: string | URL, options: FetchOptions): Promise<Uint8Array | undefined> {
  return StoredFile.withLock(source, async (file) => {
    const { hash } = options;
    try {
      let { meta } = file;
      if (meta) {
        const isVerified = hash !== undefined && meta.hash === hash;
        const unchanged = isVerified || (await isUnchanged(meta, options));
        if (unchanged === false) meta = undefined;
        const contents = meta && (await readStored(file, options));
        if (contents && (hash === undefined || isVerified || (await hashOf(contents, hash)) === hash)) {
          await file.touch(hash);
          return contents;
        }
        // the server cannot be reached and the file is incomplete: the ordinary fetch reports the error
        if (unchanged === undefined) return undefined;
        if (contents) meta = undefined;
      }
      return await downloadMissing(file, meta, source, options);
    } catch (error) {
      throw fetchFailure(source, error, options.signal);
    }
  });
}

async function readStored(file: StoredFile, { onProgress, signal }: FetchOptions): Promise<Uint8Array | undefined> {
  const { size } = file.meta as Meta;
  const storedNames = new Set(await file.store.names(file.folder));
  for (let at = 0; at < blocksOf(size); at += 1) if (!storedNames.has(blockName(at))) return undefined;
  const bytes = allocate(size);
  for (let at = 0; at < blocksOf(size); at += 1) {
    const block = await file.getBlock(at);
    signal?.throwIfAborted();
    if (!block) return undefined;
    bytes.set(block, at * BLOCK_BYTES);
    const loaded = at * BLOCK_BYTES + block.length;
    onProgress?.({ phase: "download", loaded, total: size, cached: loaded });
  }
  return bytes;
}

/** Fetches the missing rest of a file, or all of it. */
async function downloadMissing(file: StoredFile, meta: Meta | undefined, source: string | URL, options: FetchOptions): Promise<Uint8Array> {
  const { onProgress, signal, hash, fetch: fetchFile = fetch } = options;
  const storedBlocks: Uint8Array[] = [];
  for (let block; meta && storedBlocks.length < blocksOf(meta.size) - 1 && (block = await file.getBlock(storedBlocks.length)); ) storedBlocks.push(block);
  let from = storedBlocks.length * BLOCK_BYTES;
  const init = signal ? { signal } : {};
  let response = await fetchFile(source, from > 0 ? { ...init, headers: { Range: `bytes=${from}-` } } : init);
  if (from > 0) {
    const isRequestedRange = response.headers.get("content-range") === `bytes ${from}-${(meta as Meta).size - 1}/${(meta as Meta).size}`;
    if (response.status !== 206 || !isRequestedRange || versionOf(response) !== (meta as Meta).version) {
      if (response.status !== 200) {
        await response.body?.cancel();
        response = await fetchFile(source, init);
      }
      from = 0;
    }
  }
  if (!response.ok) throw new FetchError("E_FETCH", `${source} could not be fetched: status ${response.status}`);
  const contentEncoding = response.headers.get("content-encoding");
  const announced = contentEncoding && contentEncoding !== "identity" ? 0 : Number(response.headers.get("content-length") ?? 0);
  const total = from > 0 ? (meta as Meta).size : announced;
  if (from === 0) await file.begin({ size: total, version: versionOf(response) }, response, hash);
  let loaded = from;
  const report = (bytes: number): void => {
    loaded += bytes;
    onProgress?.({ phase: "download", loaded, total, cached: from });
  };
  report(0);
  if (total === 0) return verifyOrDrop(file, await readBody(response, report), source, hash);
  const bytes = allocate(total);
  storedBlocks.slice(0, from / BLOCK_BYTES).forEach((block, at) => bytes.set(block, at * BLOCK_BYTES));
  let at = from;
  let blocksWritten = from / BLOCK_BYTES;
  const append = async (part: Uint8Array): Promise<void> => {
    signal?.throwIfAborted();
    if (at + part.length > total) throw new FetchError("E_FETCH", `more than ${total} bytes came`);
    bytes.set(part, at);
    at += part.length;
    report(part.length);
    while (blocksWritten < blocksOf(total) && at >= Math.min(total, (blocksWritten + 1) * BLOCK_BYTES)) {
      await file.putBlock(blocksWritten, bytes.subarray(blocksWritten * BLOCK_BYTES, (blocksWritten + 1) * BLOCK_BYTES));
      blocksWritten += 1;
    }
  };
  const reader = response.body?.getReader();
  if (!reader) await append(new Uint8Array(await response.arrayBuffer()));
  try {
    for (let next = await reader?.read(); next && !next.done; next = await reader?.read()) await append(next.value);
  } catch (error) {
    await reader?.cancel().catch(() => {});
    await file.flush();
    throw error;
  }
  await file.flush();
  if (at !== total) throw new FetchError("E_FETCH", `only ${at} bytes came where ${total} were announced`);
  return verifyOrDrop(file, bytes, source, hash);
}

async function verifyOrDrop(file: StoredFile, bytes: Uint8Array, source: string | URL, hash: string | undefined): Promise<Uint8Array> {
  if (hash === undefined) return bytes;
  try {
    await verify(bytes, source, hash);
  } catch (error) {
    await file.drop();
    throw error;
  }
  await file.touch(hash);
  return bytes;
}

/** The SHA-256 of bytes in the notation of `format`: hexadecimal or base64. */
async function hashOf(bytes: Uint8Array, format: string): Promise<string> {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes as Uint8Array<ArrayBuffer>));
  if (/^[0-9a-f]{64}$/i.test(format)) {
    const hex = [...digest].map((b) => b.toString(16).padStart(2, "0")).join("");
    return format === format.toUpperCase() ? hex.toUpperCase() : hex;
  }
  return `sha256-${btoa(String.fromCharCode(...digest))}`;
}

/** Verifies the SHA-256 of a file: `E_FETCH` if it differs, `E_UNSUPPORTED` where the host cannot compute one. */
export async function verify(bytes: Uint8Array, source: unknown, hash: string): Promise<void> {
  if (!globalThis.crypto?.subtle) {
    throw new UnsupportedError("E_UNSUPPORTED", "hashes are checked on secure pages alone (https or localhost)");
  }
  const actualHash = await hashOf(bytes, hash);
  if (actualHash === hash) return;
  throw new FetchError("E_FETCH", `${String(source)} has the hash ${actualHash}, not ${hash}`, { hint: "the file is another one, or was damaged on its way" });
}

/**
 * Wraps a server's file that is read by ranges so that blocks read before come from the store. `version` is the version
 * that the server reports now.
 */
export async function cachedRanges(source: string | URL, uncached: RangeReader, version: string | null, first: Response): Promise<RangeReader> {
  const { size } = uncached;
  if (version === null || size < MIN_STORED_BYTES) return uncached;
  let release = (): void => {};
  const closed = new Promise<void>((done) => (release = done));
  const opened = new Promise<StoredFile | undefined>((done, fail) => {
    StoredFile.withLock(source, async (file) => {
      done(file);
      await closed;
    }).then(() => done(undefined), fail);
  });
  const file = await opened.catch(() => undefined);
  if (!file) return uncached;
  if (file.meta?.size !== size || file.meta.version !== version) await file.begin({ size, version }, first);
  else await file.touch();
  const loadBlock = async (at: number, onBytes: OnBytes): Promise<Uint8Array> => {
    const stored = await file.getBlock(at);
    if (stored) {
      onBytes(stored.length);
      return stored;
    }
    const fetched = await uncached.read(at * BLOCK_BYTES, Math.min(size, (at + 1) * BLOCK_BYTES), onBytes);
    await file.putBlock(at, fetched);
    return fetched;
  };
  const recent = new Map<number, Promise<Uint8Array>>();
  const blockAt = (at: number, onBytes: OnBytes): Promise<Uint8Array> => {
    let block = recent.get(at);
    if (!block) {
      block = loadBlock(at, onBytes);
      block.catch(() => recent.delete(at));
      recent.set(at, block);
      if (recent.size > RECENT_BLOCKS) recent.delete(recent.keys().next().value as number);
    }
    return block;
  };
  const read = async (start: number, end: number, onBytes: OnBytes): Promise<Uint8Array> => {
    const out = allocate(end - start);
    for (let at = Math.floor(start / BLOCK_BYTES); at < blocksOf(end); at += 1) {
      const block = blockAt(at, onBytes);
      // the next block is on its way while this one arrives
      if (at + 1 < blocksOf(end)) void blockAt(at + 1, onBytes);
      const bytes = await block;
      const base = at * BLOCK_BYTES;
      const [a, b] = [Math.max(start, base), Math.min(end, base + bytes.length)];
      out.set(bytes.subarray(a - base, b - base), a - start);
    }
    return out;
  };
  const close = async (): Promise<void> => {
    recent.clear();
    await file.flush();
    release();
    await uncached.close();
  };
  return { size, head: uncached.head, read, close };
}

async function storedFiles(store: Store): Promise<{ folder: string; meta: Meta }[]> {
  const folders = await store.folders();
  const metas = await Promise.all(folders.map((folder) => readMeta(store, folder)));
  // a folder without a description belongs to no file
  await Promise.all(folders.filter((_, at) => !metas[at]).map((folder) => store.drop(folder)));
  return folders.flatMap((folder, at) => (metas[at] ? [{ folder, meta: metas[at] }] : []));
}

/** The files stored for this origin, most recently used first. */
export async function list(): Promise<CachedFile[]> {
  const store = await openStore();
  if (!store) return [];
  const files = await Promise.all(
    (await storedFiles(store)).map(async ({ folder, meta: { url, size, used } }) => {
      const names = (await store.names(folder)).filter((name) => name !== META);
      const bytes = names.reduce((sum, name) => sum + Math.min(BLOCK_BYTES, size - Number(name.slice(6)) * BLOCK_BYTES), 0);
      return { url, size, bytes, complete: names.length === blocksOf(size), used };
    }),
  );
  return files.sort((a, b) => b.used - a.used);
}

/** Deletes the stored file of an address, or all stored files. */
async function remove(url?: string | URL): Promise<void> {
  const store = await openStore();
  if (!store) return;
  if (url === undefined) {
    for (const folder of await store.folders()) await store.drop(folder);
  } else {
    const target = new URL(url, globalThis.location?.href);
    target.hash = "";
    await store.drop(await folderOf(target.href));
  }
}

/** Where files are stored, and this origin's usage and quota in bytes as the browser estimates them. */
async function estimate(): Promise<{ kind: "opfs" | "cache" | "none"; usage: number; quota: number }> {
  const { usage = 0, quota = 0 } = (await globalThis.navigator?.storage?.estimate?.()) ?? {};
  return { kind: (await openStore())?.kind ?? "none", usage, quota };
}

export { remove as delete, estimate };
