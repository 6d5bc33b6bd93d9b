// The page's side of a model in a worker of its own, which leaves the page's thread free.
import { type DeviceKind, type WorkerCall, pageWorkers, settings } from "../device.js";
import { InternalError, StateError } from "../errors.js";
import { wasmFolder } from "../module.js";
import type { FileSource, Progress } from "../progress.js";
import { RpcClient } from "../remote/calls.js";
import { newLock, workerViaBlob } from "../workers.js";
import type { AdapterSource, Backend, Finetuned, FinetuneOptions, Job, LLMOptions, Lesson, ModelInfo, ModelSource, Step } from "./options.js";
import type { Loaded } from "./thread.js";

/** Resolves a relative path here, since a worker has another base. */
const absolute = <T>(file: T): T | string => (typeof file === "string" || file instanceof URL ? new URL(file, globalThis.location?.href).href : file);

/** The source of a model with absolute addresses. */
function absoluteSource(from: ModelSource): ModelSource {
  const isSingleSource = typeof from !== "object" || Array.isArray(from) || Object.getPrototypeOf(from) !== Object.prototype;
  if (isSingleSource) return absolute(from as FileSource) as ModelSource;
  return Object.fromEntries(Object.entries(from).map(([name, file]) => [name, absolute(file as FileSource)]));
}

/** A model in a worker, with what language models and encoders have in common. */
export interface InWorker<I> extends Loaded<I> {
  readonly client: RpcClient;
  readonly ended: boolean;
  encode(text: string, special: boolean): Promise<number[]>;
  decode(ids: readonly number[], skipSpecial: boolean): Promise<string>;
  dispose(): void;
}

/**
 * Loads a model by `remote`, in a worker, if that is possible, else by `local`. `name` is how messages call the model.
 */
export async function loadAnywhere<M>(
  name: string,
  { worker = true, fetch, device, signal }: LLMOptions,
  remote: () => Promise<M | null>,
  local: () => Promise<M>,
): Promise<M> {
  const isPage = typeof document !== "undefined" && typeof Worker !== "undefined";
  // options that cannot be posted to a worker keep the model in this thread
  if (!worker || !isPage || fetch !== undefined || typeof device === "object") return local();
  signal?.throwIfAborted();
  const model = await remote();
  if (!model) console.warn(`gradloom: the ${name} runs on the page's own thread, because its worker did not start`);
  return model ?? local();
}

/**
 * Loads a model in a new worker, in the thread that `newWorker` starts; null if the browser refuses its script. `name` is
 * how errors call the model.
 */
export async function loadInWorker<I>(
  newWorker: () => Worker,
  name: string,
  from: ModelSource,
  { signal, onProgress, fetch: _, ...options }: LLMOptions,
): Promise<InWorker<I> | null> {
  const device = options.device as DeviceKind | undefined ?? "auto";
  const folder = wasmFolder();
  // the page's settings for devices, except for what cannot be posted
  const { log: _log, gpuDevice: _gpu, ...pageSettings } = settings;
  const init = { ...pageSettings, device, ...(folder && { wasmUrl: new URL("gradloom_web_bg.wasm", folder).href }) };
  const args = { from: absoluteSource(from), options: { ...options, device }, init };
  // the ways to start the worker, in the order in which they are tried
  for (const start of [newWorker, () => workerViaBlob(newWorker)]) {
    let worker: Worker;
    try {
      worker = start();
    } catch {
      continue;
    }
    const log = (text: string): void => (settings.log ?? console.log)(text);
    const client: RpcClient = new RpcClient(worker, () => pageWorkers.delete(call), { log });
    const call: WorkerCall = (what) => client.call(what, undefined);
    const lock = newLock();
    const callbacks = { onProgress: (progress: Progress) => onProgress?.(progress), locked: () => client.watchLock(lock) };
    try {
      const loaded = await client.call<Loaded<I>>("load", { ...args, lock }, { signal, callbacks });
      pageWorkers.add(call);
      return {
        ...loaded,
        client,
        get ended() {
          return client.ended;
        },
        encode: (text, special) => client.call("encode", { text, special }),
        decode: (ids, skipSpecial) => client.call("decode", { ids, skipSpecial }),
        dispose: () => client.end(new StateError("E_STATE", `this ${name} was disposed`)),
      };
    } catch (error) {
      client.end(new StateError("E_STATE", `this ${name} was not loaded`));
      if (client.alive || !(error instanceof InternalError)) throw error;
    }
  }
  return null;
}

/** Adapters with absolute addresses. */
function absoluteAdapters(adapters: LLMOptions["adapters"] = {}): Record<string, AdapterSource> {
  const one = (each: AdapterSource): AdapterSource => {
    if (typeof each !== "object" || !("from" in each)) return absolute(each) as AdapterSource;
    return { ...each, from: absolute(each.from), ...(each.config !== undefined && { config: absolute(each.config) }) };
  };
  return Object.fromEntries(Object.entries(adapters).map(([name, each]) => [name, one(each)]));
}

/** Loads a language model in a worker; null if the browser refuses the worker. */
export async function loadRemote(newWorker: () => Worker, from: ModelSource, options: LLMOptions): Promise<Backend | null> {
  const { adapters, ...others } = options;
  const model = await loadInWorker<ModelInfo>(newWorker, "language model", from, { ...others, adapters: absoluteAdapters(adapters) });
  if (!model) return null;
  const { client } = model;
  // the getter `ended` is not copied by spreading
  return Object.assign(model, {
    run: (job: Job, signal: AbortSignal | undefined) => run(client, job, signal),
    embed: (text: string | readonly number[], signal: AbortSignal | undefined) => client.call<Float32Array>("embed", text, { signal }),
    useAdapter: (adapter: string | null) => client.call<void>("useAdapter", adapter),
    finetune: (texts: readonly Lesson[], { signal, onStep, ...rest }: FinetuneOptions) => {
      const callbacks = { onStep: (step: number, loss: number) => onStep?.(step, loss) };
      return client.call<Finetuned>("finetune", { texts, options: rest }, { signal, callbacks });
    },
  });
}

/** Yields the steps of a request as the worker makes them; it waits if many are not consumed. */
async function* run(client: RpcClient, job: Job, signal: AbortSignal | undefined): AsyncGenerator<Step, void> {
  signal?.throwIfAborted();
  const steps: { step: Step; consumed: () => void }[] = [];
  let wake = (): void => {};
  let result: { error?: unknown } | undefined;
  const left = new AbortController();
  const onStep = (step: Step): Promise<void> | void => {
    if (left.signal.aborted) return;
    return new Promise((consumed) => {
      steps.push({ step, consumed });
      wake();
    });
  };
  /** Ends the request, and lets a worker go on that waits for steps to be consumed. */
  const leave = (): void => {
    left.abort(signal?.reason);
    for (const { consumed } of steps) consumed();
  };
  signal?.addEventListener("abort", leave, { once: true });
  const end = (outcome: { error?: unknown }): void => {
    result = outcome;
    wake();
  };
  client.call("run", job, { signal: left.signal, callbacks: { onStep } }).then(() => end({}), (error: unknown) => end({ error }));
  try {
    for (;;) {
      signal?.throwIfAborted();
      const next = steps.shift();
      if (next) {
        next.consumed();
        yield next.step;
      } else if (!result) await new Promise<void>((done) => (wake = done));
      else if ("error" in result) throw result.error;
      else return;
    }
  } finally {
    signal?.removeEventListener("abort", leave);
    // the consumer may have left the loop early
    leave();
  }
}
