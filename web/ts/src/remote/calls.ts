// Remote calls between a page and its worker. Each call has an id and ends in a value or an error. While it runs, the
// worker may call functions of the page, and the page may abort it.
import { DeviceError, FetchError, GradloomError, InternalError, StateError, wrap } from "../errors.js";

/** An error in a form that can be posted to another thread. */
export interface PlainError {
  name: string;
  message: string;
  code?: string;
  hint?: string;
}

/** Messages of the page: calls, aborts, and replies to questions of the worker, which have ids of their own. */
type Ask = { id: number; name: string; args: unknown } | { id: number; stop: true } | { reply: number; value?: unknown; error?: PlainError };

/**
 * Messages of the worker. A value or an error ends the call of that id; `told` calls a function of the page, which
 * replies if `reply` is given.
 */
type Answer = { id: number } & ({ value: unknown } | { error: PlainError } | { told: string; args: unknown[]; reply?: number });

/** The messaging interface of a thread. */
export interface Thread {
  onmessage: ((event: { data: any }) => void) | null;
  postMessage(message: unknown, transfer: Transferable[]): void;
}

/** What a function of the worker receives besides its arguments. */
export interface Context {
  signal: AbortSignal;
  /** Calls a function of the page by name, without waiting for it. */
  tell: (name: string, ...args: unknown[]) => void;
  /** Calls a function of the page and waits for its result. */
  ask: <T>(name: string, ...args: unknown[]) => Promise<T>;
}

/** The functions of a worker by name. */
export type Answers = Record<string, (args: any, context: Context) => unknown>;

/** Reduces an error to what can be posted. */
export function plain(error: unknown): PlainError {
  const { name, message, code, hint } = (error ?? {}) as Error & { code?: string; hint?: string };
  return { name: name ?? "Error", message: message ?? String(error), ...(typeof code === "string" && { code }), ...(hint !== undefined && { hint }) };
}

/** Recreates an error from another thread as an instance of this thread's classes. */
export function revived({ name, message, code, hint }: PlainError): unknown {
  if (code === undefined) return Object.assign(new Error(message), { name });
  const Class = { E_FETCH: FetchError, E_STATE: StateError }[code];
  if (Class) return new Class(code, message, hint === undefined ? {} : { hint });
  const error = wrap({ code, message });
  return hint !== undefined && error instanceof GradloomError ? new (error.constructor as typeof GradloomError)(code, message, { hint }) : error;
}

/** Marks an `ImageData` whose pixel buffer is transferred; an `ImageData` itself cannot be. */
const PICTURE = "$picture";

/** Restores pictures in a received value. */
export function unpacked(value: unknown): unknown {
  if (typeof value !== "object" || value === null || !isPlain(value)) return value;
  const { [PICTURE]: data, width, height } = value as { [PICTURE]?: Uint8ClampedArray<ArrayBuffer>; width?: number; height?: number };
  if (data) return new ImageData(data, width as number, height as number);
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, unpacked(each)]));
}

const isPlain = (value: object): boolean => [Object.prototype, null].includes(Object.getPrototypeOf(value));

/**
 * Prepares a value for posting, with the list of what is transferred rather than copied: buffers of typed arrays, and
 * pictures. A view of a part of a buffer is copied.
 */
export function packed(value: unknown, transfer: Set<Transferable> = new Set()): { value: any; transfer: Set<Transferable> } {
  const inside = (each: unknown): unknown => packed(each, transfer).value;
  let out = value;
  if (ArrayBuffer.isView(value)) {
    const { buffer, byteLength } = value;
    out = buffer instanceof ArrayBuffer && byteLength === buffer.byteLength ? value : (value as Uint8Array).slice();
    transfer.add((out as Uint8Array).buffer as ArrayBuffer);
  } else if (Array.isArray(value)) out = typeof value[0] === "object" ? value.map(inside) : value;
  else if (typeof ImageBitmap !== "undefined" && value instanceof ImageBitmap) transfer.add(value);
  else if (typeof ImageData !== "undefined" && value instanceof ImageData) {
    const { data, width, height } = value;
    transfer.add(data.buffer);
    out = { [PICTURE]: data, width, height };
  }
  else if (typeof VideoFrame !== "undefined" && value instanceof VideoFrame) transfer.add(value);
  else if (value && typeof value === "object" && isPlain(value)) {
    out = Object.fromEntries(Object.entries(value).map(([key, each]) => [key, inside(each)]));
  }
  return { value: out, transfer };
}

/**
 * Closes transferred pictures. A camera has few frames and delivers no new one until they are closed; garbage
 * collection may take seconds.
 */
function close(value: unknown): void {
  if (typeof value !== "object" || value === null) return;
  if (Array.isArray(value) ? typeof value[0] === "object" : isPlain(value)) Object.values(value).forEach(close);
  else if (["VideoFrame", "ImageBitmap"].includes(Object.prototype.toString.call(value).slice(8, -1))) (value as VideoFrame | ImageBitmap).close();
}

/** Starts answering a page's calls. The returned function calls the page outside of any call. */
export function answer(thread: Thread, answers: Answers): Context["ask"] {
  const working = new Map<number, AbortController>();
  const asked = new Map<number, { done: (value: any) => void; fail: (error: unknown) => void }>();
  let next = 0;
  const send = (message: Answer): void => {
    const { value, transfer } = packed(message);
    thread.postMessage(value, [...transfer]);
  };
  const asking = (id: number) => <T>(told: string, ...args: unknown[]): Promise<T> =>
    new Promise<T>((done, fail) => {
      const reply = (next += 1);
      asked.set(reply, { done, fail });
      send({ id, told, args, reply });
    });
  thread.onmessage = ({ data: ask }: { data: Ask }) => {
    if ("reply" in ask) {
      const { reply, value, error } = ask;
      const waiting = asked.get(reply);
      asked.delete(reply);
      return error ? waiting?.fail(revived(error)) : waiting?.done(value);
    }
    const { id } = ask;
    if ("stop" in ask) return working.get(id)?.abort();
    const stop = new AbortController();
    working.set(id, stop);
    const context: Context = { signal: stop.signal, tell: (told, ...args) => send({ id, told, args }), ask: asking(id) };
    const work = async (): Promise<void> => {
      const body = answers[ask.name];
      if (!body) throw new InternalError("E_INTERNAL", `the worker does not know \`${ask.name}\``);
      send({ id, value: await body(ask.args, context) });
    };
    void work()
      .catch((error: unknown) => send({ id, error: plain(error) }))
      .finally(() => {
        working.delete(id);
        close(ask.args);
      });
  };
  return asking(0);
}

/** Options of a call. */
export interface Asking {
  signal?: AbortSignal | undefined;
  /** Functions that the worker may call. */
  told?: Functions;
  /** Objects to transfer. */
  transfer?: Iterable<Transferable>;
  /** Receives a value that arrives after the call was aborted. */
  late?: (value: any) => void;
}

/** Functions of the page by name. */
export type Functions = Record<string, (...args: any[]) => unknown>;

/** The error for a worker that has ended with everything it held. */
const gone = (why: string): DeviceError =>
  new DeviceError("E_DEVICE_LOST", `the worker of the page's models ${why}`, { hint: "load what was there again: that starts another worker" });

/** The page's side of remote calls. */
export class Calls {
  /** Whether the worker has answered at all. */
  alive = false;
  readonly #worker: Worker;
  readonly #open = new Map<number, (answer: Answer) => void>();
  readonly #ended: () => void;
  #next = 0;
  #over: GradloomError | undefined;

  /**
   * `ended` is called when the worker has ended; the worker may call the functions `always` at any time, even outside
   * of calls.
   */
  constructor(worker: Worker, ended: () => void, always: Functions = {}) {
    this.#worker = worker;
    this.#ended = ended;
    worker.onmessage = ({ data }: MessageEvent<Answer>) => {
      this.alive = true;
      if ("told" in data && data.told in always) this.#called(always, data);
      else this.#open.get(data.id)?.(data);
    };
    worker.onerror = (event) => {
      // errors before the first answer are reported by the code that started the worker
      if (!this.alive) event.preventDefault();
      const why = `stopped${event.message ? `: ${event.message}` : ""}`;
      this.end(this.alive ? gone(why) : new InternalError("E_INTERNAL", `the worker ${why}`));
    };
  }

  /** Whether the worker has ended. */
  get ended(): boolean {
    return this.#over !== undefined;
  }

  /**
   * Detects the end of the worker, whatever its cause: the worker holds a lock, which the browser passes on when the
   * worker is gone. There is no event for a worker that the browser terminates, e.g. for lack of memory.
   */
  watch(lock: string): void {
    void navigator.locks?.request(lock, () => this.end(gone("was ended by the browser"))).catch(() => {});
  }

  /** Calls a function for the worker, and replies if it waits for the result. */
  #called(functions: Functions, { told, args, reply }: Extract<Answer, { told: string }>): void {
    if (reply === undefined) return void functions[told]?.(...args);
    const answered = (message: Extract<Ask, { reply: number }>): void => {
      const { value: sent, transfer } = packed(message);
      if (!this.#over) this.#worker.postMessage(sent, [...transfer]);
    };
    const work = async (): Promise<unknown> => functions[told]?.(...args);
    void work()
      .then((value) => answered({ reply, value }))
      .catch((error: unknown) => answered({ reply, error: plain(error) }));
  }

  /** Calls a function of the worker. */
  ask<T = unknown>(name: string, args: unknown, { signal, told = {}, transfer = [], late }: Asking = {}): Promise<T> {
    if (this.#over) return Promise.reject(this.#over);
    if (signal?.aborted) return Promise.reject(signal.reason);
    const id = (this.#next += 1);
    return new Promise<T>((done, fail) => {
      let given = false;
      const giveUp = (why: unknown): void => {
        given = true;
        if (!this.#over) this.#worker.postMessage({ id, stop: true });
        fail(why);
      };
      const stop = (): void => giveUp(signal?.reason);
      this.#worker.postMessage({ id, name, args }, [...transfer]);
      signal?.addEventListener("abort", stop, { once: true });
      this.#open.set(id, (answer) => {
        if ("told" in answer) {
          if (given && answer.reply === undefined) return;
          try {
            this.#called(told, answer);
          } catch (error) {
            // a callback's error rejects the call, as it would in this thread
            giveUp(error);
          }
          return;
        }
        this.#open.delete(id);
        signal?.removeEventListener("abort", stop);
        if ("error" in answer) fail(revived(answer.error));
        else if (given) late?.(answer.value);
        else done(answer.value as T);
      });
    });
  }

  /** Terminates the worker; pending calls are rejected. */
  end(why: GradloomError): void {
    if (this.#over) return;
    this.#over = why;
    this.#worker.terminate();
    for (const [id, told] of [...this.#open]) told({ id, error: plain(why) });
    this.#ended();
  }
}
