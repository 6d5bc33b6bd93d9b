// Starting worker threads for the WASM device, in a page and in Node.
import { besideThis, builtin, inNode } from "./module.js";

/** What the wasm module needs of a worker. */
export interface WorkerLike {
  postMessage(message: unknown): void;
  terminate(): unknown;
}

type NodeWorker = WorkerLike & { on(event: string, listener: (value: unknown) => void): void; unref(): void };
type PageWorker = WorkerLike & {
  onmessage: ((event: { data: unknown }) => void) | null;
  onerror: ((event: { message?: string }) => void) | null;
};

/** A worker that has not answered after so long does not start. */
const PATIENCE_MS = 20_000;

type Gone = (worker: WorkerLike) => void;
type Start = (gone: Gone) => { worker: WorkerLike; answers: Promise<unknown> };

/**
 * Starts `n` workers, and gives those that did, with the reason why some did not. Each has answered a message when this resolves:
 * Chromium keeps what is posted to a young worker until the page's own thread is idle once, and the device does not idle.
 * `gone` is told of each that ends later.
 */
export async function startWorkers(n: number, gone: Gone): Promise<{ workers: WorkerLike[]; failed: string | undefined }> {
  let failed: string | undefined;
  const one = async (start: Start): Promise<WorkerLike[]> => {
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
      failed = error instanceof Error ? error.message : String(error);
      return [];
    } finally {
      clearTimeout(timer);
    }
  };
  if (n < 1) return { workers: [], failed };
  const start = inNode ? await starterInNode() : startInPage;
  const lists = await Promise.all(Array.from({ length: n }, () => one(start)));
  return { workers: lists.flat(), failed };
}

const startInPage: Start = (gone) => {
  const worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" }) as unknown as PageWorker;
  const answers = new Promise<void>((done, fail) => {
    // later nobody waits for this: then it is a worker that can go no further
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
};

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
        // A program that is done should not wait for its threads. Earlier than this, Node forgets it.
        worker.unref();
        done();
      });
    });
    return { worker, answers };
  };
}
