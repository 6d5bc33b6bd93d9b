// The page's side of a language model in a worker, which leaves the page's thread free.
import { DeviceError, type GradloomError, InternalError, StateError, ValueError } from "../errors.js";
import { settings } from "../device.js";
import { wasmFolder } from "../module.js";
import type { FileSource } from "../progress.js";
import { fromPlainError, toPlainError } from "../remote/calls.js";
import type { AdapterSource, Backend, Finetuned, FinetuneOptions, Job, LLMOptions, Lesson, Metadata, ModelInfo, ModelSource, Step } from "./options.js";
import { newLock, watchLock } from "../workers.js";
import type { WorkerMessage, WorkerRequest } from "./thread.js";

type OnMessage = (message: WorkerMessage) => unknown;
type WithoutId<T> = T extends unknown ? Omit<T, "id"> : never;

/** Resolves a relative path here, since a worker has another base. */
const absolute = <T>(file: T): T | string => (typeof file === "string" || file instanceof URL ? new URL(file, globalThis.location?.href).href : file);

/** The source of a model with absolute addresses. */
export function absoluteSource(from: ModelSource): ModelSource {
  const isSingleSource = typeof from !== "object" || Array.isArray(from) || Object.getPrototypeOf(from) !== Object.prototype;
  if (isSingleSource) return absolute(from as FileSource) as ModelSource;
  return Object.fromEntries(Object.entries(from).map(([name, file]) => [name, absolute(file as FileSource)]));
}

/** Loads a model in a new worker; null if the worker does not start because its script was refused or is missing. */
export async function loadRemote(worker: Worker, from: ModelSource, options: LLMOptions): Promise<RemoteModel | null> {
  const { signal, onProgress, fetch: _, device, adapters, ...rest } = options;
  if (typeof device === "object") throw new ValueError("E_VALUE", "a device of this thread cannot be used in a worker", { hint: "load with `worker: false`" });
  const model = new RemoteModel(worker);
  const folder = wasmFolder();
  const absoluteAdapter = (each: AdapterSource): AdapterSource => {
    if (typeof each !== "object" || !("from" in each)) return absolute(each) as AdapterSource;
    const { from: file, config, scale } = each;
    const settings = { ...(config !== undefined && { config: absolute(config) as FileSource }), ...(scale !== undefined && { scale }) };
    return { from: absolute(file) as FileSource, ...settings };
  };
  const adapterSources = Object.fromEntries(Object.entries(adapters ?? {}).map(([name, each]) => [name, absoluteAdapter(each)]));
  // the page's settings for devices, except for what cannot be posted
  const { log: _log, gpuDevice: _gpu, ...pageSettings } = settings;
  const init = { ...pageSettings, device: device ?? ("auto" as const), ...(folder && { wasmUrl: new URL("gradloom_web_bg.wasm", folder).href }) };
  try {
    const sentOptions = { ...rest, adapters: adapterSources, device: device ?? ("auto" as const) };
    await model.load({ from: absoluteSource(from), options: sentOptions, init }, signal, onProgress);
    return model;
  } catch (error) {
    model.dispose();
    if (!model.alive && error instanceof InternalError) return null;
    throw error;
  }
}

type LoadRequest = Omit<Extract<WithoutId<WorkerRequest>, { kind: "load" }>, "kind" | "lock">;

/** The error for a worker that has ended with its model. */
const workerLost = (why: string): DeviceError =>
  new DeviceError("E_DEVICE_LOST", `the language model's worker ${why}`, { hint: "call again: the model is loaded again where it came from" });

export class RemoteModel implements Backend {
  info!: ModelInfo;
  metadata!: Metadata;
  /** Whether the worker has answered at all. */
  alive = false;
  readonly #worker: Worker;
  readonly #listeners = new Map<number, OnMessage>();
  #lastId = 0;
  #endReason: GradloomError | undefined;

  constructor(worker: Worker) {
    this.#worker = worker;
    worker.onmessage = ({ data }: MessageEvent<WorkerMessage>) => {
      this.alive = true;
      this.#listeners.get(data.id)?.(data);
    };
    worker.onerror = (event) => {
      const why = `stopped${event.message ? `: ${event.message}` : ""}`;
      // without a first answer the browser may have refused the script
      this.#terminate(this.alive ? workerLost(why) : new InternalError("E_INTERNAL", `the language model's worker ${why}`));
    };
  }

  get ended(): boolean {
    return this.#endReason !== undefined;
  }

  /** Sends a request; `onMessage` receives every message about it. Returns a function that aborts it. */
  #send(request: WithoutId<WorkerRequest>, onMessage: OnMessage): () => void {
    if (this.#endReason) throw this.#endReason;
    const id = (this.#lastId += 1);
    this.#listeners.set(id, (message) => {
      if (["loaded", "done", "failed"].includes(message.kind)) this.#listeners.delete(id);
      onMessage(message);
    });
    this.#worker.postMessage({ id, ...request });
    return () => this.#worker.postMessage({ id, kind: "abort" });
  }

  /** Sends a request with a single result. */
  #request(request: WithoutId<WorkerRequest>, signal?: AbortSignal, onMessage?: OnMessage): Promise<unknown> {
    if (signal?.aborted) return Promise.reject(signal.reason);
    return new Promise((done, fail) => {
      const abort = this.#send(request, (message) => {
        if (message.kind === "failed") fail(signal?.aborted ? signal.reason : fromPlainError(message.error));
        else if (message.kind === "done") done(message.value);
        else if (message.kind === "loaded") done(message);
        else return onMessage?.(message);
        signal?.removeEventListener("abort", onAbort);
      });
      const onAbort = (): void => {
        abort();
        fail(signal?.reason);
      };
      signal?.addEventListener("abort", onAbort, { once: true });
    });
  }

  async load(request: LoadRequest, signal: AbortSignal | undefined, onProgress: LLMOptions["onProgress"]): Promise<void> {
    const lock = newLock();
    const onMessage: OnMessage = (message) => {
      if (message.kind === "progress") onProgress?.(message.progress);
      else if (message.kind === "locked") watchLock(lock, () => this.#terminate(workerLost("was ended by the browser")));
    };
    const loaded = await this.#request({ kind: "load", lock, ...request }, signal, onMessage);
    ({ info: this.info, metadata: this.metadata } = loaded as { info: ModelInfo; metadata: Metadata });
  }

  async *run(job: Job, signal: AbortSignal | undefined): AsyncGenerator<Step, void> {
    signal?.throwIfAborted();
    const messages: WorkerMessage[] = [];
    let wake = (): void => {};
    let isFinished = false;
    const abort = this.#send({ kind: "run", job }, (message) => {
      messages.push(message);
      wake();
    });
    const id = this.#lastId;
    const onAbort = (): void => {
      abort();
      wake();
    };
    signal?.addEventListener("abort", onAbort, { once: true });
    try {
      for (;;) {
        signal?.throwIfAborted();
        const message = messages.shift();
        if (!message) await new Promise<void>((done) => (wake = done));
        else if (message.kind === "step") {
          this.#worker.postMessage({ id, kind: "consumed" });
          yield message.step;
        } else {
          isFinished = true;
          if (message.kind === "failed") throw signal?.aborted ? signal.reason : fromPlainError(message.error);
          return;
        }
      }
    } finally {
      signal?.removeEventListener("abort", onAbort);
      // the consumer left the loop early: abort
      if (!isFinished && !this.#endReason) abort();
    }
  }

  encode(text: string, special: boolean): Promise<number[]> {
    return this.#request({ kind: "encode", text, special }) as Promise<number[]>;
  }

  decode(ids: readonly number[], skipSpecial: boolean): Promise<string> {
    return this.#request({ kind: "decode", ids, skipSpecial }) as Promise<string>;
  }

  embed(text: string | readonly number[], signal: AbortSignal | undefined): Promise<Float32Array> {
    return this.#request({ kind: "embed", text }, signal) as Promise<Float32Array>;
  }

  async useAdapter(name: string | null): Promise<void> {
    await this.#request({ kind: "adapter", name });
  }

  async finetune(texts: readonly Lesson[], { signal, onStep, ...options }: FinetuneOptions): Promise<Finetuned> {
    const onMessage: OnMessage = (message) => message.kind === "trained" && onStep?.(message.step, message.loss);
    return (await this.#request({ kind: "finetune", texts, options }, signal, onMessage)) as Finetuned;
  }

  #terminate(reason: GradloomError): void {
    if (this.#endReason) return;
    this.#endReason = reason;
    this.#worker.terminate();
    const error = toPlainError(reason);
    for (const [id, onMessage] of [...this.#listeners]) onMessage({ id, kind: "failed", error });
  }

  dispose(): void {
    this.#terminate(new StateError("E_STATE", "this language model was disposed"));
  }
}
