// The worker's side of a demo: it is asked to do things by name, one at a time, may be told to stop, and says what each cost.
import { type Device, type DeviceKind, type DeviceReport, type Progress, devices, init, stats } from "gradloom";

/** What a handler is given beside its argument. */
export interface Context {
  signal: AbortSignal;
  /** Tells the page something on the way. */
  tell: (event: Event) => void;
  /** For `onProgress` of whatever loads. */
  progress: (p: Progress) => void;
  device: Device;
}

/** What happens on the way: progress of a download, or whatever a demo shows while it works. */
export type Event = { progress: { phase: string; loaded: number; total: number } } | { step: number; steps: number; ms?: number; [more: string]: unknown };

export type Handlers = Record<string, (what: never, context: Context) => unknown>;

/** What the work of this worker took so far. */
export interface Cost {
  device: DeviceKind;
  threads: number;
  /** Kernels that were compiled here, and those that an earlier visit left. */
  compiled: number;
  kept: number;
  compileMs: number;
  /** Bytes that came over the network. */
  bytes: number;
}

/** What the worker understands besides a demo's own handlers. */
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

/** Lets messages in: a stop, for one. */
export const turn = (): Promise<void> => new Promise((done) => setTimeout(done));

/** What goes by transfer, since nobody here needs it any more. */
function transferable(value: unknown): Transferable[] {
  if (typeof ImageBitmap !== "undefined" && value instanceof ImageBitmap) return [value];
  return [];
}

/** Answers the page. `changed` is called when the device changes: what was made for the one before is of no use then. */
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
  // one thing at a time: the device is one
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
