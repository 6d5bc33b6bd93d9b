// Instances of the wasm module, in pages, workers and Node: one that all share, and those that a caller wants for itself.
import makeBindings, { type Runtime, type WebGpuProbe, address } from "./pkg/gradloom_web.js";
import { DeviceError, FetchError, GradloomError, StateError } from "./errors.js";
import { Instance } from "./instance.js";

/** Where the wasm module comes from; by default the file next to this one. */
export interface ModuleOptions {
  /** A URL that serves `gradloom_web_bg.wasm`; all other files are looked for beside it. */
  wasmUrl?: string | URL;
  /** A compiled module: that of `gradloom_whole_bg.wasm` has all its parts in it, for hosts that can fetch none. */
  module?: WebAssembly.Module;
  /** The module's bytes: as of `module`. */
  bytes?: BufferSource;
}

/** Is this Node (or something that looks like it)? */
export const inNode =
  (globalThis as { process?: { versions?: { node?: string } } }).process?.versions?.node !== undefined;

/** One of Node's own modules. The name is a parameter so that bundlers for the browser leave the import alone. */
export const builtin = (name: string): Promise<any> => import(/* @vite-ignore */ /* webpackIgnore: true */ name);

/** A file of the package, in Node. Bundlers, which look for `new URL` with both its arguments, leave it alone: it is no asset of a page. */
export const besideThis = (file: string, here: string = import.meta.url): URL => new URL(file, here);

/** An instance of the package's own module. */
export type Engine = Instance<ReturnType<typeof makeBindings>>;
export type { Runtime };

let shared: Promise<Engine> | undefined;
let latest: Engine | undefined;
let compiled: WebAssembly.Module | undefined;
let folder: URL | undefined;
let whole = false;

/** What the other files' names are relative to, if not to the package's own files. */
export const wasmFolder = (): URL | undefined => folder;

/** May the module have all its parts? Nothing is fetched ahead then. */
export const mayBeWhole = (): boolean => whole;

/**
 * The instance that all share. All calls but the first just wait, until it fails or ends: the next one makes a new one then. `ahead` is called when it
 * is known where files are, before the module is fetched: what is small is best there when the module is.
 */
export function loadWasm(options: ModuleOptions = {}, ahead?: () => void): Promise<Engine> {
  const forget = (): void => void (shared = undefined);
  if (shared) ahead?.();
  shared ??= newEngine(options, ahead).then(
    (engine) => {
      engine.atEnd(forget);
      return engine;
    },
    (error: unknown) => {
      forget();
      throw error;
    },
  );
  return shared;
}

/** An instance for the caller alone; `ahead` as above. */
export async function newEngine({ wasmUrl, module, bytes }: ModuleOptions, ahead?: () => void): Promise<Engine> {
  if (typeof WebAssembly === "undefined") throw new DeviceError("E_DEVICE", "there is no WebAssembly here");
  const given = module ?? bytes ?? (wasmUrl === undefined ? compiled : undefined);
  const before = folder;
  whole ||= (module ?? bytes) !== undefined || /gradloom_whole/.test(String(wasmUrl));
  try {
    // at once, because parts are fetched meanwhile
    if (given === undefined && wasmUrl !== undefined) folder = new URL(wasmUrl, (globalThis as { location?: { href: string } }).location?.href);
    ahead?.();
    const isFile = given === undefined && inNode && wasmUrl === undefined;
    // on its way while the bindings are made
    const coming = given === undefined && !isFile ? fetch(wasmUrl ?? address()) : undefined;
    coming?.catch(() => {});
    const engine: Engine = new Instance(makeBindings);
    const file = isFile ? await readFile(besideThis("./pkg/gradloom_web_bg.wasm")) : undefined;
    await engine.api.load({ module_or_path: (given ?? coming ?? file)! });
    compiled = engine.api.module();
    return (latest = engine);
  } catch (error) {
    folder = before;
    if (error instanceof GradloomError) throw error;
    const why = error instanceof Error ? error.message : String(error);
    const hint = "serve gradloom_web_bg.wasm, or name it with init({ wasmUrl })";
    throw new FetchError("E_FETCH", `the wasm module did not load: ${why}`, { cause: error, hint });
  }
}

/** What another thread needs to make instances of the same module. */
export interface ModuleState {
  compiled: WebAssembly.Module | undefined;
  folder: string | undefined;
  whole: boolean;
}

export const moduleState = (): ModuleState => ({ compiled, folder: folder?.href, whole });

export function useModule(state: ModuleState): void {
  ({ compiled, whole } = state);
  folder = state.folder === undefined ? undefined : new URL(state.folder);
}

/** What needs the module's code and no device. */
export function plainApi(): Engine["api"] {
  if (latest && !latest.ended) return latest.api;
  throw new StateError("E_STATE", "the wasm module is not loaded", { hint: "call `await init()` first" });
}

/** The version of this build. */
export const version = (): string => plainApi().version();

/** The adapter and limits of WebGPU here, or null where there is none. */
export const probeWebGpu = async (): Promise<WebGpuProbe | null> => (await plainApi().probeWebGpu()) ?? null;

/** A file's bytes, in Node. */
export async function readFile(path: string | URL): Promise<Uint8Array<ArrayBuffer>> {
  const { readFile: read } = await builtin("node:fs/promises");
  return new Uint8Array(await read(path));
}
