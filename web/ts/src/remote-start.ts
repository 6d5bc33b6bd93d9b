// The worker that a page's models run in: one for all, started with the first of them.
import { type DeviceKind, settings, there } from "./device.js";
import { InternalError } from "./errors.js";
import { loadWasm, moduleState } from "./module.js";
import { Calls } from "./remote/calls.js";

/** A worker that has not answered after so long does not start. */
const PATIENCE_MS = 20_000;

let running: Promise<Calls | null> | undefined;
/** What the worker was last told of `init`. */
let told: unknown;

/** Null for a script of another origin. */
function startedWorker(): Worker | null {
  try {
    return new Worker(new URL("./remote-worker.js", import.meta.url), { type: "module" });
  } catch {
    return null;
  }
}

async function start(): Promise<Calls | null> {
  const worker = startedWorker();
  const over = (): void => {
    running = told = undefined;
    delete there.ask;
  };
  const calls = worker && new Calls(worker, over, { log: (text: string) => (settings.log ?? console.log)(text) });
  const timer = setTimeout(() => calls?.alive === false && calls.end(new InternalError("E_INTERNAL", "the worker does not answer")), PATIENCE_MS);
  try {
    // the module comes compiled, so that it is fetched once
    await loadWasm();
    await calls?.ask("begin", moduleState());
    if (calls) {
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
export function deviceIn(device: DeviceKind | "auto" | undefined): object {
  const { log: _, gpuDevice: __, ...all } = settings;
  const now = JSON.stringify(all);
  const news = now === told ? {} : { settings: all };
  told = now;
  return { device: device ?? "auto", ...news };
}
