// The persistent cache of plans, compiled kernels and tuned opts in IndexedDB. Entries are read ahead when a device
// starts and written back in the background. The wasm module alone knows what an entry means and checks its integrity.
// A storage that is blocked, full or broken is never an error: it only means that plans and kernels are compiled again.

/** Options of the cache of compiled plans and kernels across visits. */
export interface CacheOptions {
  /** Limit for the bytes of all entries together; the least recently used are deleted first. Default: 32 MiB. */
  limitBytes?: number;
}

/** What the cache of a device did in this visit. */
export interface CacheState {
  /**
   * `on`; `off` if the caller disabled it or the host has no IndexedDB; `failed` if the browser refuses the storage.
   */
  state: "on" | "off" | "failed";
  reason: string | undefined;
  /** Number of entries that were read ahead, and their bytes. */
  entries: number;
  bytes: number;
  /** Milliseconds that reading ahead took. */
  readMs: number;
}

const DB_NAME = "gradloom";
const DB_VERSION = 1;
const DEFAULT_LIMIT_BYTES = 32 * 2 ** 20;
/** A storage that does not answer within this time is treated as unavailable. */
const TIMEOUT_MS = 3000;
/** The shortest time between two updates of an entry's time of last use. */
const TOUCH_MS = 6 * 3600_000;
const WRITE_DELAY_MS = 100;

interface IndexRow {
  bytes: number;
  used: number;
}

const requestResult = <T>(request: IDBRequest<T>): Promise<T> =>
  new Promise((done, fail) => {
    request.onsuccess = () => done(request.result);
    request.onerror = () => fail(request.error);
  });

const transactionEnd = (transaction: IDBTransaction): Promise<void> =>
  new Promise((done, fail) => {
    transaction.oncomplete = () => done();
    transaction.onabort = () => fail(transaction.error);
  });

function withTimeout<T>(work: Promise<T>): Promise<T> {
  const timeout = new Promise<never>((_, fail) => setTimeout(() => fail(new Error("the storage does not answer")), TIMEOUT_MS));
  return Promise.race([work, timeout]);
}

/** Databases that were created by this visit and hence have no entries to read. */
const createdDatabases = new WeakSet<IDBDatabase>();

function openDatabase(): Promise<IDBDatabase> {
  const request = indexedDB.open(DB_NAME, DB_VERSION);
  request.onupgradeneeded = () => {
    createdDatabases.add(request.result);
    request.result.createObjectStore("entries");
    request.result.createObjectStore("index");
  };
  return requestResult(request);
}

/** The connection that `preopenDatabase` began to open, for the first cache. */
let preopenedDatabase: Promise<IDBDatabase> | undefined;

/** Begins to open the storage before the cache that will use it is constructed. */
export function preopenDatabase(): void {
  if (typeof indexedDB === "undefined") return;
  preopenedDatabase ??= openDatabase();
  preopenedDatabase.catch(() => {});
}

/** Closes the connection of `preopenDatabase` if no cache has taken it. */
export function closePreopened(): void {
  void preopenedDatabase?.then((database) => database.close(), () => {});
  preopenedDatabase = undefined;
}

/** The cache entries of one device. The wasm module calls `get` and `put`. */
export class Cache {
  readonly #entries = new Map<string, Uint8Array>();
  readonly #index = new Map<string, IndexRow>();
  readonly #usedEntries = new Set<string>();
  #unwritten = new Map<string, Uint8Array>();
  #database: IDBDatabase | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #lastWrite: Promise<void> = Promise.resolve();
  readonly #limitBytes: number;
  /** Bytes of the entries in memory. */
  #heldBytes = 0;
  readonly state: CacheState = { state: "off", reason: undefined, entries: 0, bytes: 0, readMs: 0 };

  constructor(options: CacheOptions = {}) {
    this.#limitBytes = options.limitBytes ?? DEFAULT_LIMIT_BYTES;
  }

  /** Reads the entries of these groups into memory. Never fails: without a usable storage there are no entries. */
  async readAhead(groups: readonly string[]): Promise<void> {
    const start = performance.now();
    try {
      if (typeof indexedDB === "undefined") {
        this.state.reason = "there is no IndexedDB here";
        return;
      }
      const connecting = preopenedDatabase ?? openDatabase();
      preopenedDatabase = undefined;
      connecting.catch(() => {});
      const database = await withTimeout(connecting);
      // another tab with a newer version of the package may have to upgrade the database
      database.onversionchange = () => this.#fail("another tab changed it");
      database.onclose = () => this.#fail("the browser closed it");
      this.#database = database;
      if (!createdDatabases.has(database)) await withTimeout(Promise.all(groups.map((group) => this.#readGroup(database, group))));
      this.state.state = "on";
      addEventListener?.("pagehide", () => void this.flush());
    } catch (error) {
      this.#fail(error instanceof Error ? error.message : String(error));
    } finally {
      this.state.readMs = performance.now() - start;
    }
  }

  async #readGroup(database: IDBDatabase, group: string): Promise<void> {
    // the character "0" follows "/", so the range covers all keys with the prefix `group/`
    const range = IDBKeyRange.bound(`${group}/`, `${group}0`, false, true);
    const transaction = database.transaction(["entries", "index"], "readonly");
    const [entries, index] = [transaction.objectStore("entries"), transaction.objectStore("index")];
    const [keys, values, rowKeys, rows] = await Promise.all([
      requestResult(entries.getAllKeys(range)),
      requestResult(entries.getAll(range)),
      requestResult(index.getAllKeys(range)),
      requestResult(index.getAll(range)),
    ]);
    keys.forEach((key, at) => {
      const value: unknown = values[at];
      if (!(value instanceof Uint8Array)) return;
      this.#entries.set(String(key), value);
      this.#heldBytes += value.length;
      this.state.entries += 1;
      this.state.bytes += value.length;
    });
    rowKeys.forEach((key, at) => this.#index.set(String(key), rows[at] as IndexRow));
  }

  /** The bytes of an entry. */
  get(group: string, key: string): Uint8Array | undefined {
    const name = `${group}/${key}`;
    const found = this.#entries.get(name);
    if (found && this.#database && !this.#usedEntries.has(name)) {
      this.#usedEntries.add(name);
      if (Date.now() - (this.#index.get(name)?.used ?? 0) > TOUCH_MS) this.#scheduleWrite();
    }
    return found;
  }

  /** Stores an entry. */
  put(group: string, key: string, bytes: Uint8Array): void {
    if (!this.#database || bytes.length > this.#limitBytes / 4) return;
    const name = `${group}/${key}`;
    this.#heldBytes += bytes.length - (this.#entries.get(name)?.length ?? 0);
    this.#entries.set(name, bytes);
    this.#unwritten.set(name, bytes);
    this.#evictFromMemory();
    this.#scheduleWrite();
  }

  /**
   * Bounds the entries in memory by the storage limit, for pages that stay open for long: drops the oldest ones that
   * are already written.
   */
  #evictFromMemory(): void {
    if (this.#heldBytes <= this.#limitBytes) return;
    for (const [name, { length }] of this.#entries) {
      if (this.#heldBytes <= (this.#limitBytes * 3) / 4) break;
      if (this.#unwritten.has(name)) continue;
      this.#entries.delete(name);
      this.#heldBytes -= length;
    }
  }

  #scheduleWrite(): void {
    this.#timer ??= setTimeout(() => void this.flush(), WRITE_DELAY_MS);
  }

  /** Writes all pending entries. */
  flush(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    // Writes run one after the other. The first starts immediately rather than later, since the page may be closing.
    this.#lastWrite = this.#lastWrite.then(() => this.#write());
    return this.#lastWrite;
  }

  async #write(): Promise<void> {
    const database = this.#database;
    const now = Date.now();
    const unwritten = this.#unwritten;
    const toTouch = [...this.#usedEntries].filter((name) => now - (this.#index.get(name)?.used ?? 0) > TOUCH_MS);
    if (!database || (unwritten.size === 0 && toTouch.length === 0)) return;
    this.#unwritten = new Map();
    try {
      const transaction = database.transaction(["entries", "index"], "readwrite", { durability: "relaxed" });
      const [entries, index] = [transaction.objectStore("entries"), transaction.objectStore("index")];
      const putIndexRow = (name: string, bytes: number): void => {
        const row = { bytes, used: now };
        this.#index.set(name, row);
        index.put(row, name);
      };
      for (const [name, bytes] of unwritten) {
        entries.put(bytes, name);
        putIndexRow(name, bytes.length);
      }
      for (const name of toTouch) if (!unwritten.has(name)) putIndexRow(name, this.#entries.get(name)?.length ?? 0);
      await transactionEnd(transaction);
      if (unwritten.size > 0) await this.#evictFromStorage(database, this.#limitBytes);
    } catch (error) {
      // The storage is full: old entries are deleted to make space for the next visit, and this visit writes no more.
      await this.#evictFromStorage(database, this.#limitBytes / 4).catch(() => {});
      this.#fail(error instanceof Error ? error.message : String(error));
    }
  }

  /** Deletes the least recently used entries until at most three quarters of the limit are left. */
  async #evictFromStorage(database: IDBDatabase, limitBytes: number): Promise<void> {
    const transaction = database.transaction(["entries", "index"], "readwrite", { durability: "relaxed" });
    const [entries, index] = [transaction.objectStore("entries"), transaction.objectStore("index")];
    const [keys, rows] = await Promise.all([requestResult(index.getAllKeys()), requestResult(index.getAll() as IDBRequest<IndexRow[]>)]);
    let total = rows.reduce((sum, row) => sum + row.bytes, 0);
    if (total > limitBytes) {
      const oldest = keys.map((key, at) => ({ key, row: rows[at]! })).sort((a, b) => a.row.used - b.row.used);
      for (const { key, row } of oldest) {
        if (total <= (limitBytes * 3) / 4) break;
        total -= row.bytes;
        entries.delete(key);
        index.delete(key);
      }
    }
    await transactionEnd(transaction);
  }

  #fail(reason: string): void {
    this.state.state = "failed";
    this.state.reason = reason;
    this.#database?.close();
    this.#database = undefined;
    this.#unwritten.clear();
  }

  /** Drops all entries in memory, including those not written yet. */
  clear(): void {
    this.#entries.clear();
    this.#heldBytes = 0;
    this.#index.clear();
    this.#usedEntries.clear();
    this.#unwritten.clear();
  }
}

/** Deletes all stored entries, also those of other versions of this package. */
export async function deleteEntries(): Promise<void> {
  if (typeof indexedDB === "undefined") return;
  try {
    const database = await withTimeout(openDatabase());
    const transaction = database.transaction(["entries", "index"], "readwrite");
    transaction.objectStore("entries").clear();
    transaction.objectStore("index").clear();
    await transactionEnd(transaction);
    database.close();
  } catch {
    // a storage that cannot be opened holds no entries
  }
}
