// Remote calls between a page and its worker. Each call has an id and ends in a value or an error. While it runs, the
// worker may call functions of the page, and the page may abort it.
import { DeviceError, FetchError, GradloomError, InternalError, StateError, wrap } from "../errors.js";
import { watchLock } from "../workers.js";

/** An error in a form that can be posted to another thread. */
export interface PlainError {
  name: string;
  message: string;
  code?: string;
  hint?: string;
}

/** Messages of the page: calls, aborts, and replies to calls of the worker, which have ids of their own. */
type PageMessage = { id: number; name: string; args: unknown } | { id: number; abort: true } | { reply: number; value?: unknown; error?: PlainError };

/**
 * Messages of the worker. A value or an error ends the call of that id; `callback` names a function of the page to
 * call, which replies if `reply` is given.
 */
type WorkerMessage = { id: number } & ({ value: unknown } | { error: PlainError } | { callback: string; args: unknown[]; reply?: number });

/** The messaging interface of a thread. */
export interface Thread {
  onmessage: ((event: { data: any }) => void) | null;
  postMessage(message: unknown, transfer: Transferable[]): void;
}

/** What a function of the worker receives besides its arguments. */
export interface Context {
  signal: AbortSignal;
  /** Calls a function of the page by name, without waiting for it. */
  notify: (name: string, ...args: unknown[]) => void;
  /** Calls a function of the page and waits for its result. */
  call: <T>(name: string, ...args: unknown[]) => Promise<T>;
}

/** The functions of a worker by name. */
export type Handlers = Record<string, (args: any, context: Context) => unknown>;

/** Reduces an error to what can be posted. */
export function toPlainError(error: unknown): PlainError {
  const { name, message, code, hint } = (error ?? {}) as Error & { code?: string; hint?: string };
  return { name: name ?? "Error", message: message ?? String(error), ...(typeof code === "string" && { code }), ...(hint !== undefined && { hint }) };
}

/** Recreates an error from another thread as an instance of this thread's classes. */
export function fromPlainError({ name, message, code, hint }: PlainError): unknown {
  if (code === undefined) return Object.assign(new Error(message), { name });
  const Class = { E_FETCH: FetchError, E_STATE: StateError }[code];
  if (Class) return new Class(code, message, hint === undefined ? {} : { hint });
  const error = wrap({ code, message });
  return hint !== undefined && error instanceof GradloomError ? new (error.constructor as typeof GradloomError)(code, message, { hint }) : error;
}

/** Marks an `ImageData` whose pixel buffer is transferred; an `ImageData` itself cannot be. */
const IMAGE_DATA_KEY = "$picture";

/** Restores pictures in a received value. */
export function unpackValue(value: unknown): unknown {
  if (typeof value !== "object" || value === null || !isPlain(value)) return value;
  const { [IMAGE_DATA_KEY]: data, width, height } = value as { [IMAGE_DATA_KEY]?: Uint8ClampedArray<ArrayBuffer>; width?: number; height?: number };
  if (data) return new ImageData(data, width as number, height as number);
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, unpackValue(each)]));
}

const isPlain = (value: object): boolean => [Object.prototype, null].includes(Object.getPrototypeOf(value));

/**
 * Prepares a value for posting, with the list of what is transferred rather than copied: buffers of typed arrays, and
 * pictures. A view of a part of a buffer is copied.
 */
export function packValue(value: unknown, transfer: Set<Transferable> = new Set()): { value: any; transfer: Set<Transferable> } {
  const packItem = (each: unknown): unknown => packValue(each, transfer).value;
  let out = value;
  if (ArrayBuffer.isView(value)) {
    const { buffer, byteLength } = value;
    out = buffer instanceof ArrayBuffer && byteLength === buffer.byteLength ? value : (value as Uint8Array).slice();
    transfer.add((out as Uint8Array).buffer as ArrayBuffer);
  } else if (Array.isArray(value)) out = typeof value[0] === "object" ? value.map(packItem) : value;
  else if (typeof ImageBitmap !== "undefined" && value instanceof ImageBitmap) transfer.add(value);
  else if (typeof ImageData !== "undefined" && value instanceof ImageData) {
    const { data, width, height } = value;
    transfer.add(data.buffer);
    out = { [IMAGE_DATA_KEY]: data, width, height };
  }
  else if (typeof VideoFrame !== "undefined" && value instanceof VideoFrame) transfer.add(value);
  else if (value && typeof value === "object" && isPlain(value)) {
    out = Object.fromEntries(Object.entries(value).map(([key, each]) => [key, packItem(each)]));
  }
  return { value: out, transfer };
}

/**
 * Closes transferred pictures. A camera has few frames and delivers no new one until they are closed; garbage
 * collection may take seconds.
 */
export function closePictures(value: unknown): void {
  if (typeof value !== "object" || value === null) return;
  if (Array.isArray(value) ? typeof value[0] === "object" : isPlain(value)) Object.values(value).forEach(closePictures);
  else if (["VideoFrame", "ImageBitmap"].includes(Object.prototype.toString.call(value).slice(8, -1))) (value as VideoFrame | ImageBitmap).close();
}

/** Starts answering a page's calls. The returned function calls the page outside of any call. */
export function serveCalls(thread: Thread, handlers: Handlers): Context["call"] {
  const running = new Map<number, AbortController>();
  const pendingReplies = new Map<number, { done: (value: any) => void; fail: (error: unknown) => void }>();
  let next = 0;
  const post = (message: WorkerMessage): void => {
    const { value, transfer } = packValue(message);
    thread.postMessage(value, [...transfer]);
  };
  const callerFor = (id: number) => <T>(callback: string, ...args: unknown[]): Promise<T> =>
    new Promise<T>((done, fail) => {
      const reply = (next += 1);
      pendingReplies.set(reply, { done, fail });
      post({ id, callback, args, reply });
    });
  thread.onmessage = ({ data: message }: { data: PageMessage }) => {
    if ("reply" in message) {
      const { reply, value, error } = message;
      const pending = pendingReplies.get(reply);
      pendingReplies.delete(reply);
      return error ? pending?.fail(fromPlainError(error)) : pending?.done(value);
    }
    const { id } = message;
    if ("abort" in message) return running.get(id)?.abort();
    const controller = new AbortController();
    running.set(id, controller);
    const context: Context = { signal: controller.signal, notify: (callback, ...args) => post({ id, callback, args }), call: callerFor(id) };
    const work = async (): Promise<void> => {
      const handler = handlers[message.name];
      if (!handler) throw new InternalError("E_INTERNAL", `the worker does not know \`${message.name}\``);
      post({ id, value: await handler(message.args, context) });
    };
    void work()
      .catch((error: unknown) => post({ id, error: toPlainError(error) }))
      .finally(() => {
        running.delete(id);
        closePictures(message.args);
      });
  };
  return callerFor(0);
}

/** Options of a call. */
export interface CallOptions {
  signal?: AbortSignal | undefined;
  /** Functions that the worker may call. */
  callbacks?: Callbacks;
  /** Objects to transfer. */
  transfer?: Iterable<Transferable>;
  /** Receives a value that arrives after the call was aborted. */
  onLate?: (value: any) => void;
}

/** Functions of the page by name. */
export type Callbacks = Record<string, (...args: any[]) => unknown>;

/** The error for a worker that has ended with everything it held. */
const workerLost = (why: string): DeviceError =>
  new DeviceError("E_DEVICE_LOST", `the worker of the page's models ${why}`, {
    hint: "call again: models are loaded again where they came from; tensors that were there have to be computed again",
  });

/** The page's side of remote calls. */
export class RpcClient {
  /** Whether the worker has answered at all. */
  alive = false;
  readonly #worker: Worker;
  readonly #pending = new Map<number, (message: WorkerMessage) => void>();
  readonly #onEnd: () => void;
  #next = 0;
  #endReason: GradloomError | undefined;

  /**
   * `onEnd` is called when the worker has ended; the worker may call the functions `anyTime` at any time, even outside
   * of calls.
   */
  constructor(worker: Worker, onEnd: () => void, anyTime: Callbacks = {}) {
    this.#worker = worker;
    this.#onEnd = onEnd;
    worker.onmessage = ({ data }: MessageEvent<WorkerMessage>) => {
      this.alive = true;
      if ("callback" in data && data.callback in anyTime) this.#runCallback(anyTime, data);
      else this.#pending.get(data.id)?.(data);
    };
    worker.onerror = (event) => {
      // errors before the first answer are reported by the code that started the worker
      if (!this.alive) event.preventDefault();
      const why = `stopped${event.message ? `: ${event.message}` : ""}`;
      this.end(this.alive ? workerLost(why) : new InternalError("E_INTERNAL", `the worker ${why}`));
    };
  }

  /** Whether the worker has ended. */
  get ended(): boolean {
    return this.#endReason !== undefined;
  }

  /** Detects the end of the worker by the lock that it holds. */
  watchLock(lock: string): void {
    watchLock(lock, () => this.end(workerLost("was ended by the browser")));
  }

  /** Calls a function for the worker, and replies if it waits for the result. */
  #runCallback(callbacks: Callbacks, { callback, args, reply }: Extract<WorkerMessage, { callback: string }>): void {
    if (reply === undefined) return void callbacks[callback]?.(...args);
    const postReply = (message: Extract<PageMessage, { reply: number }>): void => {
      const { value: packed, transfer } = packValue(message);
      if (!this.#endReason) this.#worker.postMessage(packed, [...transfer]);
    };
    const work = async (): Promise<unknown> => callbacks[callback]?.(...args);
    void work()
      .then((value) => postReply({ reply, value }))
      .catch((error: unknown) => postReply({ reply, error: toPlainError(error) }));
  }

  /** Calls a function of the worker. */
  call<T = unknown>(name: string, args: unknown, { signal, callbacks = {}, transfer = [], onLate }: CallOptions = {}): Promise<T> {
    if (this.#endReason) return Promise.reject(this.#endReason);
    if (signal?.aborted) return Promise.reject(signal.reason);
    const id = (this.#next += 1);
    return new Promise<T>((done, fail) => {
      let abandoned = false;
      const abandon = (why: unknown): void => {
        abandoned = true;
        if (!this.#endReason) this.#worker.postMessage({ id, abort: true });
        fail(why);
      };
      const onAbort = (): void => abandon(signal?.reason);
      this.#worker.postMessage({ id, name, args }, [...transfer]);
      signal?.addEventListener("abort", onAbort, { once: true });
      this.#pending.set(id, (message) => {
        if ("callback" in message) {
          if (abandoned && message.reply === undefined) return;
          try {
            this.#runCallback(callbacks, message);
          } catch (error) {
            // a callback's error rejects the call, as it would in this thread
            abandon(error);
          }
          return;
        }
        this.#pending.delete(id);
        signal?.removeEventListener("abort", onAbort);
        if ("error" in message) fail(fromPlainError(message.error));
        else if (abandoned) onLate?.(message.value);
        else done(message.value as T);
      });
    });
  }

  /** Terminates the worker; pending calls are rejected. */
  end(why: GradloomError): void {
    if (this.#endReason) return;
    this.#endReason = why;
    this.#worker.terminate();
    for (const [id, receive] of [...this.#pending]) receive({ id, error: toPlainError(why) });
    this.#onEnd();
  }
}
