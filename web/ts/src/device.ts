// Devices: lists those available, starts them, and keeps the default device of new tensors.
// The declarations of the package name `Symbol.dispose`, which the libraries of a project's configuration may lack.
/// <reference lib="esnext.disposable" preserve="true" />
import type { DType } from "./dtype.js";
import {
  DeviceError, FetchError, type GradloomError, StateError, OutOfMemoryError, UnsupportedError, ValueError, guard, guardAsync, guardSoon,
} from "./errors.js";
import { type Engine, type ModuleOptions, type Runtime, builtin, inNode, loadWasm, moduleState, newEngine } from "./module.js";
import { Cache, type CacheOptions, type CacheState, closePreopened, deleteEntries, preopenDatabase } from "./cache.js";
import { loadPart, prefetch, startupParts } from "./wasm-parts.js";
import { loadChunk } from "./chunks.js";
import { type TuneOptions, type TunedKernel, timeSlots } from "./tune.js";
import { TimeSlices, yieldToEventLoop } from "./event-loop.js";
import { type WorkerLike, startWorkers } from "./workers.js";

/** The kinds of devices. */
export type DeviceKind = "webgpu" | "wasm";

/** Types of WebGPU's own objects, taken from the global types of the page's TypeScript configuration if it has them. */
export type GpuDevice = typeof globalThis extends { GPUDevice: { prototype: infer D } } ? D : object;
export type GpuBuffer = typeof globalThis extends { GPUBuffer: { prototype: infer B } } ? B : object;

/** A tensor's elements as a byte range of a buffer, in the dtype in which the device stores them. */
export interface GpuBufferPart {
  buffer: GpuBuffer;
  offset: number;
  size: number;
  dtype: DType;
}

/** Why a device was lost: WebGPU's own reason, or `destroyed` for a device that `dispose` ended. */
export interface DeviceLost {
  reason: "destroyed" | "unknown";
  message: string;
}

/** A started device. */
export interface Device {
  readonly kind: DeviceKind;
  /** Number of threads that it computes with. */
  readonly threads: number;
  /** True for WebGPU that is emulated on the CPU. */
  readonly software: boolean;
  readonly relaxedSimd: boolean;
  readonly maxBufferBytes: number;
  /** Defects of the driver that were detected when the device started, and how kernels work around them. */
  readonly notes: readonly string[];
  /**
   * Resolves when the device is lost with everything it held, like `GPUDevice.lost`: its driver was reset, the GPU
   * process ended, a WebAssembly kernel trapped, or the wasm module stopped. For a model in the worker,
   * `model.device.lost` reports the loss of the worker's device. It never rejects.
   */
  readonly lost: Promise<DeviceLost>;
  /**
   * Searches for faster versions of the kernels launched so far, between two runs. Later runs use what it finds, and so
   * do later visits. Results stay the same up to the order of summation.
   */
  tune(options?: TuneOptions): Promise<TunedKernel[]>;
  /**
   * The `GPUDevice` that it computes with, so that the page's own shaders can share data with it:
   * `Tensor.fromGPUBuffer` makes tensors of buffers created on it, and `gpuBuffer` gives the buffers of tensors. The
   * page must not destroy it. `E_UNSUPPORTED` for devices other than WebGPU, `E_DEVICE` for a device in the page's
   * worker.
   */
  gpuDevice(): Promise<GpuDevice>;
  /**
   * Ends an isolated device and frees everything it holds; pending work is rejected with `E_STATE`. Only isolated
   * devices have it.
   */
  dispose(): void;
  [Symbol.dispose](): void;
}

/** What is known about a device before it is started. */
export interface DeviceReport {
  kind: DeviceKind;
  available: boolean;
  /** True for WebGPU that is emulated on the CPU; `auto` prefers wasm to it. */
  software: boolean;
  /** Number of threads that the device would use. */
  threads: number;
  /** Why it is unavailable, or slower than it could be. */
  reason: string | undefined;
}

/** Options of `init`. */
export interface InitOptions extends ModuleOptions {
  /** The device that new tensors use. `auto`, the default, is WebGPU on a hardware GPU, else WebAssembly. */
  device?: DeviceKind | "auto";
  /**
   * A `GPUDevice` that the page created, to compute on and share buffers with; its limits and features apply. The page
   * keeps ownership: this package never destroys it, and once it is lost (`E_DEVICE_LOST`) only another `init`
   * continues.
   */
  gpuDevice?: GpuDevice;
  /** Threads of the wasm device. Default: one per core, up to 8, if memory can be shared between threads; else 1. */
  threads?: number;
  /** The cache across visits; false disables it. The call that first starts the device determines the setting. */
  cache?: boolean | CacheOptions;
  /**
   * Starts the device in a wasm instance of its own, with separate memory, until its `dispose`: for models that are not
   * trusted. If such a model makes the module stop, nothing else is affected. New tensors and models use the device
   * only where they name it.
   */
  isolated?: boolean;
  /**
   * Generates shaders as for a hardware GPU even on an adapter that is emulated on the CPU: slower, meant for tests of
   * these shaders.
   */
  asHardware?: boolean;
  /**
   * Tuned kernel optimisations shipped with the application: the `line`s that `tune` returned, one per text line. They
   * apply to kernels compiled after this call; a kernel that they do not fit is compiled as usual, and results of
   * tuning on this machine take precedence.
   */
  tuned?: string;
  /**
   * Logs what devices compile and run from now on; each level includes the lower ones. 1: kernels as they are compiled;
   * 2: every launch with its time, which waits for each launch; 3: opts and parameters of kernels, their estimated
   * times and what limits them, and the memory of each launch; 4: their code, WGSL or WebAssembly; 5: their graphs as
   * scheduled; 6 and 7: the graph after each pass. From 3 on the cache of earlier visits is not used. 0, the default,
   * turns logging off.
   */
  debug?: number;
  /** Receives the text of `debug`. Default: `console.log`. */
  log?: (text: string) => void;
  /**
   * Limit for the bytes of all tensors on the device. An allocation beyond it first triggers a collection of
   * unreachable tensors and fails with `OutOfMemoryError` (`E_OUT_OF_MEMORY`) if that frees too little. `Infinity`, the
   * default, sets no limit besides the device's own.
   */
  memoryLimit?: number;
  signal?: AbortSignal;
}

/** What a worker of the page is for. */
export type WorkerOf = "models" | "LLM" | "Encoder";

/** Memory use and counters of a device since it started. */
export interface Memory {
  device: DeviceKind;
  /** The worker whose device it is: that of models and tasks, or one of a language model or an encoder. */
  worker?: WorkerOf;
  /** Bytes that the device holds now, and the most it ever held. */
  bytes: number;
  peakBytes: number;
  /** Live tensor handles. */
  tensors: number;
  /** Numbers of plans made, plans found in the cache, kernels compiled, and kernels launched. */
  plans: number;
  planHits: number;
  programs: number;
  launches: number;
}

/** What was compiled, how much of it came from the cache, and how long it took. */
export interface Timing {
  /** Milliseconds spent on planning and generating code. */
  planMs: number;
  /** Milliseconds that the browser took to compile the generated code. */
  deviceMs: number;
  /**
   * Milliseconds of execution. On WebGPU only of submitting the work; with worker threads, of the calling thread's
   * share.
   */
  runMs: number;
  /** Numbers of plans and kernels made now, and of those found in the cache of an earlier visit. */
  plansMade: number;
  plansCached: number;
  kernelsCompiled: number;
  kernelsCached: number;
  /**
   * Number of kernels whose chosen optimisations could not be applied, so that a slower version was compiled. Anything
   * above 0 is a defect worth reporting.
   */
  fallbacks: number;
}

/** Decodes a `Timing` from the numbers that the wasm module returns. */
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
/** How many numbers `timingOf` reads. */
export const TIMING_NUMBERS = 8;

/** Totals of everything that a device did since it started. */
export interface Stats extends Timing {
  device: DeviceKind;
  /** The worker whose device it is: that of models and tasks, or one of a language model or an encoder. */
  worker?: WorkerOf;
  /** Number of kernels that tuning replaced by faster ones. */
  kernelsTuned: number;
  cache: CacheState;
}

/** A device with the wasm module's object behind it. Only for this package's own files. */
export interface Host extends Device {
  readonly raw: Runtime;
  readonly cache: Cache;
  readonly engine: Engine;
  /** The device's worker threads, without the calling one. */
  readonly workers: readonly WorkerLike[];
}

/** Requests figures or actions of a worker of the page for its devices. */
export type WorkerCall = (name: "stats" | "memory" | "flushCache" | "clearCache") => Promise<any>;
/** The calls of the page's workers that have started. */
export const pageWorkers = new Set<WorkerCall>();
const callWorkers = (name: Parameters<WorkerCall>[0]): Promise<any[]> => Promise.all([...pageWorkers].map((call) => call(name).catch(() => [])));
const withWorkers = async <T>(name: "stats" | "memory", own: T[]): Promise<T[]> => [...own, ...(await callWorkers(name)).flat()];

type Hosts = Map<DeviceKind, Promise<Host>>;

/** The options of `init` that also apply to devices started later, including those in the page's worker. */
export const settings: InitOptions = {};

/** The started devices of each live wasm instance. */
const started = new Map<Engine, Hosts>();
const isolated = new WeakSet<Engine>();
/** Devices that are in use. `auto` may start a device and then choose another one, which leaves the first unused. */
const inUse = new WeakSet<Host>();
/** Devices that run on a `GPUDevice` of the page. */
const pageGpuDevices = new WeakMap<Host, GpuDevice>();
/** The replacement of each lost device. */
const replacements = new WeakMap<Host, Promise<Host>>();
let current: Host | undefined;
let threadsWanted: number | undefined;
let cacheWanted: InitOptions["cache"];
let asHardware = false;
let limitWanted: number | undefined;
/** What a device logs, and where to. */
interface LogSettings {
  level: number;
  log: (text: string) => void;
}
/** The log settings of devices in the shared wasm instance. */
let debug: LogSettings | undefined;

/** Whether threads can share memory here. */
function canShareMemory(): boolean {
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
  if (!canShareMemory()) return 1;
  const cores = await coreCount();
  return Math.max(1, Math.min(threadsWanted ?? Math.min(cores, 8), 64));
}

/** Why the wasm device has fewer worker threads than wanted, known once it has started. */
let workersFailed: string | undefined;
let threadsStarted = 1;

function newCache(): Cache {
  return new Cache(typeof cacheWanted === "object" ? cacheWanted : {});
}

/** Makes a device log what it does. */
async function enableLog(engine: Engine, raw: Runtime, { level, log }: LogSettings): Promise<void> {
  await loadPart(engine, "tune");
  raw.debug(level, log);
}

async function makeHost(engine: Engine, raw: Runtime, cache: Cache, workers: readonly WorkerLike[], slices: TimeSlices, pageGpu?: GpuDevice): Promise<Host> {
  const gpu = raw.gpu() as { destroy(): void; lost: Promise<DeviceLost> } | undefined;
  const lost = new Promise<DeviceLost>((report) => {
    engine.atEnd(() => {
      const why = engine.ended;
      report({ reason: why instanceof StateError ? "destroyed" : "unknown", message: why?.message ?? "" });
      workers.forEach((worker) => worker.terminate());
      if (!pageGpu) gpu?.destroy();
    });
    if (gpu) void gpu.lost.then(({ reason, message }) => report({ reason: reason ?? "unknown", message }));
    else raw.whenLost((message: string) => report({ reason: "unknown", message }));
  });
  if (cacheWanted === false) cache.state.reason = "it was switched off";
  else await cache.readAhead(raw.cacheGroups() as string[]);
  if (debug) await enableLog(engine, raw, debug);
  if (limitWanted !== undefined) raw.setMemoryLimit(limitWanted);
  for (const part of startupParts) await loadPart(engine, part);
  await slices.yieldIfDue();
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
      await loadPart(engine, "tune");
      return raw.tune(ms, timeSlots(ms, options), options.fromPlain === true);
    };
    return guardAsync(work, signal);
  };
  const gpuDevice = async (): Promise<GpuDevice> => {
    await loadPart(onGpu("gpuDevice", device as Host).engine, "share");
    return raw.gpu() as GpuDevice;
  };
  const dispose = (): void => {
    if (!isolated.has(engine)) throw new StateError("E_STATE", "dispose: only isolated devices end");
    engine.end(new StateError("E_STATE", "this device was disposed"));
  };
  const hidden = Object.entries({ raw, cache, engine, workers, lost, tune, gpuDevice, dispose }).map(([name, value]) => [name, { value }] as const);
  return Object.freeze(Object.defineProperties(device, { ...Object.fromEntries(hidden), [Symbol.dispose]: { value: dispose } }) as Host);
}

/** The worker threads of a device. */
interface WorkerGroup {
  workers: WorkerLike[];
  /** Why some workers did not start. */
  failed: string | undefined;
  /** Workers that have ended; `onEnd` reports each to the device. */
  readonly ended: Set<WorkerLike>;
  onEnd?: (worker: WorkerLike) => void;
}

/** The workers that are started while the wasm module still loads, for the page's first device. */
let earlyWorkers: Promise<WorkerGroup> | undefined;

async function startWorkerGroup(): Promise<WorkerGroup> {
  const group: WorkerGroup = { workers: [], failed: undefined, ended: new Set() };
  const onExit = (worker: WorkerLike): void => {
    group.ended.add(worker);
    group.onEnd?.(worker);
  };
  return Object.assign(group, await startWorkers((await threadCount()) - 1, onExit));
}

/** Releases the storage and workers that were prepared for a device, when loading the module failed. */
function releasePrepared(): void {
  closePreopened();
  void earlyWorkers?.then(({ workers }) => workers.forEach((worker) => worker.terminate()));
  earlyWorkers = undefined;
}

async function startWasm(engine: Engine): Promise<Host> {
  prefetch("wasm");
  const starting = earlyWorkers ?? startWorkerGroup();
  earlyWorkers = undefined;
  const group = await starting;
  const { workers, failed, ended } = group;
  let raw: Runtime | undefined;
  group.onEnd = (worker) => {
    if (!engine.ended) raw?.workerGone(worker);
  };
  await loadPart(engine, "wasm").catch((error: unknown) => {
    workers.forEach((worker) => worker.terminate());
    throw error;
  });
  // a host that forbids workers (a strict policy, a sandbox) still computes, with fewer threads
  workersFailed = failed;
  threadsStarted = workers.length + 1;
  const cache = newCache();
  // yield here: both pieces of code run for the first time and are slow
  const slices = new TimeSlices();
  await yieldToEventLoop();
  const live = workers.filter((worker) => !ended.has(worker));
  raw = guard(() => engine.api.wasmRuntime(live.length > 0, live, cache));
  return makeHost(engine, raw, cache, live, slices);
}

/** Why the WebGPU adapter could not be used, after an attempt. */
let webGpuFailure: string | undefined;

async function startWebGpu(engine: Engine, pageGpu?: GpuDevice): Promise<Host> {
  const cache = newCache();
  const make = async (): Promise<Runtime | undefined> => {
    if (!pageGpu && !(await hasAdapter())) return undefined;
    // only a device of the page can be given buffers of the page
    await loadPart(engine, pageGpu ? "share" : "webgpu");
    return engine.api.webgpuRuntime(cache, asHardware, pageGpu);
  };
  // the GPU process may have ended while the device was opened; the browser restarts it, so a second attempt can
  // succeed
  const retry = (error: unknown): Promise<Runtime | undefined> => {
    if (pageGpu || !(error instanceof DeviceError)) throw error;
    return guardAsync(make);
  };
  const raw = await guardAsync(make).catch(retry).catch((error: Error) => {
    if (!pageGpu && !(error instanceof FetchError)) webGpuFailure = error.message;
    throw error;
  });
  if (!pageGpu) webGpuFailure = undefined;
  if (raw) {
    const webGpuHost = await makeHost(engine, raw, cache, [], new TimeSlices(), pageGpu);
    if (pageGpu) pageGpuDevices.set(webGpuHost, pageGpu);
    return webGpuHost;
  }
  const hint = 'use device "auto" or "wasm"';
  throw new DeviceError("E_DEVICE", `WebGPU is not available: ${whyNoWebGpu()}`, { hint });
}

/** Starts a device of a wasm instance and records it in `started`. */
function start(kind: DeviceKind, engine: Engine, pageGpu?: GpuDevice): Promise<Host> {
  const device = kind === "wasm" ? startWasm(engine) : startWebGpu(engine, pageGpu);
  let hosts = started.get(engine);
  if (!hosts) {
    started.set(engine, (hosts = new Map()));
    engine.atEnd(() => started.delete(engine));
  }
  const previous = hosts.get(kind);
  hosts.set(kind, device);
  device.catch(() => (previous ? hosts.set(kind, previous) : hosts.delete(kind)));
  return device;
}

/** The device itself, or if it is lost its replacement of the same kind, started if needed. */
export async function usableHost(host: Host): Promise<Host> {
  if (!guard(() => host.raw.lost())) return host;
  if (pageGpuDevices.has(host) && !replacements.has(host)) {
    throw new DeviceError("E_DEVICE_LOST", "the page's GPUDevice is lost", { hint: "`await init({ gpuDevice })` with another one, or without" });
  }
  let next = replacements.get(host);
  if (!next) {
    host.workers.forEach((worker) => worker.terminate());
    next = start(host.kind, host.engine);
    replacements.set(host, next);
    if (inUse.has(host)) next.then((fresh) => inUse.add(fresh), () => {});
    next.then((fresh) => host === current && (current = fresh), () => replacements.delete(host));
  }
  return usableHost(await next);
}

const browserGpu = (): { requestAdapter(): Promise<unknown> } | undefined => (globalThis.navigator as { gpu?: any } | undefined)?.gpu;

/** Whether the last request to the browser gave an adapter. */
let hadAdapter = false;

/**
 * Whether the browser gives a WebGPU adapter. Errors are ignored here, since the device asks again and reports them. A
 * browser that gave an adapter before gives none while its GPU process restarts: then it is asked repeatedly for up to
 * three seconds, once.
 */
async function hasAdapter(): Promise<boolean> {
  try {
    for (let wait = 50; ; wait *= 2) {
      const has = Boolean(await browserGpu()?.requestAdapter());
      if (has || !hadAdapter || wait > 2000) return (hadAdapter = has);
      await new Promise((done) => setTimeout(done, wait));
    }
  } catch {
    return true;
  }
}

const isFirstLoad = (): boolean => moduleState().compiled === undefined;

/**
 * Begins to fetch the parts of the wasm module that a device will need. While the module itself loads for the first
 * time, also starts the worker threads and opens the storage.
 */
async function prefetchDevice(kind: DeviceKind | "auto" = "auto"): Promise<void> {
  const adapter = kind === "wasm" ? undefined : hasAdapter();
  if (!adapter) prefetch("wasm");
  if (isFirstLoad() && cacheWanted !== false) preopenDatabase();
  if (await adapter) return prefetch("webgpu");
  prefetch("wasm");
  if (isFirstLoad()) earlyWorkers ??= startWorkerGroup();
}

/** Loads the wasm module for a device, and in parallel what that device needs. */
function loadForDevice(kind: DeviceKind | "auto" | undefined, load: (meanwhile: () => void) => Promise<Engine>): Promise<Engine> {
  const first = isFirstLoad();
  const loading = load(() => void prefetchDevice(kind));
  if (first) loading.catch(releasePrepared);
  return loading;
}

function whyNoWebGpu(): string {
  if (inNode) return "Node has none";
  if (globalThis.isSecureContext === false) return "the page is not a secure context (https or localhost)";
  return browserGpu() ? "the browser gives no adapter" : "this browser does not have it";
}

/** A device, started if necessary: of the shared wasm instance, or of `engine`. */
export async function open(kind: DeviceKind | "auto", engine?: Engine): Promise<Host> {
  if (!engine) {
    engine = await (current ? loadWasm() : loadForDevice(kind, (meanwhile) => loadWasm({}, meanwhile)));
  }
  if (kind === "auto") {
    const gpu = await openKind("webgpu", engine).catch(() => undefined);
    kind = gpu && !gpu.software ? "webgpu" : "wasm";
  }
  if (kind !== "webgpu" && kind !== "wasm") {
    throw new DeviceError("E_DEVICE", `there is no device \`${String(kind)}\`; there are webgpu and wasm`);
  }
  const host = await openKind(kind, engine);
  inUse.add(host);
  return host;
}

/** The requested device, started. */
export async function hostOf(device: DeviceKind | "auto" | Device | undefined): Promise<Host> {
  return typeof device === "object" ? usableHost(device as Host) : open(device ?? "auto");
}

async function openKind(kind: DeviceKind, engine: Engine): Promise<Host> {
  const host = await (started.get(engine)?.get(kind) ?? start(kind, engine));
  // a caller that does not name the page's `GPUDevice` gets a device that can be restarted after a loss
  return pageGpuDevices.has(host) && guard(() => host.raw.lost()) ? start(kind, engine) : usableHost(host);
}

/** The device that runs on a `GPUDevice` of the page, started if necessary. */
async function openPageGpu(pageGpu: GpuDevice, kind: DeviceKind | "auto", engine: Engine): Promise<Host> {
  if (kind === "wasm") throw new ValueError("E_VALUE", "init: gpuDevice is for device `webgpu`");
  const previous = started.get(engine)?.get("webgpu");
  const known = previous && (await previous.catch(() => undefined));
  const host = known && pageGpuDevices.get(known) === pageGpu ? await usableHost(known) : await start("webgpu", engine, pageGpu);
  inUse.add(host);
  return host;
}

/**
 * Loads the wasm module and starts a device, which new tensors then use. Call it again to change the device, or to
 * restart after an `InternalError` or the loss of the device.
 */
export async function init(options: InitOptions = {}): Promise<Device> {
  const { device: _, isolated: __, wasmUrl: ___, module: ____, bytes: _____, signal, ...keptOptions } = options;
  if (options.threads !== undefined) threadsWanted = options.threads;
  if (options.cache !== undefined) cacheWanted = options.cache;
  if (options.asHardware !== undefined) asHardware = options.asHardware;
  const { memoryLimit } = options;
  if (memoryLimit !== undefined && !(memoryLimit >= 0)) throw new ValueError("E_VALUE", `init: memoryLimit ${memoryLimit} is no number of bytes`);
  if (!options.isolated) limitWanted = memoryLimit ?? limitWanted;
  const logSettings = options.debug === undefined ? undefined : { level: options.debug, log: options.log ?? console.log };
  if (logSettings && !options.isolated) debug = logSettings;
  const begin = async (engine: Engine): Promise<Device> => {
    const kind = options.device ?? "auto";
    const device = options.gpuDevice ? await openPageGpu(options.gpuDevice, kind, engine) : await open(kind, engine);
    if (logSettings) {
      const hosts = options.isolated ? [device] : await liveHosts();
      await Promise.all(hosts.map(({ engine, raw }) => enableLog(engine, raw, logSettings)));
    }
    if (memoryLimit !== undefined) {
      const hosts = options.isolated ? [device] : (await liveHosts()).filter((each) => !isolated.has(each.engine));
      hosts.forEach(({ raw }) => raw.setMemoryLimit(memoryLimit));
    }
    if (options.tuned !== undefined) guard(() => device.raw.addTuned(String(options.tuned)));
    return device;
  };
  if (!options.isolated) {
    const startShared = async (): Promise<Device> => {
      current = (await begin(await loadForDevice(options.device, (meanwhile) => loadWasm(options, meanwhile)))) as Host;
      Object.assign(settings, { gpuDevice: undefined }, keptOptions);
      return current;
    };
    return guardAsync(startShared, signal);
  }
  const startIsolated = async (): Promise<Device> => {
    const engine = await loadForDevice(options.device, (meanwhile) => newEngine(options, meanwhile));
    isolated.add(engine);
    return begin(engine).catch((error: GradloomError) => {
      engine.end(error);
      throw error;
    });
  };
  return guardAsync(startIsolated, signal, (late) => late.dispose());
}

/** Whether nothing can be computed on the device any more. */
const isDead = (host: Host): boolean => host.engine.ended !== undefined || host.raw.lost();

/** Makes this the default device of new tensors unless a usable one is set. */
export function useByDefault(device: Host): void {
  if ((!current || isDead(current)) && !isolated.has(device.engine)) current = device;
}

/** The default device of new tensors; throws if there is none. */
export function defaultHost(): Host {
  if (!current) throw new StateError("E_STATE", "no device is started", { hint: "call `await init()` before computing with tensors" });
  if (current.engine.ended) throw current.engine.ended;
  if (current.raw.lost()) throw new DeviceError("E_DEVICE_LOST", `device ${current.kind} is lost`, { hint: "`await init()` starts another one" });
  return current;
}

/** The default device of new tensors, or undefined. */
export const startedHost = (): Host | undefined => (current && !current.engine.ended ? current : undefined);

/** Checks that the device is WebGPU's; throws for others. */
export function onGpu(what: string, host: Host): Host {
  if (host.kind === "webgpu") return host;
  throw new UnsupportedError("E_UNSUPPORTED", `${what}: device ${host.kind} has no GPU buffers`, { hint: "`init({ gpuDevice })` computes on the page's own" });
}

/** Lists the devices with their availability, and why one is unavailable. Starts none. */
export async function devices(): Promise<DeviceReport[]> {
  const { api } = await loadWasm();
  const gpu = await api.probeWebGpu().catch(() => undefined);
  const software = gpu?.fallback === true || gpu?.vendor === "google";
  const slow = software ? "a processor emulates it, so `auto` uses wasm" : undefined;
  const threads = await threadCount();
  const notes = (await liveHosts()).filter(({ kind }) => kind === "webgpu").flatMap((host) => host.notes);
  const reason = [webGpuFailure, slow, ...notes].filter((each) => each).join("; ") || undefined;
  return [
    { kind: "webgpu", available: gpu !== undefined && !webGpuFailure, software, threads: 1, reason: gpu ? reason : whyNoWebGpu() },
    { kind: "wasm", available: true, software: false, threads: workersFailed ? threadsStarted : threads, reason: whyFewThreads() },
  ];
}

/** Why the wasm device has fewer threads than the machine offers. */
function whyFewThreads(): string | undefined {
  if (!canShareMemory()) return "one thread: memory is shared only with pages that are cross-origin isolated";
  return workersFailed && `fewer threads: ${workersFailed}`;
}

/** All started devices that can still compute. */
export async function liveHosts(): Promise<Host[]> {
  const all = [...started.values()].flatMap((hosts) => [...hosts.values()]);
  const hosts = await Promise.all(all.map((device) => device.catch(() => undefined)));
  return hosts.filter((each) => each !== undefined && !isDead(each)) as Host[];
}

const hostsInUse = async (): Promise<Host[]> => (await liveHosts()).filter((host) => inUse.has(host));

/** What the started devices compiled and ran, and what they found in the cache of earlier visits. */
export async function stats(): Promise<Stats[]> {
  const own = (await hostsInUse()).map(({ kind, raw, cache }): Stats => {
    const numbers = raw.stats();
    return { device: kind, ...timingOf(numbers), kernelsTuned: numbers[TIMING_NUMBERS]!, cache: { ...cache.state } };
  });
  return withWorkers("stats", own);
}

/** Writes pending cache entries now. A page need not call it, since they are written in the background. */
export async function flushCache(): Promise<void> {
  await Promise.all([...(await liveHosts()).map(({ cache }) => cache.flush()), callWorkers("flushCache")]);
}

/** Deletes the stored plans, kernels and tuned opts of earlier visits and of this one. Loaded models keep working. */
export async function clearCache(): Promise<void> {
  (await liveHosts()).forEach(({ cache }) => cache.clear());
  await callWorkers("clearCache");
  await deleteEntries();
}

/**
 * Runs work on a device. If that runs out of memory, unreachable tensors may still hold some: in a loop that never
 * yields to the event loop their finalisers cannot run. They are collected, and the work is tried once more.
 */
export function onDevice<T>(host: Host, body: () => Promise<T> | T, signal?: AbortSignal, late?: (value: T) => void): Promise<T> | T {
  const retry = async (error: unknown): Promise<T> => {
    if (!(error instanceof OutOfMemoryError)) throw error;
    const { collectUnreachable } = await loadChunk("collect").catch(() => {
      throw error;
    });
    await collectUnreachable(host);
    return guardAsync(body, signal, late);
  };
  const work = guardSoon(body, signal, late);
  return work instanceof Promise ? work.catch(retry) : work;
}

/** Memory use and counters of the started devices. */
export async function memory(): Promise<Memory[]> {
  const hosts = await hostsInUse();
  // a device that ends meanwhile is left out
  await Promise.allSettled(hosts.map((each) => each.raw.collect()));
  return withWorkers("memory", hosts.filter((each) => !isDead(each)).map((each) => ({ device: each.kind, ...each.raw.counters() })));
}
