// The worker's side of a demo: handles named requests one at a time, can be told to stop, and reports the cost of each.
import { type Device, type DeviceKind, type DeviceReport, type Progress, devices, init, stats } from "gradloom";

/** What a handler receives besides its argument. */
export interface Context {
  signal: AbortSignal;
  /** Sends an intermediate event to the page. */
  tell: (event: Event) => void;
  /** A callback for `onProgress` of functions that load something. */
  progress: (p: Progress) => void;
  device: Device;
}

/** Intermediate events: progress of a download, or whatever a demo shows while it works. */
export type Event = { progress: { phase: string; loaded: number; total: number } } | { step: number; steps: number; ms?: number; [more: string]: unknown };

export type Handlers = Record<string, (what: never, context: Context) => unknown>;

/** The cost of this worker's work so far. */
export interface Cost {
  device: DeviceKind;
  threads: number;
  /** Kernels compiled now, and kernels taken from the cache of an earlier visit. */
  compiled: number;
  kept: number;
  compileMs: number;
  /** Bytes downloaded. */
  bytes: number;
}

/** Requests that every worker handles besides a demo's own. */
export interface Own {
  devices: () => Promise<DeviceReport[]>;
  use: (device: DeviceKind | "auto") => Promise<Cost>;
}

const scope = globalThis as unknown as {
  onmessage: ((event: { data: { id: number; name: string; what: unknown } | { stop: number } }) => void) | null;
  postMessage: (message: unknown, transfer?: Transferable[]) => void;
};

const running = new Map<number, AbortController>();
let device: Device | undefined;

async function cost(): Promise<Cost> {
  const own = (await stats()).filter((each) => each.device === device?.kind);
  const sum = (of: (s: (typeof own)[number]) => number): number => own.reduce((all, each) => all + of(each), 0);
  const entries = performance.getEntriesByType("resource") as PerformanceResourceTiming[];
  return {
    device: device?.kind ?? "wasm",
    threads: device?.threads ?? 1,
    compiled: sum((s) => s.kernelsCompiled),
    kept: sum((s) => s.kernelsCached),
    compileMs: sum((s) => s.planMs + s.deviceMs),
    bytes: entries.reduce((all, entry) => all + entry.transferSize, 0),
  };
}

/** Yields, so that messages such as a stop can arrive. */
export const turn = (): Promise<void> => new Promise((done) => setTimeout(done));

/** Objects that are transferred rather than copied, since they are not needed here any more. */
function transferable(value: unknown): Transferable[] {
  if (typeof ImageBitmap !== "undefined" && value instanceof ImageBitmap) return [value];
  return [];
}

/**
 * Starts answering the page. `changed` is called when the device changes; what was made for the previous one is then
 * useless.
 */
export function serve(handlers: Handlers, { changed = () => {} }: { changed?: () => unknown } = {}): void {
  performance.setResourceTimingBufferSize?.(2000);
  async function answer(name: string, what: unknown, context: Omit<Context, "device">): Promise<unknown> {
    if (name === "devices") return devices();
    if (name === "use") {
      if (device) await changed();
      device = await init({ device: what as DeviceKind | "auto", signal: context.signal });
      return cost();
    }
    const handler = handlers[name];
    if (!handler) throw new Error(`the worker does not know ${name}`);
    device ??= await init();
    return handler(what as never, { ...context, device });
  }
  // requests run one at a time, since there is one device
  let line: Promise<unknown> = Promise.resolve();
  scope.onmessage = ({ data }) => {
    if ("stop" in data) {
      running.get(data.stop)?.abort();
      return;
    }
    const { id, name, what } = data;
    const control = new AbortController();
    running.set(id, control);
    const tell = (event: Event): void => scope.postMessage({ id, event });
    const progress = ({ phase, loaded, total }: Progress): void => tell({ progress: { phase, loaded, total } });
    line = line.then(async () => {
      const start = performance.now();
      try {
        control.signal.throwIfAborted();
        const result = await answer(name, what, { signal: control.signal, tell, progress });
        const ms = performance.now() - start;
        scope.postMessage({ id, result, ms, cost: await cost() }, transferable(result));
      } catch (error) {
        const { name: kind, message, code, hint } = error as { name?: string; message?: string; code?: string; hint?: string };
        scope.postMessage({ id, error: { name: kind, message: message ?? String(error), code, hint } });
      } finally {
        running.delete(id);
      }
    });
  };
  scope.postMessage({ ready: true });
}
