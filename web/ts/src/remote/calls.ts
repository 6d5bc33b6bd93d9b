// Calls from a page to its worker: each has a number, and ends in a value or an error; on the way the worker may tell of things and ask the
// page for what it has not itself, and the page may give it up.
import { DeviceError, FetchError, GradloomError, InternalError, StateError, wrap } from "../errors.js";

/** An error on its way to another thread. */
export interface PlainError {
  name: string;
  message: string;
  code?: string;
  hint?: string;
}

/** What the page asks, and what it answers to a question of the worker's, which has a number of its own. */
type Ask = { id: number; name: string; args: unknown } | { id: number; stop: true } | { reply: number; value?: unknown; error?: PlainError };

/** What the worker answers: the last one of a number is a value or an error. What it tells with a number for the reply is a question. */
type Answer = { id: number } & ({ value: unknown } | { error: PlainError } | { told: string; args: unknown[]; reply?: number });

/** What goes over a thread's border. */
export interface Thread {
  onmessage: ((event: { data: any }) => void) | null;
  postMessage(message: unknown, transfer: Transferable[]): void;
}

/** What an answering function is given beside its arguments. */
export interface Context {
  signal: AbortSignal;
  /** Calls a function of the page by the name that the page gave it. */
  tell: (name: string, ...args: unknown[]) => void;
  /** The same, and waits for what it gives. */
  ask: <T>(name: string, ...args: unknown[]) => Promise<T>;
}

/** What a worker answers to, by name. */
export type Answers = Record<string, (args: any, context: Context) => unknown>;

/** An error without what cannot be sent. */
export function plain(error: unknown): PlainError {
  const { name, message, code, hint } = (error ?? {}) as Error & { code?: string; hint?: string };
  return { name: name ?? "Error", message: message ?? String(error), ...(typeof code === "string" && { code }), ...(hint !== undefined && { hint }) };
}

/** An error of another thread's, as one of this thread's. */
export function revived({ name, message, code, hint }: PlainError): unknown {
  if (code === undefined) return Object.assign(new Error(message), { name });
  const Class = { E_FETCH: FetchError, E_STATE: StateError }[code];
  if (Class) return new Class(code, message, hint === undefined ? {} : { hint });
  const error = wrap({ code, message });
  return hint !== undefined && error instanceof GradloomError ? new (error.constructor as typeof GradloomError)(code, message, { hint }) : error;
}

/** Pixels are handed over, which whole `ImageData` are not. */
const PICTURE = "$picture";

/** What was sent with pictures in it, with pictures. */
export function unpacked(value: unknown): unknown {
  if (typeof value !== "object" || value === null || !isPlain(value)) return value;
  const { [PICTURE]: data, width, height } = value as { [PICTURE]?: Uint8ClampedArray<ArrayBuffer>; width?: number; height?: number };
  if (data) return new ImageData(data, width as number, height as number);
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, unpacked(each)]));
}

const isPlain = (value: object): boolean => [Object.prototype, null].includes(Object.getPrototypeOf(value));

/**
 * A value to be sent, and what of it is handed over rather than copied: memory of typed arrays, and pictures. A view of a part of some
 * memory is copied alone.
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

/** Closes pictures that were handed over. A camera has few frames and gives no new one until they are closed; garbage collection may take seconds. */
function close(value: unknown): void {
  if (typeof value !== "object" || value === null) return;
  if (Array.isArray(value) ? typeof value[0] === "object" : isPlain(value)) Object.values(value).forEach(close);
  else if (["VideoFrame", "ImageBitmap"].includes(Object.prototype.toString.call(value).slice(8, -1))) (value as VideoFrame | ImageBitmap).close();
}

/** Answers a page from now on. What comes back asks the page when it asks for nothing itself. */
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

/** How something is asked. */
export interface Asking {
  signal?: AbortSignal | undefined;
  /** Functions that the worker may call. */
  told?: Functions;
  /** What is handed over. */
  transfer?: Iterable<Transferable>;
  /** Gets a value that comes after it was given up. */
  late?: (value: any) => void;
}

/** Functions of the page by name. */
export type Functions = Record<string, (...args: any[]) => unknown>;

/** A worker that is no more: with all that it held. */
const gone = (why: string): DeviceError =>
  new DeviceError("E_DEVICE_LOST", `the worker of the page's models ${why}`, { hint: "load what was there again: that starts another worker" });

/** The page's side. */
export class Calls {
  /** Whether the worker ever answered. */
  alive = false;
  readonly #worker: Worker;
  readonly #open = new Map<number, (answer: Answer) => void>();
  readonly #ended: () => void;
  #next = 0;
  #over: GradloomError | undefined;

  /** `ended` is told when the worker is no more; `always` are functions that it may call when nothing is under way, too. */
  constructor(worker: Worker, ended: () => void, always: Functions = {}) {
    this.#worker = worker;
    this.#ended = ended;
    worker.onmessage = ({ data }: MessageEvent<Answer>) => {
      this.alive = true;
      if ("told" in data && data.told in always) this.#called(always, data);
      else this.#open.get(data.id)?.(data);
    };
    worker.onerror = (event) => {
      // what went wrong before it was alive is said by who started it
      if (!this.alive) event.preventDefault();
      const why = `stopped${event.message ? `: ${event.message}` : ""}`;
      this.end(this.alive ? gone(why) : new InternalError("E_INTERNAL", `the worker ${why}`));
    };
  }

  /** Is the worker no more? */
  get ended(): boolean {
    return this.#over !== undefined;
  }

  /**
   * Notices that the worker is no more however it ended: it holds a lock, which the browser gives to who waits for it when the worker is gone.
   * There is no event for a worker that the browser ends, for want of memory, say.
   */
  watch(lock: string): void {
    void navigator.locks?.request(lock, () => this.end(gone("was ended by the browser"))).catch(() => {});
  }

  /** Calls a function that the worker names, and answers it where it asks. */
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

  /** Asks the worker. */
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
            // as if it had been called in this thread
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

  /** Ends the worker, and with it what is under way. */
  end(why: GradloomError): void {
    if (this.#over) return;
    this.#over = why;
    this.#worker.terminate();
    for (const [id, told] of [...this.#open]) told({ id, error: plain(why) });
    this.#ended();
  }
}
