// Loads the wasm module in pages, workers and Node: one shared instance, and separate instances for callers that want
// one.
import makeBindings, { type Runtime, type WebGpuProbe, address } from "./pkg/gradloom_web.js";
import { DeviceError, FetchError, GradloomError, StateError } from "./errors.js";
import { Instance } from "./instance.js";

/** Where the wasm module is loaded from. Default: the file beside this script. */
export interface ModuleOptions {
  /** The URL of `gradloom_web_bg.wasm`; all other wasm files are looked up beside it. */
  wasmUrl?: string | URL;
  /** A compiled module. `gradloom_whole_bg.wasm` contains all parts, for hosts that cannot fetch any. */
  module?: WebAssembly.Module;
  /** The module's bytes, as an alternative to `module`. */
  bytes?: BufferSource;
}

/** Whether this is Node or a compatible host. */
export const inNode =
  (globalThis as { process?: { versions?: { node?: string } } }).process?.versions?.node !== undefined;

/** One of Node's own modules. The name is a parameter so that bundlers for the browser leave the import alone. */
export const builtin = (name: string): Promise<any> => import(/* @vite-ignore */ /* webpackIgnore: true */ name);

/**
 * A file of the package, in Node. Bundlers look for literal `new URL(file, import.meta.url)`; this function hides the
 * file from them, since it is not an asset of a page.
 */
export const besideThis = (file: string, here: string = import.meta.url): URL => new URL(file, here);

/** An instance of the package's own module. */
export type Engine = Instance<ReturnType<typeof makeBindings>>;
export type { Runtime };

let shared: Promise<Engine> | undefined;
let latest: Engine | undefined;
let compiled: WebAssembly.Module | undefined;
let folder: URL | undefined;
let whole = false;

/** The folder in which the other wasm files are looked up, if not the package's own. */
export const wasmFolder = (): URL | undefined => folder;

/** Whether the module may already contain all its parts; nothing is prefetched then. */
export const mayBeWhole = (): boolean => whole;

/**
 * The shared instance. The first call loads it, later calls wait for the same load; after a failure or the instance's
 * end the next call makes a new one. `ahead` is called once the location of the files is known and before the module is
 * fetched, so that small files fetched by it arrive by the time the module does.
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

/** Makes a separate instance; `ahead` as for `loadWasm`. */
export async function newEngine({ wasmUrl, module, bytes }: ModuleOptions, ahead?: () => void): Promise<Engine> {
  if (typeof WebAssembly === "undefined") throw new DeviceError("E_DEVICE", "there is no WebAssembly here");
  const given = module ?? bytes ?? (wasmUrl === undefined ? compiled : undefined);
  const before = folder;
  whole ||= (module ?? bytes) !== undefined || /gradloom_whole/.test(String(wasmUrl));
  try {
    // set the folder immediately, because parts are fetched meanwhile
    if (given === undefined && wasmUrl !== undefined) folder = new URL(wasmUrl, (globalThis as { location?: { href: string } }).location?.href);
    ahead?.();
    const isFile = given === undefined && inNode && wasmUrl === undefined;
    // fetch while the bindings are created
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

/** What another thread needs to instantiate the same module. */
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

/** The module's exports that need no device; throws if the module is not loaded. */
export function plainApi(): Engine["api"] {
  if (latest && !latest.ended) return latest.api;
  throw new StateError("E_STATE", "the wasm module is not loaded", { hint: "call `await init()` first" });
}

/** The version of the loaded wasm module. */
export const version = (): string => plainApi().version();

/** The WebGPU adapter and its limits, or null where there is none. */
export const probeWebGpu = async (): Promise<WebGpuProbe | null> => (await plainApi().probeWebGpu()) ?? null;

/** A file's bytes, in Node. */
export async function readFile(path: string | URL): Promise<Uint8Array<ArrayBuffer>> {
  const { readFile: read } = await builtin("node:fs/promises");
  return new Uint8Array(await read(path));
}
