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

const NAME = "gradloom";
const LAYOUT = 1;
const LIMIT = 32 * 2 ** 20;
/** A storage that does not answer within this time is treated as unavailable. */
const PATIENCE_MS = 3000;
/** The shortest time between two updates of an entry's time of last use. */
const TOUCH_MS = 6 * 3600_000;
const WRITE_AFTER_MS = 100;

interface Row {
  bytes: number;
  used: number;
}

const settled = <T>(request: IDBRequest<T>): Promise<T> =>
  new Promise((done, fail) => {
    request.onsuccess = () => done(request.result);
    request.onerror = () => fail(request.error);
  });

const ended = (transaction: IDBTransaction): Promise<void> =>
  new Promise((done, fail) => {
    transaction.oncomplete = () => done();
    transaction.onabort = () => fail(transaction.error);
  });

function patient<T>(work: Promise<T>): Promise<T> {
  const late = new Promise<never>((_, fail) => setTimeout(() => fail(new Error("the storage does not answer")), PATIENCE_MS));
  return Promise.race([work, late]);
}

/** Databases that were created by this visit and hence have no entries to read. */
const made = new WeakSet<IDBDatabase>();

function openDatabase(): Promise<IDBDatabase> {
  const request = indexedDB.open(NAME, LAYOUT);
  request.onupgradeneeded = () => {
    made.add(request.result);
    request.result.createObjectStore("entries");
    request.result.createObjectStore("index");
  };
  return settled(request);
}

/** The connection that `openAhead` began to open, for the first cache. */
let ahead: Promise<IDBDatabase> | undefined;

/** Begins to open the storage before the cache that will use it is constructed. */
export function openAhead(): void {
  if (typeof indexedDB === "undefined") return;
  ahead ??= openDatabase();
  ahead.catch(() => {});
}

/** Closes the connection of `openAhead` if no cache has taken it. */
export function closeAhead(): void {
  void ahead?.then((database) => database.close(), () => {});
  ahead = undefined;
}

/** The cache entries of one device. The wasm module calls `get` and `put`. */
export class Cache {
  readonly #known = new Map<string, Uint8Array>();
  readonly #rows = new Map<string, Row>();
  readonly #touched = new Set<string>();
  #unwritten = new Map<string, Uint8Array>();
  #database: IDBDatabase | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #writing: Promise<void> = Promise.resolve();
  readonly #limit: number;
  /** Bytes of the entries in memory. */
  #held = 0;
  readonly state: CacheState = { state: "off", reason: undefined, entries: 0, bytes: 0, readMs: 0 };

  constructor(options: CacheOptions = {}) {
    this.#limit = options.limitBytes ?? LIMIT;
  }

  /** Reads the entries of these groups into memory. Never fails: without a usable storage there are no entries. */
  async readAhead(groups: readonly string[]): Promise<void> {
    const start = performance.now();
    try {
      if (typeof indexedDB === "undefined") {
        this.state.reason = "there is no IndexedDB here";
        return;
      }
      const opening = ahead ?? openDatabase();
      ahead = undefined;
      opening.catch(() => {});
      const database = await patient(opening);
      // another tab with a newer version of the package may have to upgrade the database
      database.onversionchange = () => this.#fail("another tab changed it");
      database.onclose = () => this.#fail("the browser closed it");
      this.#database = database;
      if (!made.has(database)) await patient(Promise.all(groups.map((group) => this.#readGroup(database, group))));
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
      settled(entries.getAllKeys(range)),
      settled(entries.getAll(range)),
      settled(index.getAllKeys(range)),
      settled(index.getAll(range)),
    ]);
    keys.forEach((key, at) => {
      const value: unknown = values[at];
      if (!(value instanceof Uint8Array)) return;
      this.#known.set(String(key), value);
      this.#held += value.length;
      this.state.entries += 1;
      this.state.bytes += value.length;
    });
    rowKeys.forEach((key, at) => this.#rows.set(String(key), rows[at] as Row));
  }

  /** The bytes of an entry. */
  get(group: string, key: string): Uint8Array | undefined {
    const name = `${group}/${key}`;
    const found = this.#known.get(name);
    if (found && this.#database && !this.#touched.has(name)) {
      this.#touched.add(name);
      if (Date.now() - (this.#rows.get(name)?.used ?? 0) > TOUCH_MS) this.#later();
    }
    return found;
  }

  /** Stores an entry. */
  put(group: string, key: string, bytes: Uint8Array): void {
    if (!this.#database || bytes.length > this.#limit / 4) return;
    const name = `${group}/${key}`;
    this.#held += bytes.length - (this.#known.get(name)?.length ?? 0);
    this.#known.set(name, bytes);
    this.#unwritten.set(name, bytes);
    this.#bound();
    this.#later();
  }

  /**
   * Bounds the entries in memory by the storage limit, for pages that stay open for long: drops the oldest ones that
   * are already written.
   */
  #bound(): void {
    if (this.#held <= this.#limit) return;
    for (const [name, { length }] of this.#known) {
      if (this.#held <= (this.#limit * 3) / 4) break;
      if (this.#unwritten.has(name)) continue;
      this.#known.delete(name);
      this.#held -= length;
    }
  }

  #later(): void {
    this.#timer ??= setTimeout(() => void this.flush(), WRITE_AFTER_MS);
  }

  /** Writes all pending entries. */
  flush(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    // Writes run one after the other. The first starts immediately rather than later, since the page may be closing.
    this.#writing = this.#writing.then(() => this.#write());
    return this.#writing;
  }

  async #write(): Promise<void> {
    const database = this.#database;
    const now = Date.now();
    const fresh = this.#unwritten;
    const used = [...this.#touched].filter((name) => now - (this.#rows.get(name)?.used ?? 0) > TOUCH_MS);
    if (!database || (fresh.size === 0 && used.length === 0)) return;
    this.#unwritten = new Map();
    try {
      const transaction = database.transaction(["entries", "index"], "readwrite", { durability: "relaxed" });
      const [entries, index] = [transaction.objectStore("entries"), transaction.objectStore("index")];
      const note = (name: string, bytes: number): void => {
        const row = { bytes, used: now };
        this.#rows.set(name, row);
        index.put(row, name);
      };
      for (const [name, bytes] of fresh) {
        entries.put(bytes, name);
        note(name, bytes.length);
      }
      for (const name of used) if (!fresh.has(name)) note(name, this.#known.get(name)?.length ?? 0);
      await ended(transaction);
      if (fresh.size > 0) await this.#sweep(database, this.#limit);
    } catch (error) {
      // The storage is full: old entries are deleted to make space for the next visit, and this visit writes no more.
      await this.#sweep(database, this.#limit / 4).catch(() => {});
      this.#fail(error instanceof Error ? error.message : String(error));
    }
  }

  /** Deletes the least recently used entries until at most three quarters of the limit are left. */
  async #sweep(database: IDBDatabase, limit: number): Promise<void> {
    const transaction = database.transaction(["entries", "index"], "readwrite", { durability: "relaxed" });
    const [entries, index] = [transaction.objectStore("entries"), transaction.objectStore("index")];
    const [keys, rows] = await Promise.all([settled(index.getAllKeys()), settled(index.getAll() as IDBRequest<Row[]>)]);
    let total = rows.reduce((sum, row) => sum + row.bytes, 0);
    if (total > limit) {
      const oldest = keys.map((key, at) => ({ key, row: rows[at]! })).sort((a, b) => a.row.used - b.row.used);
      for (const { key, row } of oldest) {
        if (total <= (limit * 3) / 4) break;
        total -= row.bytes;
        entries.delete(key);
        index.delete(key);
      }
    }
    await ended(transaction);
  }

  #fail(reason: string): void {
    this.state.state = "failed";
    this.state.reason = reason;
    this.#database?.close();
    this.#database = undefined;
    this.#unwritten.clear();
  }

  /** Drops all entries in memory, including those not written yet. */
  forget(): void {
    this.#known.clear();
    this.#held = 0;
    this.#rows.clear();
    this.#touched.clear();
    this.#unwritten.clear();
  }
}

/** Deletes all stored entries, also those of other versions of this package. */
export async function deleteEntries(): Promise<void> {
  if (typeof indexedDB === "undefined") return;
  try {
    const database = await patient(openDatabase());
    const transaction = database.transaction(["entries", "index"], "readwrite");
    transaction.objectStore("entries").clear();
    transaction.objectStore("index").clear();
    await ended(transaction);
    database.close();
  } catch {
    // a storage that cannot be opened holds no entries
  }
}
