// The page's side of an encoder in a worker, which leaves the page's thread free.
import type { EncoderBackend, EncoderOptions } from "./encoder.js";
import { InternalError, StateError } from "./errors.js";
import type { ModelSource } from "./llm/options.js";
import { wasmFolder } from "./module.js";
import type { Progress } from "./progress.js";
import { RpcClient } from "./remote/calls.js";
import { workerViaBlob } from "./workers.js";

const newWorker = (): Worker => new Worker(new URL("./encoder-worker.js", import.meta.url), { type: "module" });

/** The ways to start the worker, in the order in which they are tried. */
const STARTERS = [newWorker, () => workerViaBlob(newWorker)];

/** Loads a model of absolute addresses in a worker; null if the browser refuses the worker. */
export async function loadRemoteEncoder(from: ModelSource, { signal, onProgress, fetch: _, ...rest }: EncoderOptions): Promise<EncoderBackend | null> {
  const folder = wasmFolder();
  const device = rest.device ?? "auto";
  const init = { device, ...(folder && { wasmUrl: new URL("gradloom_web_bg.wasm", folder).href }) };
  const args = { from, options: { ...rest, device }, init };
  for (const start of STARTERS) {
    let worker: Worker;
    try {
      worker = start();
    } catch {
      continue;
    }
    const client = new RpcClient(worker, () => {});
    const callbacks = { onProgress: (progress: Progress) => onProgress?.(progress) };
    try {
      const loaded = await client.call<Pick<EncoderBackend, "info" | "metadata">>("load", args, { signal, callbacks });
      return {
        ...loaded,
        vectors: (texts, abort) => client.call("vectors", texts, { signal: abort }),
        scores: (query, documents, abort) => client.call("scores", { query, documents }, { signal: abort }),
        encode: (text, special) => client.call("encode", { text, special }),
        decode: (ids, skipSpecial) => client.call("decode", { ids, skipSpecial }),
        dispose: () => client.end(new StateError("E_STATE", "this encoder was disposed")),
      };
    } catch (error) {
      client.end(new StateError("E_STATE", "this encoder was not loaded"));
      if (client.alive || !(error instanceof InternalError)) throw error;
    }
  }
  return null;
}
