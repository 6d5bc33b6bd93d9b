// Starts the worker that runs a page's models and tasks: one for all, on first use, and a new one if it ends.
import { type Device, type DeviceKind, open, settings, there } from "./device.js";
import { InternalError } from "./errors.js";
import { loadWasm, moduleState } from "./module.js";
import { Calls, type Functions } from "./remote/calls.js";

/** A worker that has not answered within this time counts as failed. */
const PATIENCE_MS = 20_000;

let running: Promise<Calls | null> | undefined;
/** The settings of `init` that were last sent to the worker, as JSON. */
let told: unknown;

/** Functions of the page that the worker may call at any time. */
export const forWorker: Functions = { log: (text: string) => (settings.log ?? console.log)(text) };

/** Null if the browser refuses the script because it is of another origin. */
function startedWorker(): Worker | null {
  try {
    return new Worker(new URL("./remote-worker.js", import.meta.url), { type: "module" });
  } catch {
    return null;
  }
}

/** A name for the lock that the worker holds while it lives, unique among all pages of the origin. */
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
    // the page sends the compiled module, so that it is fetched only once
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

/** The worker, or null if the browser refuses it, which the console reports once. */
export const worker = (): Promise<Calls | null> => (running ??= start());

/** The device that the worker shall use, with the options of `init` unless the worker has the current ones. */
export function deviceIn(device: DeviceKind | "auto" | undefined): { device: DeviceKind | "auto" } {
  const { log: _, gpuDevice: __, ...all } = settings;
  const now = JSON.stringify(all);
  const news = now === told ? {} : { settings: all };
  told = now;
  return { device: device ?? "auto", ...news };
}

/** Whether the page has a GPU and the worker has none. */
let noGpuThere = false;

/** Whether models should run in the page's own thread, because only that has the GPU. */
export const isBetterHere = (): boolean => noGpuThere;

/** Updates and returns `isBetterHere` after the worker chose device `taken` for the request `asked`. */
export async function becomesBetterHere(asked: DeviceKind | "auto" | undefined, taken: Device["kind"]): Promise<boolean> {
  if ((asked ?? "auto") !== "auto" || taken !== "wasm" || !("gpu" in globalThis.navigator)) return false;
  return (noGpuThere = (await open("auto")).kind === "webgpu");
}
