// Devices: which there are, starting one, and the one that new tensors use.
import { type Runtime, probeWebGpu, wasmRuntime, webgpuRuntime } from "./pkg/gradloom_web.js";
import { DeviceError, StateError, guard, guardAsync } from "./errors.js";
import { type ModuleOptions, builtin, inNode, loadWasm } from "./module.js";
import { Cache, type CacheOptions, type CacheState, deleteEntries } from "./cache.js";
import { type TuneOptions, type TunedKernel, slots } from "./tune.js";
import { startWorkers } from "./workers.js";

/** The devices by name. */
export type DeviceKind = "webgpu" | "wasm";

/** A started device. */
export interface Device {
  readonly kind: DeviceKind;
  /** Threads it computes with. */
  readonly threads: number;
  /** True for WebGPU that a processor emulates. */
  readonly software: boolean;
  readonly relaxedSimd: boolean;
  readonly maxBufferBytes: number;
  /**
   * Searches for faster kernels among those that were launched so far, between two runs. Runs that follow use what it
   * finds, and so do later visits. Results stay the same up to the order of sums.
   */
  tune(options?: TuneOptions): Promise<TunedKernel[]>;
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
  /** Threads of the wasm device: by default one for each core, up to 8, where memory may be shared. */
  threads?: number;
  /** False keeps nothing across visits. Settled by the first call that starts the device. */
  cache?: boolean | CacheOptions;
  /** Makes shaders as for a GPU of hardware where a processor emulates it: slower, and how they are tested. */
  asHardware?: boolean;
  /**
   * Tuned opts that the application brings along: the `line`s that `tune` gave, one below the other. They are for what is
   * compiled after this call; a kernel they do not fit is compiled as usual, and what this machine found itself goes first.
   */
  tuned?: string;
  signal?: AbortSignal;
}

/** Memory and work of a device since it started. */
export interface Memory {
  device: DeviceKind;
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
}

/** The timing of everything a device did since it started. */
export interface Stats extends Timing {
  device: DeviceKind;
  /** Kernels that tuning exchanged for faster ones. */
  kernelsTuned: number;
  cache: CacheState;
}

/** A device with the wasm module's object behind it. Only for this package's own files. */
export interface Host extends Device {
  readonly raw: Runtime;
  readonly cache: Cache;
}

const started = new Map<DeviceKind, Promise<Host>>();
let current: Host | undefined;
let threadsWanted: number | undefined;
let cacheWanted: InitOptions["cache"];
let asHardware = false;

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

function newCache(): Cache {
  return new Cache(typeof cacheWanted === "object" ? cacheWanted : {});
}

async function host(raw: Runtime, cache: Cache): Promise<Host> {
  if (cacheWanted === false) cache.state.reason = "it was switched off";
  else await cache.readAhead(raw.cacheGroups() as string[]);
  const info = raw.info() as Device;
  const device = {
    kind: info.kind,
    threads: info.threads,
    software: info.software,
    relaxedSimd: info.relaxedSimd,
    maxBufferBytes: info.maxBufferBytes,
  };
  const tune = (options: TuneOptions = {}): Promise<TunedKernel[]> => {
    const { ms = options.idle ? 10_000 : 5_000, signal } = options;
    return guardAsync(() => raw.tune(ms, slots(ms, options), options.fromPlain === true) as Promise<TunedKernel[]>, signal);
  };
  const hidden = { raw: { value: raw }, cache: { value: cache }, tune: { value: tune } };
  return Object.freeze(Object.defineProperties(device, hidden) as Host);
}

async function startWasm(): Promise<Host> {
  const threads = await threadCount();
  // A host that forbids workers (a strict policy, a sandbox) still computes, on one thread.
  const failed = (error: unknown): [] => {
    workersFailed = error instanceof Error ? error.message : String(error);
    return [];
  };
  const workers = threads > 1 ? await startWorkers(threads - 1).catch(failed) : [];
  const cache = newCache();
  return host(guard(() => wasmRuntime(workers.length > 0, workers, cache)), cache);
}

async function startWebGpu(): Promise<Host> {
  const cache = newCache();
  const raw = await guardAsync(() => webgpuRuntime(cache, asHardware));
  if (raw) return host(raw, cache);
  const hint = 'use device "auto" or "wasm"';
  throw new DeviceError("E_DEVICE", `WebGPU is not available: ${noWebGpu()}`, { hint });
}

function noWebGpu(): string {
  if (inNode) return "Node has none";
  if (globalThis.isSecureContext === false) return "the page is not a secure context (https or localhost)";
  return (globalThis.navigator as { gpu?: unknown } | undefined)?.gpu
    ? "the browser gives no adapter"
    : "this browser does not have it";
}

/** Starts a device, once. */
export async function open(kind: DeviceKind | "auto"): Promise<Host> {
  await loadWasm();
  if (kind === "auto") {
    const gpu = await open("webgpu").catch(() => undefined);
    return gpu && !gpu.software ? gpu : open("wasm");
  }
  if (kind !== "webgpu" && kind !== "wasm") {
    throw new DeviceError("E_DEVICE", `there is no device \`${String(kind)}\`; there are webgpu and wasm`);
  }
  let device = started.get(kind);
  if (!device) {
    device = kind === "wasm" ? startWasm() : startWebGpu();
    started.set(kind, device);
    device.catch(() => started.delete(kind));
  }
  return device;
}

/** Loads the wasm module and starts a device, which new tensors then use. Call it again to change that device. */
export async function init(options: InitOptions = {}): Promise<Device> {
  const { signal } = options;
  if (options.threads !== undefined) threadsWanted = options.threads;
  if (options.cache !== undefined) cacheWanted = options.cache;
  if (options.asHardware !== undefined) asHardware = options.asHardware;
  return guardAsync(async () => {
    await loadWasm(options);
    const device = await open(options.device ?? "auto");
    if (options.tuned !== undefined) guard(() => device.raw.addTuned(String(options.tuned)));
    current = device;
    return current;
  }, signal);
}

/** Uses a device for new tensors unless there is one in use already. */
export function useByDefault(device: Host): void {
  current ??= device;
}

/** The device of new tensors. */
export function defaultHost(): Host {
  if (current) return current;
  throw new StateError("E_STATE", "no device is started", { hint: "call `await init()` before computing with tensors" });
}

/** Which devices are here, and why one is not. Starts none. */
export async function devices(): Promise<DeviceReport[]> {
  await loadWasm();
  const gpu = (await probeWebGpu().catch(() => null)) as { fallback?: boolean; vendor?: string } | null;
  const software = gpu?.fallback === true || gpu?.vendor === "google";
  const slow = software ? "a processor emulates it, so `auto` uses wasm" : undefined;
  const threads = await threadCount();
  return [
    { kind: "webgpu", available: gpu !== null, software, threads: 1, reason: gpu ? slow : noWebGpu() },
    { kind: "wasm", available: true, software: false, threads: workersFailed ? 1 : threads, reason: whyOneThread() },
  ];
}

/** Why the wasm device has no threads, if it could have some. */
function whyOneThread(): string | undefined {
  if (!shares()) return "one thread: memory is shared only with pages that are cross-origin isolated";
  return workersFailed && `one thread: ${workersFailed}`;
}

async function live(): Promise<Host[]> {
  const hosts = await Promise.all([...started.values()].map((device) => device.catch(() => undefined)));
  return hosts.filter((each) => each !== undefined);
}

/** What the started devices compiled and ran, and what they found in the cache of earlier visits. */
export async function stats(): Promise<Stats[]> {
  return (await live()).map(({ kind, raw, cache }) => {
    return { device: kind, ...(raw.stats() as Omit<Stats, "device" | "cache">), cache: { ...cache.state } };
  });
}

/** Writes what is not yet written to the cache; a page need not call it. */
export async function flushCache(): Promise<void> {
  await Promise.all((await live()).map(({ cache }) => cache.flush()));
}

/** Deletes compiled plans, kernels and tuned opts of earlier visits and of this one. What is loaded goes on. */
export async function clearCache(): Promise<void> {
  (await live()).forEach(({ cache }) => cache.forget());
  await deleteEntries();
}

/** What the started devices hold. */
export async function memory(): Promise<Memory[]> {
  const hosts = await live();
  await Promise.all(hosts.map((each) => each.raw.collect()));
  return hosts.map((each) => ({ device: each.kind, ...(each.raw.counters() as Omit<Memory, "device">) }));
}
