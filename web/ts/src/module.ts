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

const { process } = globalThis as { process?: { type?: string; versions?: { node?: string } } };

/**
 * Whether this is Node or a compatible host. Pages and workers of Electron may have Node's `process` as well, but load
 * scripts, workers and wasm as pages do.
 */
export const inNode = process?.versions?.node !== undefined && !["renderer", "worker", "service-worker"].includes(process.type as string);

/** One of Node's own modules. The name is a parameter so that bundlers for the browser leave the import alone. */
export const builtin = (name: string): Promise<any> => import(/* @vite-ignore */ /* webpackIgnore: true */ name);

/**
 * A file of the package, in Node. Bundlers look for literal `new URL(file, import.meta.url)`; this function hides the
 * file from them, since it is not an asset of a page.
 */
export const packageFile = (file: string, base: string = import.meta.url): URL => new URL(file, base);

/** An instance of the package's own module. */
export type Engine = Instance<ReturnType<typeof makeBindings>>;
export type { Runtime };

let shared: Promise<Engine> | undefined;
let latest: Engine | undefined;
let compiled: WebAssembly.Module | undefined;
let folder: URL | undefined;
let isWhole = false;

/** The folder in which the other wasm files are looked up, if not the package's own. */
export const wasmFolder = (): URL | undefined => folder;

/** Whether the module may already contain all its parts; nothing is prefetched then. */
export const mayHaveAllParts = (): boolean => isWhole;

/**
 * The shared instance. The first call loads it, later calls wait for the same load; after a failure or the instance's
 * end the next call makes a new one. `meanwhile` is called once the location of the files is known and the module, which
 * takes longest, is on its way: to begin what is needed once the module is there.
 */
export function loadWasm(options: ModuleOptions = {}, meanwhile?: () => void): Promise<Engine> {
  const forget = (): void => void (shared = undefined);
  if (shared) meanwhile?.();
  shared ??= newEngine(options, meanwhile).then(
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

/** Makes a separate instance; `meanwhile` as for `loadWasm`. */
export async function newEngine({ wasmUrl, module, bytes }: ModuleOptions, meanwhile?: () => void): Promise<Engine> {
  if (typeof WebAssembly === "undefined") throw new DeviceError("E_DEVICE", "there is no WebAssembly here");
  const provided = module ?? bytes ?? (wasmUrl === undefined ? compiled : undefined);
  const previousFolder = folder;
  isWhole ||= (module ?? bytes) !== undefined || /gradloom_whole/.test(String(wasmUrl));
  try {
    // set the folder immediately, because parts are fetched meanwhile
    if (provided === undefined && wasmUrl !== undefined) folder = new URL(wasmUrl, (globalThis as { location?: { href: string } }).location?.href);
    const isFile = provided === undefined && inNode && wasmUrl === undefined;
    const response = provided === undefined && !isFile ? fetch(wasmUrl ?? address()) : undefined;
    response?.catch(() => {});
    meanwhile?.();
    const engine: Engine = new Instance(makeBindings);
    const file = isFile ? await readFile(packageFile("./pkg/gradloom_web_bg.wasm")) : undefined;
    await engine.api.load({ module_or_path: (provided ?? response ?? file)! });
    compiled = engine.api.module();
    return (latest = engine);
  } catch (error) {
    folder = previousFolder;
    if (error instanceof GradloomError) throw error;
    const why = error instanceof Error ? error.message : String(error);
    // as Chromium and Safari, Chromium's embedders, and Firefox refuse WebAssembly
    const isForbidden = /unsafe-eval|by embedder|by CSP/.test(why);
    const hint = isForbidden
      ? "the Content-Security-Policy needs script-src 'wasm-unsafe-eval'"
      : "serve gradloom_web_bg.wasm, or name it with init({ wasmUrl })";
    throw new FetchError("E_FETCH", `the wasm module did not load: ${why}`, { cause: error, hint });
  }
}

/** What another thread needs to instantiate the same module. */
export interface ModuleState {
  compiled: WebAssembly.Module | undefined;
  folder: string | undefined;
  isWhole: boolean;
}

export const moduleState = (): ModuleState => ({ compiled, folder: folder?.href, isWhole });

export function useModule(state: ModuleState): void {
  ({ compiled, isWhole } = state);
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
