// Starts the worker that runs a page's models and tasks: one for all, on first use, and a new one if it ends.
import { type Device, type DeviceKind, type WorkerCall, open, pageWorkers, settings } from "./device.js";
import { InternalError } from "./errors.js";
import { loadWasm, moduleState } from "./module.js";
import { type Callbacks, RpcClient } from "./remote/calls.js";
import { newLock, workerViaBlob } from "./workers.js";

/** A worker that has not answered within this time counts as failed. */
const START_TIMEOUT_MS = 20_000;

let connection: Promise<RpcClient | null> | undefined;
/** The settings of `init` that were last sent to the worker, as JSON. */
let sentSettings: unknown;

/** Functions of the page that the worker may call at any time. */
export const pageFunctions: Callbacks = { log: (text: string) => (settings.log ?? console.log)(text) };

const newWorker = (): Worker => new Worker(new URL("./remote-worker.js", import.meta.url), { type: "module" });

/** The ways to start the worker, in the order in which they are tried. */
const STARTERS = [newWorker, () => workerViaBlob(newWorker)];

/** Forgets the worker, so that the next call starts another one. */
function forget(call: WorkerCall): void {
  connection = sentSettings = undefined;
  pageWorkers.delete(call);
}

/** Starts the worker in one of the ways; null if the browser refuses it. */
async function connectTo(start: () => Worker): Promise<RpcClient | null> {
  let worker: Worker;
  try {
    worker = start();
  } catch {
    return null;
  }
  // a worker that ends before its first answer leaves the connection to the next way
  const client: RpcClient = new RpcClient(worker, () => client.alive && forget(call), pageFunctions);
  const call: WorkerCall = (name) => client.call(name, undefined);
  const timer = setTimeout(() => client.alive || client.end(new InternalError("E_INTERNAL", "the worker does not answer")), START_TIMEOUT_MS);
  try {
    // the page sends the compiled module, so that it is fetched only once
    await loadWasm();
    const lock = newLock();
    if (await client.call<boolean>("begin", { ...moduleState(), lock })) client.watchLock(lock);
    pageWorkers.add(call);
    return client;
  } catch (error) {
    client.end(new InternalError("E_INTERNAL", "the worker did not start"));
    if (!client.alive && error instanceof InternalError) return null;
    forget(call);
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

async function connect(): Promise<RpcClient | null> {
  for (const start of STARTERS) {
    const client = await connectTo(start);
    if (client) return client;
  }
  console.warn("gradloom: models run on the page's own thread, because their worker did not start");
  connection = Promise.resolve(null);
  return null;
}

/** The worker, or null if the browser refuses it, which the console reports once. */
export const workerClient = (): Promise<RpcClient | null> => (connection ??= connect());

/** The device that the worker shall use, with the options of `init` unless the worker has the current ones. */
export function deviceRequest(device: DeviceKind | "auto" | undefined): { device: DeviceKind | "auto" } {
  const { log: _, gpuDevice: __, ...all } = settings;
  const current = JSON.stringify(all);
  const changed = current === sentSettings ? {} : { settings: all };
  sentSettings = current;
  return { device: device ?? "auto", ...changed };
}

/** Whether the page has a GPU and the worker has none. */
let onlyPageHasGpu = false;

/** Whether models should run in the page's own thread, because only that has the GPU. */
export const prefersPage = (): boolean => onlyPageHasGpu;

/** Updates and returns `prefersPage` after the worker chose device `chosen` for the request `requested`. */
export async function updatePrefersPage(requested: DeviceKind | "auto" | undefined, chosen: Device["kind"]): Promise<boolean> {
  if ((requested ?? "auto") !== "auto" || chosen !== "wasm" || !("gpu" in globalThis.navigator)) return false;
  return (onlyPageHasGpu = (await open("auto")).kind === "webgpu");
}
