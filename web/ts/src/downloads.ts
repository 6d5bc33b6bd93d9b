// Files of models that stay from visit to visit, in blocks: what was cut off goes on where it was, and of files that are read in parts
// the parts are kept. A server is asked each time whether the file is still the same, unless the caller says which it must be.
// Loaded with the first download in a page; the entry `gradloom/cache`.
import "./apart.js";
import { FetchError, UnsupportedError } from "./errors.js";
import { type FetchOptions, bodyOf, fetchFailure, room } from "./progress.js";
import type { Ranged, Told } from "./ranges.js";
import { type Store, openStore } from "./stores.js";

/** Files are kept in pieces of so many bytes. */
const BLOCK_BYTES = 1 << 23;
/** Smaller files are left to the browser's own cache. */
const LEAST_BYTES = 1 << 20;
/** The time of use is written at most so often. */
const TOUCH_MS = 3600_000;
const META = "meta.json";

/** What is known of a file. */
interface Meta {
  url: string;
  size: number;
  /** The server's word for what it is: ETag, or when it was changed. */
  version: string | null;
  /** The hash that was checked. */
  hash: string | undefined;
  used: number;
}

/** A file that is kept. */
export interface CachedFile {
  url: string;
  /** Of the whole file, and of what is here. */
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

/** The one file of a store that somebody works with. */
class File {
  #storing = true;

  constructor(
    readonly store: Store,
    readonly folder: string,
    readonly url: string,
    public meta: Meta | undefined,
  ) {}

  /** The file at an address, for this caller alone; undefined if nothing can be kept or another one has it. */
  static async with<T>(address: string | URL, body: (file: File) => Promise<T>): Promise<T | undefined> {
    const url = new URL(address, globalThis.location?.href);
    url.hash = "";
    const store = /^https?:$/.test(url.protocol) && globalThis.crypto?.subtle ? await openStore() : undefined;
    if (!store) return undefined;
    const folder = await folderOf(url.href);
    const work = async (): Promise<T> => body(new File(store, folder, url.href, await readMeta(store, folder)));
    const { locks } = navigator;
    if (!locks) return work();
    return locks.request(`gradloom-file-${folder}`, { ifAvailable: true }, (lock) => (lock ? work() : undefined)) as Promise<T | undefined>;
  }

  /** Begins anew with another file; `promised` is the hash that it must have, which is seen at its end. */
  async begin(meta: Pick<Meta, "size" | "version">, response: Response, promised?: string): Promise<void> {
    await this.store.drop(this.folder);
    const forbidden = /\bno-store\b/.test(response.headers.get("cache-control") ?? "");
    this.#storing = !forbidden && (meta.version !== null || promised !== undefined) && meta.size >= LEAST_BYTES;
    this.meta = { ...meta, hash: undefined, url: this.url, used: Date.now() };
    await this.#write(META, encoded(this.meta));
  }

  async touch(hash?: string): Promise<void> {
    const { meta } = this;
    if (!meta || (Date.now() - meta.used < TOUCH_MS && hash === meta.hash)) return;
    this.meta = { ...meta, hash: hash ?? meta.hash, used: Date.now() };
    await this.#write(META, encoded(this.meta));
  }

  async block(at: number): Promise<Uint8Array | undefined> {
    const { size } = this.meta as Meta;
    const found = await this.store.get(this.folder, blockName(at)).catch(() => undefined);
    const whole = Math.min(BLOCK_BYTES, size - at * BLOCK_BYTES);
    return found?.size === whole ? new Uint8Array(await found.arrayBuffer()) : undefined;
  }

  keep(at: number, bytes: Uint8Array): Promise<void> {
    return this.#write(blockName(at), bytes);
  }

  drop(): Promise<void> {
    return this.store.drop(this.folder);
  }

  /** Writes, or if there is no room deletes what was not used for longest, or if that does not help keeps nothing of this file. */
  async #write(name: string, bytes: Uint8Array): Promise<void> {
    for (let tries = 0; this.#storing; tries += 1) {
      try {
        return await this.store.put(this.folder, name, bytes);
      } catch {
        const others = (await stored(this.store)).filter(({ folder }) => folder !== this.folder);
        const oldest = others.sort((a, b) => a.meta.used - b.meta.used)[0];
        if (oldest && tries < 100) await this.store.drop(oldest.folder);
        else {
          this.#storing = false;
          await this.drop();
        }
      }
    }
  }
}

const encoded = (meta: Meta): Uint8Array => new TextEncoder().encode(JSON.stringify(meta));

async function readMeta(store: Store, folder: string): Promise<Meta | undefined> {
  try {
    const meta = JSON.parse((await (await store.get(folder, META))?.text()) ?? "null") as Meta | null;
    return meta && typeof meta.url === "string" && Number.isSafeInteger(meta.size) ? meta : undefined;
  } catch {
    return undefined;
  }
}

/** Is the file on the server still the one that is kept? Undefined where the server cannot be reached. */
async function isSame(meta: Meta, { signal, fetch: get = fetch }: FetchOptions): Promise<boolean | undefined> {
  let response: Response;
  try {
    response = await get(meta.url, { method: "HEAD", cache: "no-cache", ...(signal && { signal }) });
  } catch (error) {
    if (signal?.aborted) throw error;
    return undefined;
  }
  const length = response.headers.get("content-encoding") ? null : response.headers.get("content-length");
  const version = versionOf(response);
  return response.ok && version !== null && version === meta.version && (length === null || Number(length) === meta.size);
}

/** The bytes of a file, from here as far as they are here; undefined if the caller should fetch it as if there were no cache. */
export function cachedDownload(source: string | URL, options: FetchOptions): Promise<Uint8Array | undefined> {
  return File.with(source, async (file) => {
    const { hash } = options;
    try {
      let { meta } = file;
      if (meta) {
        const known = hash !== undefined && meta.hash === hash;
        const same = known || (await isSame(meta, options));
        if (same === false) meta = undefined;
        const whole = meta && (await fromHere(file, options));
        if (whole && (hash === undefined || known || (await hashOf(whole, hash)) === hash)) {
          await file.touch(hash);
          return whole;
        }
        // out of reach, and not all of it is here: the plain way says so
        if (same === undefined) return undefined;
        if (whole) meta = undefined;
      }
      return await fetched(file, meta, source, options);
    } catch (error) {
      throw fetchFailure(source, error, options.signal);
    }
  });
}

async function fromHere(file: File, { onProgress, signal }: FetchOptions): Promise<Uint8Array | undefined> {
  const { size } = file.meta as Meta;
  const names = new Set(await file.store.names(file.folder));
  for (let at = 0; at < blocksOf(size); at += 1) if (!names.has(blockName(at))) return undefined;
  const bytes = room(size);
  for (let at = 0; at < blocksOf(size); at += 1) {
    const block = await file.block(at);
    signal?.throwIfAborted();
    if (!block) return undefined;
    bytes.set(block, at * BLOCK_BYTES);
    const loaded = at * BLOCK_BYTES + block.length;
    onProgress?.({ phase: "download", loaded, total: size, cached: loaded });
  }
  return bytes;
}

/** Fetches what is missing at the end, or all. */
async function fetched(file: File, meta: Meta | undefined, source: string | URL, options: FetchOptions): Promise<Uint8Array> {
  const { onProgress, signal, hash, fetch: get = fetch } = options;
  const begun: Uint8Array[] = [];
  for (let block; meta && begun.length < blocksOf(meta.size) - 1 && (block = await file.block(begun.length)); ) begun.push(block);
  let from = begun.length * BLOCK_BYTES;
  const init = signal ? { signal } : {};
  let response = await get(source, from > 0 ? { ...init, headers: { Range: `bytes=${from}-` } } : init);
  if (from > 0) {
    const fits = response.headers.get("content-range") === `bytes ${from}-${(meta as Meta).size - 1}/${(meta as Meta).size}`;
    if (response.status !== 206 || !fits || versionOf(response) !== (meta as Meta).version) {
      if (response.status !== 200) {
        await response.body?.cancel();
        response = await get(source, init);
      }
      from = 0;
    }
  }
  if (!response.ok) throw new FetchError("E_FETCH", `${source} could not be fetched: status ${response.status}`);
  const packed = response.headers.get("content-encoding");
  const announced = packed && packed !== "identity" ? 0 : Number(response.headers.get("content-length") ?? 0);
  const total = from > 0 ? (meta as Meta).size : announced;
  if (from === 0) await file.begin({ size: total, version: versionOf(response) }, response, hash);
  let loaded = from;
  const tell = (bytes: number): void => {
    loaded += bytes;
    onProgress?.({ phase: "download", loaded, total, cached: from });
  };
  tell(0);
  if (total === 0) return checked(file, await bodyOf(response, tell), source, hash);
  const bytes = room(total);
  begun.slice(0, from / BLOCK_BYTES).forEach((block, at) => bytes.set(block, at * BLOCK_BYTES));
  let at = from;
  let kept = from / BLOCK_BYTES;
  const take = async (part: Uint8Array): Promise<void> => {
    signal?.throwIfAborted();
    if (at + part.length > total) throw new FetchError("E_FETCH", `more than ${total} bytes came`);
    bytes.set(part, at);
    at += part.length;
    tell(part.length);
    while (kept < blocksOf(total) && at >= Math.min(total, (kept + 1) * BLOCK_BYTES)) {
      await file.keep(kept, bytes.subarray(kept * BLOCK_BYTES, (kept + 1) * BLOCK_BYTES));
      kept += 1;
    }
  };
  const reader = response.body?.getReader();
  if (!reader) await take(new Uint8Array(await response.arrayBuffer()));
  try {
    for (let next = await reader?.read(); next && !next.done; next = await reader?.read()) await take(next.value);
  } catch (error) {
    await reader?.cancel().catch(() => {});
    throw error;
  }
  if (at !== total) throw new FetchError("E_FETCH", `only ${at} bytes came where ${total} were announced`);
  return checked(file, bytes, source, hash);
}

async function checked(file: File, bytes: Uint8Array, source: string | URL, hash: string | undefined): Promise<Uint8Array> {
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

/** The SHA-256 of bytes, written as `like` is: in hexadecimal digits or in base64. */
async function hashOf(bytes: Uint8Array, like: string): Promise<string> {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes as Uint8Array<ArrayBuffer>));
  if (/^[0-9a-f]{64}$/i.test(like)) {
    const hex = [...digest].map((b) => b.toString(16).padStart(2, "0")).join("");
    return like === like.toUpperCase() ? hex.toUpperCase() : hex;
  }
  return `sha256-${btoa(String.fromCharCode(...digest))}`;
}

/** Fails with `E_FETCH` if bytes have another hash, and with `E_UNSUPPORTED` where none can be made. */
export async function verify(bytes: Uint8Array, source: unknown, hash: string): Promise<void> {
  if (!globalThis.crypto?.subtle) {
    throw new UnsupportedError("E_UNSUPPORTED", "hashes are checked on secure pages alone (https or localhost)");
  }
  const got = await hashOf(bytes, hash);
  if (got === hash) return;
  throw new FetchError("E_FETCH", `${String(source)} has the hash ${got}, not ${hash}`, { hint: "the file is another one, or was damaged on its way" });
}

/** A file on a server that is read by ranges: what was read before is here. `version` is what the server says that it is now. */
export async function cachedRanges(source: string | URL, inner: Ranged, version: string | null, first: Response): Promise<Ranged> {
  const { size } = inner;
  if (version === null || size < LEAST_BYTES) return inner;
  let release = (): void => {};
  const closed = new Promise<void>((done) => (release = done));
  const opened = new Promise<File | undefined>((done, fail) => {
    File.with(source, async (file) => {
      done(file);
      await closed;
    }).then(() => done(undefined), fail);
  });
  const file = await opened.catch(() => undefined);
  if (!file) return inner;
  if (file.meta?.size !== size || file.meta.version !== version) await file.begin({ size, version }, first);
  else await file.touch();
  /** Blocks `from` up to `to`, of which none is here. */
  const fetchRun = async (from: number, to: number, told: Told, take: (at: number, bytes: Uint8Array) => void): Promise<void> => {
    const bytes = await inner.read(from * BLOCK_BYTES, Math.min(size, to * BLOCK_BYTES), told);
    for (let at = from; at < to; at += 1) {
      const block = bytes.subarray((at - from) * BLOCK_BYTES, (at - from + 1) * BLOCK_BYTES);
      await file.keep(at, block);
      take(at, block);
    }
  };
  const read = async (start: number, end: number, told: Told): Promise<Uint8Array> => {
    const out = room(end - start);
    const take = (at: number, block: Uint8Array): void => {
      const base = at * BLOCK_BYTES;
      const [a, b] = [Math.max(start, base), Math.min(end, base + block.length)];
      out.set(block.subarray(a - base, b - base), a - start);
    };
    let missing = -1;
    const [from, to] = [Math.floor(start / BLOCK_BYTES), blocksOf(end)];
    for (let at = from; at <= to; at += 1) {
      const block = at < to ? await file.block(at) : new Uint8Array(0);
      if (!block) {
        if (missing < 0) missing = at;
        continue;
      }
      if (missing >= 0) await fetchRun(missing, at, told, take);
      missing = -1;
      if (at === to) break;
      take(at, block);
      told(block.length);
    }
    return out;
  };
  const close = async (): Promise<void> => {
    release();
    await inner.close();
  };
  return { size, head: inner.head, read, close };
}

async function stored(store: Store): Promise<{ folder: string; meta: Meta }[]> {
  const folders = await store.folders();
  const metas = await Promise.all(folders.map((folder) => readMeta(store, folder)));
  // what has no description belongs to nobody
  await Promise.all(folders.filter((_, at) => !metas[at]).map((folder) => store.drop(folder)));
  return folders.flatMap((folder, at) => (metas[at] ? [{ folder, meta: metas[at] }] : []));
}

/** The files that are kept for this origin, latest first. */
export async function list(): Promise<CachedFile[]> {
  const store = await openStore();
  if (!store) return [];
  const rows = await Promise.all(
    (await stored(store)).map(async ({ folder, meta: { url, size, used } }) => {
      const names = (await store.names(folder)).filter((name) => name !== META);
      const bytes = names.reduce((sum, name) => sum + Math.min(BLOCK_BYTES, size - Number(name.slice(6)) * BLOCK_BYTES), 0);
      return { url, size, bytes, complete: names.length === blocksOf(size), used };
    }),
  );
  return rows.sort((a, b) => b.used - a.used);
}

/** Deletes the file of an address, or all files. */
async function remove(url?: string | URL): Promise<void> {
  const store = await openStore();
  if (!store) return;
  if (url === undefined) {
    for (const folder of await store.folders()) await store.drop(folder);
  } else {
    const whole = new URL(url, globalThis.location?.href);
    whole.hash = "";
    await store.drop(await folderOf(whole.href));
  }
}

/** Where files are kept, and the room of this origin in bytes as the browser estimates it. */
async function estimate(): Promise<{ kind: "opfs" | "cache" | "none"; usage: number; quota: number }> {
  const { usage = 0, quota = 0 } = (await globalThis.navigator?.storage?.estimate?.()) ?? {};
  return { kind: (await openStore())?.kind ?? "none", usage, quota };
}

export { remove as delete, estimate };
