// The page's side of a language model in a worker, which leaves the page's thread free.
import { type GradloomError, InternalError, StateError, ValueError } from "../errors.js";
import { wasmFolder } from "../module.js";
import type { FileSource } from "../progress.js";
import { revived } from "../remote/calls.js";
import type { AdapterSource, Backend, Finetuned, FinetuneOptions, Job, LLMOptions, Lesson, Metadata, ModelInfo, ModelSource, Step } from "./options.js";
import type { Answer, Ask } from "./thread.js";

type Told = (answer: Answer) => void;
type Without<T> = T extends unknown ? Omit<T, "id"> : never;

/** Loads a model in a new worker; null if the worker does not start because its script was refused or is missing. */
export async function loadRemote(worker: Worker, from: ModelSource, options: LLMOptions): Promise<RemoteModel | null> {
  const { signal, onProgress, fetch: _, device, adapters, ...rest } = options;
  if (typeof device === "object") throw new ValueError("E_VALUE", "a device of this thread cannot be used in a worker", { hint: "load with `worker: false`" });
  const model = new RemoteModel(worker);
  const folder = wasmFolder();
  // resolve relative paths here, since the worker has another base
  const sent = <T>(file: T): T | string => (typeof file === "string" || file instanceof URL ? new URL(file, globalThis.location?.href).href : file);
  const isSource = typeof from !== "object" || Array.isArray(from) || Object.getPrototypeOf(from) !== Object.prototype;
  const source = isSource ? sent(from as FileSource) : Object.fromEntries(Object.entries(from).map(([name, file]) => [name, sent(file as FileSource)]));
  const sentAdapter = (each: AdapterSource): AdapterSource => {
    if (typeof each !== "object" || !("from" in each)) return sent(each) as AdapterSource;
    const { from: file, config, scale } = each;
    return { from: sent(file) as FileSource, ...(config !== undefined && { config: sent(config) as FileSource }), ...(scale !== undefined && { scale }) };
  };
  const named = Object.fromEntries(Object.entries(adapters ?? {}).map(([name, each]) => [name, sentAdapter(each)]));
  const init = { device: device ?? "auto", ...(folder && { wasmUrl: new URL("gradloom_web_bg.wasm", folder).href }) } as const;
  try {
    await model.load({ kind: "load", from: source as ModelSource, options: { ...rest, adapters: named, device: device ?? "auto" }, init }, signal, onProgress);
    return model;
  } catch (error) {
    model.dispose();
    if (!model.alive && error instanceof InternalError) return null;
    throw error;
  }
}

export class RemoteModel implements Backend {
  info!: ModelInfo;
  metadata!: Metadata;
  /** Whether the worker has answered at all. */
  alive = false;
  readonly #worker: Worker;
  readonly #told = new Map<number, Told>();
  #next = 0;
  #over: GradloomError | undefined;

  constructor(worker: Worker) {
    this.#worker = worker;
    worker.onmessage = ({ data }: MessageEvent<Answer>) => {
      this.alive = true;
      this.#told.get(data.id)?.(data);
    };
    worker.onerror = (event) => {
      const why = event.message ? `: ${event.message}` : "";
      this.#end(new InternalError("E_INTERNAL", `the language model's worker stopped${why}`));
    };
  }

  /** Sends a request; `told` receives every answer. Returns a function that aborts it. */
  #ask(ask: Without<Ask>, told: Told): () => void {
    if (this.#over) throw this.#over;
    const id = (this.#next += 1);
    this.#told.set(id, (answer) => {
      if (!["step", "progress", "learning"].includes(answer.kind)) this.#told.delete(id);
      told(answer);
    });
    this.#worker.postMessage({ id, ...ask });
    return () => this.#worker.postMessage({ id, kind: "abort" });
  }

  /** Sends a request with a single result. */
  #value(ask: Without<Ask>, signal?: AbortSignal, told?: Told): Promise<unknown> {
    if (signal?.aborted) return Promise.reject(signal.reason);
    return new Promise((done, fail) => {
      const giveUp = this.#ask(ask, (answer) => {
        if (answer.kind === "failed") fail(signal?.aborted ? signal.reason : revived(answer.error));
        else if (answer.kind === "done") done(answer.value);
        else if (answer.kind === "loaded") done(answer);
        else return told?.(answer);
        signal?.removeEventListener("abort", stop);
      });
      const stop = (): void => {
        giveUp();
        fail(signal?.reason);
      };
      signal?.addEventListener("abort", stop, { once: true });
    });
  }

  async load(ask: Without<Ask>, signal: AbortSignal | undefined, onProgress: LLMOptions["onProgress"]): Promise<void> {
    const told: Told = (answer) => answer.kind === "progress" && onProgress?.(answer.progress);
    ({ info: this.info, metadata: this.metadata } = (await this.#value(ask, signal, told)) as { info: ModelInfo; metadata: Metadata });
  }

  async *run(job: Job, signal: AbortSignal | undefined): AsyncGenerator<Step, void> {
    signal?.throwIfAborted();
    const answers: Answer[] = [];
    let wake = (): void => {};
    let over = false;
    const giveUp = this.#ask({ kind: "run", job }, (answer) => {
      answers.push(answer);
      wake();
    });
    const id = this.#next;
    const stop = (): void => {
      giveUp();
      wake();
    };
    signal?.addEventListener("abort", stop, { once: true });
    try {
      for (;;) {
        signal?.throwIfAborted();
        const answer = answers.shift();
        if (!answer) await new Promise<void>((done) => (wake = done));
        else if (answer.kind === "step") {
          this.#worker.postMessage({ id, kind: "taken" });
          yield answer.step;
        } else {
          over = true;
          if (answer.kind === "failed") throw signal?.aborted ? signal.reason : revived(answer.error);
          return;
        }
      }
    } finally {
      signal?.removeEventListener("abort", stop);
      // the consumer left the loop early: abort
      if (!over && !this.#over) giveUp();
    }
  }

  encode(text: string, special: boolean): Promise<number[]> {
    return this.#value({ kind: "encode", text, special }) as Promise<number[]>;
  }

  decode(ids: readonly number[], skipSpecial: boolean): Promise<string> {
    return this.#value({ kind: "decode", ids, skipSpecial }) as Promise<string>;
  }

  embed(text: string | readonly number[], signal: AbortSignal | undefined): Promise<Float32Array> {
    return this.#value({ kind: "embed", text }, signal) as Promise<Float32Array>;
  }

  async useAdapter(name: string | null): Promise<void> {
    await this.#value({ kind: "adapter", name });
  }

  async finetune(texts: readonly Lesson[], { signal, onStep, ...options }: FinetuneOptions): Promise<Finetuned> {
    const told: Told = (answer) => answer.kind === "learning" && onStep?.(answer.step, answer.loss);
    return (await this.#value({ kind: "finetune", texts, options }, signal, told)) as Finetuned;
  }

  #end(why: GradloomError): void {
    if (this.#over) return;
    this.#over = why;
    this.#worker.terminate();
    const { name, message, code } = why;
    for (const [id, told] of [...this.#told]) told({ id, kind: "failed", error: { name, message, code } });
  }

  dispose(): void {
    this.#end(new StateError("E_STATE", "this language model was disposed"));
  }
}
