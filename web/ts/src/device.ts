// Devices: which there are, starting one, and the one that new tensors use.
import type { DType } from "./dtype.js";
import {
  DeviceError, FetchError, type GradloomError, StateError, OutOfMemoryError, UnsupportedError, ValueError, guard, guardAsync, guardSoon,
} from "./errors.js";
import { type Engine, type ModuleOptions, type Runtime, builtin, inNode, loadWasm, moduleState, newEngine } from "./module.js";
import { Cache, type CacheOptions, type CacheState, closeAhead, deleteEntries, openAhead } from "./cache.js";
import { always, join, prefetch } from "./parts.js";
import { piece } from "./pieces.js";
import { type TuneOptions, type TunedKernel, slots } from "./tune.js";
import { Slices, turn } from "./turns.js";
import { type WorkerLike, startWorkers } from "./workers.js";

/** The devices by name. */
export type DeviceKind = "webgpu" | "wasm";

/** WebGPU's own objects, by the names that the page's TypeScript has for them. */
export type GpuDevice = typeof globalThis extends { GPUDevice: { prototype: infer D } } ? D : object;
export type GpuBuffer = typeof globalThis extends { GPUBuffer: { prototype: infer B } } ? B : object;

/** Where a tensor's elements lie: bytes of a buffer, in the dtype that the device stores them as. */
export interface GpuBufferPart {
  buffer: GpuBuffer;
  offset: number;
  size: number;
  dtype: DType;
}

/** Why a device is gone: WebGPU's reason, and `destroyed` for one that `dispose` ended. */
export interface DeviceLost {
  reason: "destroyed" | "unknown";
  message: string;
}

/** A started device. */
export interface Device {
  readonly kind: DeviceKind;
  /** Threads it computes with. */
  readonly threads: number;
  /** True for WebGPU that a processor emulates. */
  readonly software: boolean;
  readonly relaxedSimd: boolean;
  readonly maxBufferBytes: number;
  /** What its driver gets wrong, and how kernels go without it: it is asked when the device starts. */
  readonly notes: readonly string[];
  /**
   * Fulfilled when it is gone with all that it held, as `lost` of WebGPU's own devices: its driver was reset, the GPU process ended, a
   * kernel of WebAssembly failed, or the wasm module stopped. That of a model in the worker, `model.device.lost`, tells of the worker's
   * device. It never rejects.
   */
  readonly lost: Promise<DeviceLost>;
  /**
   * Searches for faster kernels among those that were launched so far, between two runs. Runs that follow use what it
   * finds, and so do later visits. Results stay the same up to the order of sums.
   */
  tune(options?: TuneOptions): Promise<TunedKernel[]>;
  /**
   * The `GPUDevice` that it computes with, for the page's own shaders beside it: buffers made on it are tensors by `Tensor.fromGPUBuffer`, and tensors
   * buffers by `gpuBuffer`. It is never destroyed by the page. `E_UNSUPPORTED` for devices that are not WebGPU, `E_DEVICE` for one
   * of the page's worker.
   */
  gpuDevice(): Promise<GpuDevice>;
  /** Ends an isolated device and frees all that it holds; what is under way is rejected with `E_STATE`. Only for those. */
  dispose(): void;
  [Symbol.dispose](): void;
}

/** What is known of a device before it is started. */
export interface DeviceReport {
  kind: DeviceKind;
  available: boolean;
  /** True for WebGPU that a processor emulates: `auto` prefers wasm to it. */
  software: boolean;
  /** Threads the device would use. */
  threads: number;
  /** Why it is not there, or works below its best. */
  reason: string | undefined;
}

/** What `init` takes. */
export interface InitOptions extends ModuleOptions {
  /** The device new tensors use. `auto`, the default, is WebGPU where there is a real one, else WebAssembly. */
  device?: DeviceKind | "auto";
  /**
   * A `GPUDevice` of the page to compute with, so that buffers can be shared with it: its limits and features are what there is. It stays
   * the page's: it is never destroyed here, and once it is lost only another `init` goes on (`E_DEVICE_LOST`).
   */
  gpuDevice?: GpuDevice;
  /** Threads of the wasm device: by default one for each core, up to 8, where memory may be shared. */
  threads?: number;
  /** False keeps nothing across visits. Settled by the first call that starts the device. */
  cache?: boolean | CacheOptions;
  /**
   * Starts the device in an instance of the wasm module of its own, with memory that nothing else uses, until its `dispose`: for a
   * model that is not trusted. Should such a model stop the module, nothing but itself is gone. New tensors and models use the
   * device only where they name it.
   */
  isolated?: boolean;
  /** Makes shaders as for a GPU of hardware where a processor emulates it: slower, and how they are tested. */
  asHardware?: boolean;
  /**
   * Tuned opts that the application brings along: the `line`s that `tune` gave, one below the other. They are for what is
   * compiled after this call; a kernel they do not fit is compiled as usual, and what this machine found itself goes first.
   */
  tuned?: string;
  /**
   * Shows what devices compile and run from now on; each level also what those below it do. 1: kernels as they are compiled; 2: every
   * launch, waited for, with its time; 3: opts and parameters of kernels, their estimated times and what bounds those, and the memory of each
   * launch; 4: their code, WGSL or WebAssembly; 5: their graphs as scheduled;
   * 6 and 7: the graph after each pass. From 3 on nothing comes out of the cache of earlier visits. 0, the default, ends it.
   */
  debug?: number;
  /** What `debug` is told to: `console.log` if left out. */
  log?: (text: string) => void;
  /**
   * Bytes that tensors may take on the device. What would be more first has forgotten tensors collected, and is an `OutOfMemoryError`
   * (`E_OUT_OF_MEMORY`) if that was not enough. `Infinity`, the default, leaves it to the device.
   */
  memoryLimit?: number;
  signal?: AbortSignal;
}

/** Memory and work of a device since it started. */
export interface Memory {
  device: DeviceKind;
  /** True for one of the page's worker. */
  worker?: true;
  /** Bytes the device holds, and the most it ever held. */
  bytes: number;
  peakBytes: number;
  /** Live tensor handles. */
  tensors: number;
  /** Plans made, plans found in the cache, kernels compiled and launched. */
  plans: number;
  planHits: number;
  programs: number;
  launches: number;
}

/** What was compiled, where it came from, and how long it took. */
export interface Timing {
  /** Milliseconds of planning and generating code. */
  planMs: number;
  /** Milliseconds until the browser had compiled that. */
  deviceMs: number;
  /** Milliseconds of running; on WebGPU, of handing the work over; with worker threads, those in which the caller took part. */
  runMs: number;
  /** Plans and kernels made now, and those that an earlier visit left behind. */
  plansMade: number;
  plansCached: number;
  kernelsCompiled: number;
  kernelsCached: number;
  /** Schedules that did not fit the kernel they were chosen for, so that a slower one was taken: a defect worth a report. */
  fallbacks: number;
}

/** Timing as the module gives it. */
export const timingOf = (n: ArrayLike<number>): Timing => ({
  planMs: n[0]!,
  deviceMs: n[1]!,
  runMs: n[2]!,
  plansMade: n[3]!,
  plansCached: n[4]!,
  kernelsCompiled: n[5]!,
  kernelsCached: n[6]!,
  fallbacks: n[7]!,
});
/** How many numbers that is. */
export const TIMING_NUMBERS = 8;

/** The timing of everything a device did since it started. */
export interface Stats extends Timing {
  device: DeviceKind;
  /** True for one of the page's worker. */
  worker?: true;
  /** Kernels that tuning exchanged for faster ones. */
  kernelsTuned: number;
  cache: CacheState;
}

/** A device with the wasm module's object behind it. Only for this package's own files. */
export interface Host extends Device {
  readonly raw: Runtime;
  readonly cache: Cache;
  readonly engine: Engine;
  /** Threads of its own. */
  readonly workers: readonly WorkerLike[];
}

/** Asks the page's worker for the same of its own devices, if there is one. */
export const there: { ask?: (name: "stats" | "memory" | "flushCache" | "clearCache") => Promise<any[]> } = {};
const both = async <T>(name: "stats" | "memory", own: T[]): Promise<T[]> => [...own, ...((await there.ask?.(name).catch(() => [])) ?? [])];

type Hosts = Map<DeviceKind, Promise<Host>>;

/** What `init` was told that holds for devices which start later, in the page's worker too. */
export const settings: InitOptions = {};

/** The devices of each instance of the wasm module that has not ended. */
const started = new Map<Engine, Hosts>();
const isolated = new WeakSet<Engine>();
/** Devices that somebody computes with: `auto` may start one and take another. */
const inUse = new WeakSet<Host>();
/** Devices over a `GPUDevice` of the page. */
const given = new WeakMap<Host, GpuDevice>();
/** What took the place of a lost device. */
const renewed = new WeakMap<Host, Promise<Host>>();
let current: Host | undefined;
let threadsWanted: number | undefined;
let cacheWanted: InitOptions["cache"];
let asHardware = false;
let limitWanted: number | undefined;
/** What devices show, and to whom. */
interface Shown {
  level: number;
  log: (text: string) => void;
}
/** For devices that all share. */
let debug: Shown | undefined;

/** Can threads share memory here? */
function shares(): boolean {
  if (typeof SharedArrayBuffer === "undefined") return false;
  return inNode || globalThis.crossOriginIsolated === true;
}

async function coreCount(): Promise<number> {
  const known = globalThis.navigator?.hardwareConcurrency;
  if (known !== undefined || !inNode) return known ?? 1;
  // Node 20 has no navigator.
  return (await builtin("node:os")).availableParallelism();
}

async function threadCount(): Promise<number> {
  if (!shares()) return 1;
  const cores = await coreCount();
  return Math.max(1, Math.min(threadsWanted ?? Math.min(cores, 8), 64));
}

/** Whether workers can be started here was seen when the device was. */
let workersFailed: string | undefined;
let threadsStarted = 1;

function newCache(): Cache {
  return new Cache(typeof cacheWanted === "object" ? cacheWanted : {});
}

/** Has a device show what it does. */
async function show(engine: Engine, raw: Runtime, { level, log }: Shown): Promise<void> {
  await join(engine, "tune");
  raw.debug(level, log);
}

async function host(engine: Engine, raw: Runtime, cache: Cache, workers: readonly WorkerLike[], slices: Slices, pages?: GpuDevice): Promise<Host> {
  const gpu = raw.gpu() as { destroy(): void; lost: Promise<DeviceLost> } | undefined;
  const lost = new Promise<DeviceLost>((tell) => {
    engine.atEnd(() => {
      const why = engine.ended;
      tell({ reason: why instanceof StateError ? "destroyed" : "unknown", message: why?.message ?? "" });
      workers.forEach((worker) => worker.terminate());
      if (!pages) gpu?.destroy();
    });
    if (gpu) void gpu.lost.then(({ reason, message }) => tell({ reason: reason ?? "unknown", message }));
    else raw.whenLost((message: string) => tell({ reason: "unknown", message }));
  });
  if (cacheWanted === false) cache.state.reason = "it was switched off";
  else await cache.readAhead(raw.cacheGroups() as string[]);
  if (debug) await show(engine, raw, debug);
  if (limitWanted !== undefined) raw.setMemoryLimit(limitWanted);
  for (const part of always) await join(engine, part);
  await slices.breathe();
  const info = raw.info();
  const device: Partial<Host> = {
    kind: info.kind,
    threads: info.threads,
    software: info.software,
    relaxedSimd: info.relaxedSimd,
    maxBufferBytes: info.maxBufferBytes,
    notes: info.notes,
  };
  const tune = (options: TuneOptions = {}): Promise<TunedKernel[]> => {
    const { ms = options.idle ? 10_000 : 5_000, signal } = options;
    const work = async (): Promise<TunedKernel[]> => {
      await join(engine, "tune");
      return raw.tune(ms, slots(ms, options), options.fromPlain === true);
    };
    return guardAsync(work, signal);
  };
  const gpuDevice = async (): Promise<GpuDevice> => {
    await join(onGpu("gpuDevice", device as Host).engine, "share");
    return raw.gpu() as GpuDevice;
  };
  const dispose = (): void => {
    if (!isolated.has(engine)) throw new StateError("E_STATE", "dispose: only isolated devices end");
    engine.end(new StateError("E_STATE", "this device was disposed"));
  };
  const hidden = Object.entries({ raw, cache, engine, workers, lost, tune, gpuDevice, dispose }).map(([name, value]) => [name, { value }] as const);
  return Object.freeze(Object.defineProperties(device, { ...Object.fromEntries(hidden), [Symbol.dispose]: { value: dispose } }) as Host);
}

/** The workers of a device. */
interface Crew {
  workers: WorkerLike[];
  /** Why there are no more of them. */
  failed: string | undefined;
  /** Those that have ended, of which the device is told. */
  readonly gone: Set<WorkerLike>;
  tell?: (worker: WorkerLike) => void;
}

/** Those that come up while the module does, for the first device of the page. */
let early: Promise<Crew> | undefined;

async function newCrew(): Promise<Crew> {
  const crew: Crew = { workers: [], failed: undefined, gone: new Set() };
  const gone = (worker: WorkerLike): void => {
    crew.gone.add(worker);
    crew.tell?.(worker);
  };
  return Object.assign(crew, await startWorkers((await threadCount()) - 1, gone));
}

/** Lets go of what there is no device for. */
function dismiss(): void {
  closeAhead();
  void early?.then(({ workers }) => workers.forEach((worker) => worker.terminate()));
  early = undefined;
}

async function startWasm(engine: Engine): Promise<Host> {
  prefetch("wasm");
  const coming = early ?? newCrew();
  early = undefined;
  const crew = await coming;
  const { workers, failed, gone } = crew;
  let raw: Runtime | undefined;
  crew.tell = (worker) => {
    if (!engine.ended) raw?.workerGone(worker);
  };
  await join(engine, "wasm").catch((error: unknown) => {
    workers.forEach((worker) => worker.terminate());
    throw error;
  });
  // A host that forbids workers (a strict policy, a sandbox) still computes, with fewer threads.
  workersFailed = failed;
  threadsStarted = workers.length + 1;
  const cache = newCache();
  // the code of both is new to the browser
  const slices = new Slices();
  await turn();
  const live = workers.filter((worker) => !gone.has(worker));
  raw = guard(() => engine.api.wasmRuntime(live.length > 0, live, cache));
  return host(engine, raw, cache, live, slices);
}

/** Why the adapter could not be used, once it was tried. */
let refused: string | undefined;

async function startWebGpu(engine: Engine, pages?: GpuDevice): Promise<Host> {
  const cache = newCache();
  const make = async (): Promise<Runtime | undefined> => {
    if (!pages && !(await hasAdapter())) return undefined;
    // buffers of the page are for its own device
    await join(engine, pages ? "share" : "webgpu");
    return engine.api.webgpuRuntime(cache, asHardware, pages);
  };
  // The GPU process may have ended while the device was opened. The browser starts another one, so that a second try can succeed.
  const again = (error: unknown): Promise<Runtime | undefined> => {
    if (pages || !(error instanceof DeviceError)) throw error;
    return guardAsync(make);
  };
  const raw = await guardAsync(make).catch(again).catch((error: Error) => {
    if (!pages && !(error instanceof FetchError)) refused = error.message;
    throw error;
  });
  if (!pages) refused = undefined;
  if (raw) {
    const made = await host(engine, raw, cache, [], new Slices(), pages);
    if (pages) given.set(made, pages);
    return made;
  }
  const hint = 'use device "auto" or "wasm"';
  throw new DeviceError("E_DEVICE", `WebGPU is not available: ${noWebGpu()}`, { hint });
}

/** Starts a device of an instance, once. */
function start(kind: DeviceKind, engine: Engine, pages?: GpuDevice): Promise<Host> {
  const device = kind === "wasm" ? startWasm(engine) : startWebGpu(engine, pages);
  let hosts = started.get(engine);
  if (!hosts) {
    started.set(engine, (hosts = new Map()));
    engine.atEnd(() => started.delete(engine));
  }
  const before = hosts.get(kind);
  hosts.set(kind, device);
  device.catch(() => (before ? hosts.set(kind, before) : hosts.delete(kind)));
  return device;
}

/** A device, or if it is lost another one of its kind in its place. */
export async function present(host: Host): Promise<Host> {
  if (!guard(() => host.raw.lost())) return host;
  if (given.has(host) && !renewed.has(host)) {
    throw new DeviceError("E_DEVICE_LOST", "the page's GPUDevice is lost", { hint: "`await init({ gpuDevice })` with another one, or without" });
  }
  let next = renewed.get(host);
  if (!next) {
    host.workers.forEach((worker) => worker.terminate());
    next = start(host.kind, host.engine);
    renewed.set(host, next);
    if (inUse.has(host)) next.then((fresh) => inUse.add(fresh), () => {});
    next.then((fresh) => host === current && (current = fresh), () => renewed.delete(host));
  }
  return present(await next);
}

const gpuHere = (): { requestAdapter(): Promise<unknown> } | undefined => (globalThis.navigator as { gpu?: any } | undefined)?.gpu;

/** The browser gave an adapter when it was last asked. */
let hadAdapter = false;

/**
 * Does the browser give an adapter? What goes wrong there is told by the device, which asks again. One that gave an adapter before gives none while its
 * GPU process starts anew: it is asked for three seconds, once.
 */
async function hasAdapter(): Promise<boolean> {
  try {
    for (let wait = 50; ; wait *= 2) {
      const has = Boolean(await gpuHere()?.requestAdapter());
      if (has || !hadAdapter || wait > 2000) return (hadAdapter = has);
      await new Promise((done) => setTimeout(done, wait));
    }
  } catch {
    return true;
  }
}

const isFirst = (): boolean => moduleState().compiled === undefined;

/**
 * Begins to fetch what a device will need that is not started yet. While the module is on its way for the first time, its workers are started and
 * the storage is opened too.
 */
async function prefetchDevice(kind: DeviceKind | "auto" = "auto"): Promise<void> {
  const adapter = kind === "wasm" ? undefined : hasAdapter();
  if (!adapter) prefetch("wasm");
  if (isFirst() && cacheWanted !== false) openAhead();
  if (await adapter) return prefetch("webgpu");
  prefetch("wasm");
  if (isFirst()) early ??= newCrew();
}

/** Loads the module for a device, and what that needs besides. */
function loadFor(kind: DeviceKind | "auto" | undefined, load: (ahead: () => void) => Promise<Engine>): Promise<Engine> {
  const first = isFirst();
  const loading = load(() => void prefetchDevice(kind));
  if (first) loading.catch(dismiss);
  return loading;
}

function noWebGpu(): string {
  if (inNode) return "Node has none";
  if (globalThis.isSecureContext === false) return "the page is not a secure context (https or localhost)";
  return gpuHere() ? "the browser gives no adapter" : "this browser does not have it";
}

/** A device, started if it is not: of the instance that all share, or of another one. */
export async function open(kind: DeviceKind | "auto", engine?: Engine): Promise<Host> {
  if (!engine) {
    engine = await (current ? loadWasm() : loadFor(kind, (ahead) => loadWasm({}, ahead)));
  }
  if (kind === "auto") {
    const gpu = await opened("webgpu", engine).catch(() => undefined);
    kind = gpu && !gpu.software ? "webgpu" : "wasm";
  }
  if (kind !== "webgpu" && kind !== "wasm") {
    throw new DeviceError("E_DEVICE", `there is no device \`${String(kind)}\`; there are webgpu and wasm`);
  }
  const host = await opened(kind, engine);
  inUse.add(host);
  return host;
}

/** The device that is asked for, started. */
export async function hostOf(device: DeviceKind | "auto" | Device | undefined): Promise<Host> {
  return typeof device === "object" ? present(device as Host) : open(device ?? "auto");
}

async function opened(kind: DeviceKind, engine: Engine): Promise<Host> {
  const host = await (started.get(engine)?.get(kind) ?? start(kind, engine));
  // who does not name the page's own gets one that can be had again
  return given.has(host) && guard(() => host.raw.lost()) ? start(kind, engine) : present(host);
}

/** The device over a `GPUDevice` of the page, started if it is not. */
async function openGiven(pages: GpuDevice, kind: DeviceKind | "auto", engine: Engine): Promise<Host> {
  if (kind === "wasm") throw new ValueError("E_VALUE", "init: gpuDevice is for device `webgpu`");
  const before = started.get(engine)?.get("webgpu");
  const known = before && (await before.catch(() => undefined));
  const host = known && given.get(known) === pages ? await present(known) : await start("webgpu", engine, pages);
  inUse.add(host);
  return host;
}

/**
 * Loads the wasm module and starts a device, which new tensors then use. Call it again to change that device, or to start afresh
 * after an `InternalError` or the loss of the device.
 */
export async function init(options: InitOptions = {}): Promise<Device> {
  const { device: _, isolated: __, wasmUrl: ___, module: ____, bytes: _____, signal, ...kept } = options;
  if (options.threads !== undefined) threadsWanted = options.threads;
  if (options.cache !== undefined) cacheWanted = options.cache;
  if (options.asHardware !== undefined) asHardware = options.asHardware;
  const { memoryLimit } = options;
  if (memoryLimit !== undefined && !(memoryLimit >= 0)) throw new ValueError("E_VALUE", `init: memoryLimit ${memoryLimit} is no number of bytes`);
  if (!options.isolated) limitWanted = memoryLimit ?? limitWanted;
  const shown = options.debug === undefined ? undefined : { level: options.debug, log: options.log ?? console.log };
  if (shown && !options.isolated) debug = shown;
  const begin = async (engine: Engine): Promise<Device> => {
    const kind = options.device ?? "auto";
    const device = options.gpuDevice ? await openGiven(options.gpuDevice, kind, engine) : await open(kind, engine);
    if (shown) {
      const hosts = options.isolated ? [device] : await live();
      await Promise.all(hosts.map(({ engine, raw }) => show(engine, raw, shown)));
    }
    if (memoryLimit !== undefined) {
      const hosts = options.isolated ? [device] : (await live()).filter((each) => !isolated.has(each.engine));
      hosts.forEach(({ raw }) => raw.setMemoryLimit(memoryLimit));
    }
    if (options.tuned !== undefined) guard(() => device.raw.addTuned(String(options.tuned)));
    return device;
  };
  if (!options.isolated) {
    const shared = async (): Promise<Device> => {
      current = (await begin(await loadFor(options.device, (ahead) => loadWasm(options, ahead)))) as Host;
      Object.assign(settings, { gpuDevice: undefined }, kept);
      return current;
    };
    return guardAsync(shared, signal);
  }
  const apart = async (): Promise<Device> => {
    const engine = await loadFor(options.device, (ahead) => newEngine(options, ahead));
    isolated.add(engine);
    return begin(engine).catch((error: GradloomError) => {
      engine.end(error);
      throw error;
    });
  };
  return guardAsync(apart, signal, (late) => late.dispose());
}

/** Nothing can be computed with it any more. */
const isOver = (host: Host): boolean => host.engine.ended !== undefined || host.raw.lost();

/** Uses a device for new tensors unless there is one in use already. */
export function useByDefault(device: Host): void {
  if ((!current || isOver(current)) && !isolated.has(device.engine)) current = device;
}

/** The device of new tensors. */
export function defaultHost(): Host {
  if (!current) throw new StateError("E_STATE", "no device is started", { hint: "call `await init()` before computing with tensors" });
  if (current.engine.ended) throw current.engine.ended;
  if (current.raw.lost()) throw new DeviceError("E_DEVICE_LOST", `device ${current.kind} is lost`, { hint: "`await init()` starts another one" });
  return current;
}

/** The same, if there is one. */
export const startedHost = (): Host | undefined => (current && !current.engine.ended ? current : undefined);

/** A device with buffers of WebGPU's. */
export function onGpu(what: string, host: Host): Host {
  if (host.kind === "webgpu") return host;
  throw new UnsupportedError("E_UNSUPPORTED", `${what}: device ${host.kind} has no GPU buffers`, { hint: "`init({ gpuDevice })` computes on the page's own" });
}

/** Which devices are here, and why one is not. Starts none. */
export async function devices(): Promise<DeviceReport[]> {
  const { api } = await loadWasm();
  const gpu = await api.probeWebGpu().catch(() => undefined);
  const software = gpu?.fallback === true || gpu?.vendor === "google";
  const slow = software ? "a processor emulates it, so `auto` uses wasm" : undefined;
  const threads = await threadCount();
  const notes = (await live()).filter(({ kind }) => kind === "webgpu").flatMap((host) => host.notes);
  const reason = [refused, slow, ...notes].filter((each) => each).join("; ") || undefined;
  return [
    { kind: "webgpu", available: gpu !== undefined && !refused, software, threads: 1, reason: gpu ? reason : noWebGpu() },
    { kind: "wasm", available: true, software: false, threads: workersFailed ? threadsStarted : threads, reason: whyFewThreads() },
  ];
}

/** Why the wasm device has fewer threads than it could have. */
function whyFewThreads(): string | undefined {
  if (!shares()) return "one thread: memory is shared only with pages that are cross-origin isolated";
  return workersFailed && `fewer threads: ${workersFailed}`;
}

/** Devices that are started. */
export async function live(): Promise<Host[]> {
  const all = [...started.values()].flatMap((hosts) => [...hosts.values()]);
  const hosts = await Promise.all(all.map((device) => device.catch(() => undefined)));
  return hosts.filter((each) => each !== undefined && !isOver(each)) as Host[];
}

const used = async (): Promise<Host[]> => (await live()).filter((host) => inUse.has(host));

/** What the started devices compiled and ran, and what they found in the cache of earlier visits. */
export async function stats(): Promise<Stats[]> {
  const own = (await used()).map(({ kind, raw, cache }): Stats => {
    const numbers = raw.stats();
    return { device: kind, ...timingOf(numbers), kernelsTuned: numbers[TIMING_NUMBERS]!, cache: { ...cache.state } };
  });
  return both("stats", own);
}

/** Writes what is not yet written to the cache; a page need not call it. */
export async function flushCache(): Promise<void> {
  await Promise.all([...(await live()).map(({ cache }) => cache.flush()), there.ask?.("flushCache")]);
}

/** Deletes compiled plans, kernels and tuned opts of earlier visits and of this one. What is loaded goes on. */
export async function clearCache(): Promise<void> {
  (await live()).forEach(({ cache }) => cache.forget());
  await there.ask?.("clearCache");
  await deleteEntries();
}

/**
 * Work on a device. If memory is refused, tensors that the program forgot may still hold it: a loop that never lets the page have a turn
 * keeps them from being freed. They are, and the work is tried once more.
 */
export function onDevice<T>(host: Host, body: () => Promise<T> | T, signal?: AbortSignal, late?: (value: T) => void): Promise<T> | T {
  const again = async (error: unknown): Promise<T> => {
    if (!(error instanceof OutOfMemoryError)) throw error;
    const { collected } = await piece("collect").catch(() => {
      throw error;
    });
    await collected(host);
    return guardAsync(body, signal, late);
  };
  const work = guardSoon(body, signal, late);
  return work instanceof Promise ? work.catch(again) : work;
}

/** What the started devices hold. */
export async function memory(): Promise<Memory[]> {
  const hosts = await used();
  // one that ends meanwhile holds nothing
  await Promise.allSettled(hosts.map((each) => each.raw.collect()));
  return both("memory", hosts.filter((each) => !isOver(each)).map((each) => ({ device: each.kind, ...each.raw.counters() })));
}
