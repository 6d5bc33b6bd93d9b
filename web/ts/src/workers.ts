// Starts worker threads for the WASM device, in a page and in Node.
import { besideThis, builtin, inNode } from "./module.js";

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
const PATIENCE_MS = 20_000;

type Gone = (worker: WorkerLike) => void;
type Start = (gone: Gone) => { worker: WorkerLike; answers: Promise<unknown> };

/**
 * Starts `n` workers and returns those that started, with the reason why others did not. Each has answered a message
 * when this resolves, because Chromium holds back messages to a new worker until the page's thread has been idle once,
 * and the device does not idle. `gone` is called for each worker that ends later.
 */
export async function startWorkers(n: number, gone: Gone): Promise<{ workers: WorkerLike[]; failed: string | undefined }> {
  let failed: string | undefined;
  const one = async ([start, ...others]: Start[]): Promise<WorkerLike[]> => {
    if (!start) return [];
    let timer: ReturnType<typeof setTimeout> | undefined;
    let started: WorkerLike | undefined;
    try {
      const { worker, answers } = start(gone);
      started = worker;
      const late = new Promise((_, fail) => (timer = setTimeout(() => fail(new Error("a worker does not answer")), PATIENCE_MS)));
      await Promise.race([answers, late]);
      return [worker];
    } catch (error) {
      started?.terminate();
      failed ??= error instanceof Error ? error.message : String(error);
      return await one(others);
    } finally {
      clearTimeout(timer);
    }
  };
  if (n < 1) return { workers: [], failed };
  const starts = inNode ? [await starterInNode()] : [startItself, startImporting];
  const lists = await Promise.all(Array.from({ length: n }, () => one(starts)));
  const workers = lists.flat();
  return { workers, failed: workers.length < n ? failed : undefined };
}

const startItself: Start = (gone) => inPage(new Worker(new URL("./worker.js", import.meta.url), { type: "module" }), gone);

/**
 * Starts a worker from a blob that imports the script. This works where browsers refuse the script itself: if it is of
 * another origin, or if the server sends the cross-origin isolation headers only with pages.
 */
const startImporting: Start = (gone) => {
  const script = `import ${JSON.stringify(new URL("./worker.js", import.meta.url).href)}`;
  const url = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
  const started = inPage(new Worker(url, { type: "module" }), gone);
  const end = (): void => URL.revokeObjectURL(url);
  void started.answers.then(end, end);
  return started;
};

function inPage(started: Worker, gone: Gone): ReturnType<Start> {
  const worker = started as unknown as PageWorker;
  const answers = new Promise<void>((done, fail) => {
    // after the start nobody awaits `answers`; an error then means that the worker cannot continue
    worker.onerror = ({ message }) => {
      fail(new Error(`a worker did not start: ${message ?? "no reason given"}`));
      worker.terminate();
      gone(worker);
    };
    worker.onmessage = ({ data }) => {
      if (data === "ready") worker.postMessage({ kind: "hello" });
      else done();
    };
  });
  return { worker, answers };
}

async function starterInNode(): Promise<Start> {
  const { Worker: Thread } = await builtin("node:worker_threads");
  return (gone) => {
    const worker: NodeWorker = new Thread(besideThis("./worker.js"));
    const answers = new Promise<void>((done, fail) => {
      worker.on("error", fail);
      worker.on("exit", () => {
        fail(new Error("a worker ended"));
        gone(worker);
      });
      worker.on("message", (data) => {
        if (data === "ready") return worker.postMessage({ kind: "hello" });
        // Let a finished program exit despite its threads. Node ignores `unref` if it is called earlier.
        worker.unref();
        done();
      });
    });
    return { worker, answers };
  };
}
