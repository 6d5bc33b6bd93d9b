// The worker that a page's models and tasks run in: one for all, started with the first of them, and another one if it ends.
import { type Device, type DeviceKind, open, settings, there } from "./device.js";
import { InternalError } from "./errors.js";
import { loadWasm, moduleState } from "./module.js";
import { Calls, type Functions } from "./remote/calls.js";

/** A worker that has not answered after so long does not start. */
const PATIENCE_MS = 20_000;

let running: Promise<Calls | null> | undefined;
/** What the worker was last told of `init`. */
let told: unknown;

/** What the worker may ask of the page at any time. */
export const forWorker: Functions = { log: (text: string) => (settings.log ?? console.log)(text) };

/** Null for a script of another origin. */
function startedWorker(): Worker | null {
  try {
    return new Worker(new URL("./remote-worker.js", import.meta.url), { type: "module" });
  } catch {
    return null;
  }
}

/** Its number among all workers of the origin's pages, for the lock that it holds. */
const newLock = (): string => `gradloom-worker-${globalThis.crypto?.randomUUID?.() ?? `${Date.now()}-${Math.random()}`}`;

async function start(): Promise<Calls | null> {
  const worker = startedWorker();
  const over = (): void => {
    running = told = undefined;
    delete there.ask;
  };
  const calls = worker && new Calls(worker, over, forWorker);
  const timer = setTimeout(() => calls?.alive === false && calls.end(new InternalError("E_INTERNAL", "the worker does not answer")), PATIENCE_MS);
  try {
    // the module comes compiled, so that it is fetched once
    await loadWasm();
    const lock = newLock();
    if (calls) {
      if (await calls.ask<boolean>("begin", { ...moduleState(), lock })) calls.watch(lock);
      there.ask = (name) => calls.ask(name, undefined);
      return calls;
    }
  } catch (error) {
    calls?.end(new InternalError("E_INTERNAL", "the worker did not start"));
    if (!calls || calls.alive || !(error instanceof InternalError)) {
      over();
      throw error;
    }
  } finally {
    clearTimeout(timer);
  }
  console.warn("gradloom: models run on the page's own thread, because their worker did not start");
  running = Promise.resolve(null);
  return null;
}

/** The worker, or null where the browser refuses it. The console says so, once. */
export const worker = (): Promise<Calls | null> => (running ??= start());

/** What the worker must know before it starts a device: what `init` was given, unless it knows that. */
export function deviceIn(device: DeviceKind | "auto" | undefined): { device: DeviceKind | "auto" } {
  const { log: _, gpuDevice: __, ...all } = settings;
  const now = JSON.stringify(all);
  const news = now === told ? {} : { settings: all };
  told = now;
  return { device: device ?? "auto", ...news };
}

/** Does the worker lack the GPU that the page has? */
let noGpuThere = false;

/** Is the page's own thread where models have to be? */
export const isBetterHere = (): boolean => noGpuThere;

/** The same, now that the worker took this device for the one that was asked for. */
export async function becomesBetterHere(asked: DeviceKind | "auto" | undefined, taken: Device["kind"]): Promise<boolean> {
  if ((asked ?? "auto") !== "auto" || taken !== "wasm" || !("gpu" in globalThis.navigator)) return false;
  return (noGpuThere = (await open("auto")).kind === "webgpu");
}
