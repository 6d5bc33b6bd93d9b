// The worker's side of `remote.ts`: loads one model and answers the page's calls.
import { type InitOptions, type WorkerOf, init } from "../device.js";
import type { Progress } from "../progress.js";
import { type Context, type Handlers, type Thread, serveCalls } from "../remote/calls.js";
import { deviceHandlers } from "../remote/devices.js";
import { acquireForLife } from "../remote/lock.js";
import type { Metadata, ModelSource } from "./options.js";

/** What the page sends to load a model. */
export interface LoadArgs<O> {
  from: ModelSource;
  options: O;
  init: InitOptions;
  /** The lock that this thread holds for life. */
  lock: string;
}

/** What the page knows of a model. */
export interface Loaded<I> {
  info: I;
  metadata: Metadata;
}

/** What a model in any thread can do for its tokenizer. */
interface HasTokenizer {
  encode(text: string, special: boolean): Promise<number[]>;
  decode(ids: readonly number[], skipSpecial: boolean): Promise<string>;
}

/** Options of loading that are not posted. */
type Callbacks = { signal: AbortSignal; onProgress: (progress: Progress) => void };

/**
 * Answers the calls of the page: it first loads the model, by `load`; calls of its own kind are `handlers`, which get the
 * model.
 */
export function serveModel<O, M extends Loaded<unknown> & HasTokenizer>(
  worker: WorkerOf,
  load: (from: ModelSource, options: O & Callbacks) => Promise<M>,
  handlers: (model: () => M) => Handlers,
): void {
  let model: M;
  serveCalls(globalThis as unknown as Thread, {
    ...deviceHandlers(worker),
    load: async ({ from, options, init: device, lock }: LoadArgs<O>, { signal, notify }: Context): Promise<Loaded<unknown>> => {
      if (await acquireForLife(lock)) notify("locked");
      await init({ ...device, ...(device.debug !== undefined && { log: (text: string) => notify("log", text) }), signal });
      model = await load(from, { ...options, signal, onProgress: (progress) => notify("onProgress", progress) });
      return { info: model.info, metadata: model.metadata };
    },
    encode: ({ text, special }: { text: string; special: boolean }) => model.encode(text, special),
    decode: ({ ids, skipSpecial }: { ids: number[]; skipSpecial: boolean }) => model.decode(ids, skipSpecial),
    ...handlers(() => model),
  });
}
