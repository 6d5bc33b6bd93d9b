// Starts worker threads for the WASM device, in a page and in Node.
import { builtin, inNode, packageFile } from "./module.js";

/** The part of a worker's interface that the wasm module uses. */
export interface WorkerLike {
  postMessage(message: unknown): void;
  terminate(): unknown;
}

type NodeWorker = WorkerLike & { on(event: string, listener: (value: unknown) => void): void; unref(): void };
type PageWorker = WorkerLike & {
  onmessage: ((event: { data: unknown }) => void) | null;
  onerror: ((event: { message?: string }) => void) | null;
};

/** A worker that has not answered within this time counts as failed. */
const START_TIMEOUT_MS = 20_000;

type OnExit = (worker: WorkerLike) => void;
type WorkerStarter = (onExit: OnExit) => { worker: WorkerLike; ready: Promise<unknown> };

/**
 * Starts `n` workers and returns those that started, with the reason why others did not. Each has answered a message
 * when this resolves, because Chromium holds back messages to a new worker until the page's thread has been idle once,
 * and the device does not idle. `onExit` is called for each worker that ends later.
 */
export async function startWorkers(n: number, onExit: OnExit): Promise<{ workers: WorkerLike[]; failed: string | undefined }> {
  let failed: string | undefined;
  const startOne = async ([start, ...others]: WorkerStarter[]): Promise<WorkerLike[]> => {
    if (!start) return [];
    let timer: ReturnType<typeof setTimeout> | undefined;
    let started: WorkerLike | undefined;
    try {
      const { worker, ready } = start(onExit);
      started = worker;
      const timeout = new Promise((_, fail) => (timer = setTimeout(() => fail(new Error("a worker does not answer")), START_TIMEOUT_MS)));
      await Promise.race([ready, timeout]);
      return [worker];
    } catch (error) {
      started?.terminate();
      failed ??= error instanceof Error ? error.message : String(error);
      return await startOne(others);
    } finally {
      clearTimeout(timer);
    }
  };
  if (n < 1) return { workers: [], failed };
  const starters = inNode ? [await nodeStarter()] : [startDirectly, startViaBlob];
  const lists = await Promise.all(Array.from({ length: n }, () => startOne(starters)));
  const workers = lists.flat();
  return { workers, failed: workers.length < n ? failed : undefined };
}

const newThread = (): Worker => new Worker(new URL("./worker.js", import.meta.url), { type: "module" });

const startDirectly: WorkerStarter = (onExit) => watchPageWorker(newThread(), onExit);

/**
 * The address of the script with which `start` makes a worker. Bundlers move and rename scripts, and put their addresses
 * into `new Worker(new URL(..))` alone, so that is evaluated with a `Worker` that only notes the address.
 */
function scriptOf(start: () => Worker): string {
  const original = globalThis.Worker;
  const noted: string[] = [];
  const note = function (address: string | URL): void {
    noted.push(String(address));
  };
  globalThis.Worker = note as unknown as typeof Worker;
  try {
    start();
  } finally {
    globalThis.Worker = original;
  }
  return new URL(noted[0] as string, globalThis.location.href).href;
}

/**
 * Starts the worker that `start` makes from a blob that imports its script. This works where browsers refuse the script
 * itself: if it is of another origin, or if the server sends the cross-origin isolation headers only with pages.
 */
export function workerViaBlob(start: () => Worker): Worker {
  const script = scriptOf(start);
  const blob = (text: string): string => URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  // bundlers that make classic scripts of workers have them look for other files relative to `location`
  const place = blob(`Object.defineProperty(globalThis, "location", { value: new URL(${JSON.stringify(script)}) })`);
  const url = blob(`import ${JSON.stringify(place)}; import ${JSON.stringify(script)}`);
  const worker = new Worker(url, { type: "module" });
  // by its first message or error the browser has read the blobs
  const forget = (): void => [url, place].forEach((each) => URL.revokeObjectURL(each));
  for (const event of ["message", "error"]) worker.addEventListener(event, forget, { once: true });
  return worker;
}

/** A name for the lock that a worker holds while it lives, unique among all pages of the origin. */
export const newLock = (): string => `gradloom-worker-${globalThis.crypto?.randomUUID?.() ?? `${Date.now()}-${Math.random()}`}`;

/**
 * Calls `onEnd` when the worker that holds a lock has ended, whatever the cause: the browser passes the lock on then.
 * There is no event for a worker that the browser terminates, e.g. for lack of memory.
 */
export function watchLock(lock: string, onEnd: () => void): void {
  void navigator.locks?.request(lock, onEnd).catch(() => {});
}

const startViaBlob: WorkerStarter = (onExit) => watchPageWorker(workerViaBlob(newThread), onExit);

function watchPageWorker(started: Worker, onExit: OnExit): ReturnType<WorkerStarter> {
  const worker = started as unknown as PageWorker;
  const ready = new Promise<void>((done, fail) => {
    // after the start nobody awaits `ready`; an error then means that the worker cannot continue
    worker.onerror = ({ message }) => {
      fail(new Error(`a worker did not start: ${message ?? "no reason given"}`));
      worker.terminate();
      onExit(worker);
    };
    worker.onmessage = ({ data }) => {
      if (data === "ready") worker.postMessage({ kind: "hello" });
      else done();
    };
  });
  return { worker, ready };
}

async function nodeStarter(): Promise<WorkerStarter> {
  const { Worker: Thread } = await builtin("node:worker_threads");
  return (onExit) => {
    const worker: NodeWorker = new Thread(packageFile("./worker.js"));
    const ready = new Promise<void>((done, fail) => {
      worker.on("error", fail);
      worker.on("exit", () => {
        fail(new Error("a worker ended"));
        onExit(worker);
      });
      worker.on("message", (data) => {
        if (data === "ready") return worker.postMessage({ kind: "hello" });
        // Let a finished program exit despite its threads. Node ignores `unref` if it is called earlier.
        worker.unref();
        done();
      });
    });
    return { worker, ready };
  };
}
