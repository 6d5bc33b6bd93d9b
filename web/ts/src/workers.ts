// Starting worker threads for the WASM device, in a page and in Node.
import { builtin, inNode } from "./module.js";

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

/**
 * Starts `n` workers. Each has answered a message when this resolves: Chromium keeps what is posted to a young worker until
 * the page's own thread is idle once, and the device does not idle.
 */
export async function startWorkers(n: number): Promise<WorkerLike[]> {
  const start = inNode ? await starterInNode() : startInPage;
  return Promise.all(Array.from({ length: n }, start));
}

function startInPage(): Promise<WorkerLike> {
  const worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" }) as unknown as PageWorker;
  return new Promise((done, fail) => {
    worker.onerror = ({ message }) => fail(new Error(`a worker did not start: ${message ?? "no reason given"}`));
    worker.onmessage = ({ data }) => {
      if (data === "ready") worker.postMessage({ kind: "hello" });
      else done(worker);
    };
  });
}

async function starterInNode(): Promise<() => Promise<WorkerLike>> {
  const { Worker: Thread } = await builtin("node:worker_threads");
  return () => {
    const worker: NodeWorker = new Thread(new URL("./worker.js", import.meta.url));
    return new Promise((done, fail) => {
      worker.on("error", fail);
      worker.on("message", (data) => {
        if (data === "ready") return worker.postMessage({ kind: "hello" });
        // A program that is done should not wait for its threads. Earlier than this, Node forgets it.
        worker.unref();
        done(worker);
      });
    });
  };
}
