// Loading the wasm module, once, in pages, workers and Node.
import loadModule from "./pkg/gradloom_web.js";
import { DeviceError, FetchError } from "./errors.js";

/** Where the wasm module comes from; by default the file next to this one. */
export interface ModuleOptions {
  /** A URL that serves `gradloom_web_bg.wasm`; the modules that are loaded on first use are looked for beside it. */
  wasmUrl?: string | URL;
  /** A compiled module. */
  module?: WebAssembly.Module;
  /** The module's bytes. */
  bytes?: BufferSource;
}

/** Is this Node (or something that looks like it)? */
export const inNode =
  (globalThis as { process?: { versions?: { node?: string } } }).process?.versions?.node !== undefined;

/** One of Node's own modules. The name is a parameter so that bundlers for the browser leave the import alone. */
export const builtin = (name: string): Promise<any> => import(/* @vite-ignore */ name);

let ready: Promise<void> | undefined;
let folder: URL | undefined;

/** What the other modules' names are relative to, if not to the package's own files. */
export const wasmFolder = (): URL | undefined => folder;

/** Loads the module; all but the first call just wait. After a failure the next call tries again. */
export function loadWasm(options: ModuleOptions = {}): Promise<void> {
  ready ??= start(options).catch((error: unknown) => {
    ready = undefined;
    throw error;
  });
  return ready;
}

async function start({ wasmUrl, module, bytes }: ModuleOptions): Promise<void> {
  if (typeof WebAssembly === "undefined") throw new DeviceError("E_DEVICE", "there is no WebAssembly here");
  const given = module ?? bytes;
  try {
    if (given !== undefined) await loadModule({ module_or_path: given });
    else if (inNode && wasmUrl === undefined) {
      await loadModule({ module_or_path: await readFile(new URL("./pkg/gradloom_web_bg.wasm", import.meta.url)) });
    } else if (wasmUrl !== undefined) {
      await loadModule({ module_or_path: wasmUrl });
      folder = new URL(wasmUrl, (globalThis as { location?: { href: string } }).location?.href);
    } else await loadModule();
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    const hint = "serve gradloom_web_bg.wasm, or name it with init({ wasmUrl })";
    throw new FetchError("E_FETCH", `the wasm module did not load: ${why}`, { cause: error, hint });
  }
}

/** A file's bytes, in Node. */
export async function readFile(path: string | URL): Promise<Uint8Array<ArrayBuffer>> {
  const { readFile: read } = await builtin("node:fs/promises");
  return new Uint8Array(await read(path));
}
