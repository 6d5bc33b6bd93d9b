// Persistent storage for blocks of downloaded files: the origin private file system, or else the Cache API. A store
// maps names to bytes; downloads.ts defines what they mean.

/** Named byte blocks in folders. `put` fails if there is no space; all other operations tolerate failures. */
export interface Store {
  readonly kind: "opfs" | "cache";
  folders(): Promise<string[]>;
  /** The names in a folder. */
  names(folder: string): Promise<string[]>;
  get(folder: string, name: string): Promise<Blob | undefined>;
  put(folder: string, name: string, bytes: Uint8Array): Promise<void>;
  drop(folder: string): Promise<void>;
}

const STORE_NAME = "gradloom-files";

let opened: Promise<Store | undefined> | undefined;

/** The store of this origin; undefined if nothing can be stored. */
export function openStore(): Promise<Store | undefined> {
  return (opened ??= opfsStore().catch(() => undefined).then((store) => store ?? cacheStore().catch(() => undefined)));
}

async function opfsStore(): Promise<Store | undefined> {
  // in some browsers only workers can write these files
  if (typeof FileSystemFileHandle === "undefined" || !("createWritable" in FileSystemFileHandle.prototype)) return undefined;
  const root = await (await navigator.storage.getDirectory()).getDirectoryHandle(STORE_NAME, { create: true });
  const namesIn = async (folder: FileSystemDirectoryHandle): Promise<string[]> => {
    const names = [];
    for await (const name of (folder as unknown as { keys(): AsyncIterable<string> }).keys()) names.push(name);
    return names;
  };
  const findFolder = (folder: string): Promise<FileSystemDirectoryHandle | undefined> => root.getDirectoryHandle(folder).catch(() => undefined);
  return {
    kind: "opfs",
    folders: () => namesIn(root),
    async names(folder) {
      const handle = await findFolder(folder);
      return handle ? namesIn(handle) : [];
    },
    async get(folder, name) {
      const handle = await (await findFolder(folder))?.getFileHandle(name).catch(() => undefined);
      return handle?.getFile();
    },
    async put(folder, name, bytes) {
      const handle = await (await root.getDirectoryHandle(folder, { create: true })).getFileHandle(name, { create: true });
      const writer = await handle.createWritable();
      try {
        await writer.write(bytes as Uint8Array<ArrayBuffer>);
        // the write is atomic: the file appears on `close`
        await writer.close();
      } catch (error) {
        await writer.abort().catch(() => {});
        throw error;
      }
    },
    drop: (folder) => root.removeEntry(folder, { recursive: true }).catch(() => {}),
  };
}

async function cacheStore(): Promise<Store | undefined> {
  if (typeof caches === "undefined") return undefined;
  const cache = await caches.open(STORE_NAME);
  // a reserved domain, so these addresses exist on no server
  const base = "https://gradloom.invalid/";
  const paths = async (): Promise<string[][]> => (await cache.keys()).map(({ url }) => url.slice(base.length).split("/"));
  return {
    kind: "cache",
    folders: async () => [...new Set((await paths()).map(([folder]) => folder as string))],
    names: async (folder) => (await paths()).filter(([each]) => each === folder).map(([, name]) => name as string),
    get: async (folder, name) => (await cache.match(`${base}${folder}/${name}`))?.blob(),
    put: (folder, name, bytes) => cache.put(`${base}${folder}/${name}`, new Response(bytes as Uint8Array<ArrayBuffer>)),
    async drop(folder) {
      for (const [each, name] of await paths()) if (each === folder) await cache.delete(`${base}${each}/${name}`);
    },
  };
}
