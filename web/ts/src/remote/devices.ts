// The worker's side of `pageWorkers`: figures of the worker's devices, and their cache.
import { type WorkerOf, clearCache, flushCache, memory, stats } from "../device.js";
import type { Handlers } from "./calls.js";

/** Answers for the devices of a worker; rows say what the worker is for. */
export function deviceHandlers(worker: WorkerOf): Handlers {
  const marked = async <T>(rows: Promise<T[]>): Promise<(T & { worker: WorkerOf })[]> => (await rows).map((row) => ({ ...row, worker }));
  return { stats: () => marked(stats()), memory: () => marked(memory()), flushCache, clearCache };
}
