// Calls from a page to its worker: each has a number, and ends in a value or an error; on the way the worker may tell of things, and the
// page may give it up.
import { FetchError, GradloomError, InternalError, StateError, wrap } from "../errors.js";

/** An error on its way to another thread. */
export interface PlainError {
  name: string;
  message: string;
  code?: string;
  hint?: string;
}

/** What the page asks. */
type Ask = { id: number; name: string; args: unknown } | { id: number; stop: true };

/** What the worker answers: the last one of a number is a value or an error. */
type Answer = { id: number } & ({ value: unknown } | { error: PlainError } | { told: string; args: unknown[] });

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
  else if (typeof VideoFrame !== "undefined" && value instanceof VideoFrame) transfer.add(value);
  else if (value && typeof value === "object" && isPlain(value)) {
    out = Object.fromEntries(Object.entries(value).map(([key, each]) => [key, inside(each)]));
  }
  return { value: out, transfer };
}

/** Answers a page from now on. */
export function answer(thread: Thread, answers: Answers): void {
  const working = new Map<number, AbortController>();
  thread.onmessage = ({ data: ask }: { data: Ask }) => {
    const { id } = ask;
    if ("stop" in ask) return working.get(id)?.abort();
    const stop = new AbortController();
    working.set(id, stop);
    const send = (message: Answer): void => {
      const { value, transfer } = packed(message);
      thread.postMessage(value, [...transfer]);
    };
    const context = { signal: stop.signal, tell: (told: string, ...args: unknown[]) => send({ id, told, args }) };
    const work = async (): Promise<void> => {
      const body = answers[ask.name];
      if (!body) throw new InternalError("E_INTERNAL", `the worker does not know \`${ask.name}\``);
      send({ id, value: await body(ask.args, context) });
    };
    void work()
      .catch((error: unknown) => send({ id, error: plain(error) }))
      .finally(() => working.delete(id));
  };
}

/** How something is asked. */
export interface Asking {
  signal?: AbortSignal | undefined;
  /** Functions that the worker may call. */
  told?: Record<string, (...args: any[]) => void>;
  /** What is handed over. */
  transfer?: Iterable<Transferable>;
  /** Gets a value that comes after it was given up. */
  late?: (value: any) => void;
}

/** The page's side. */
export class Calls {
  /** Whether the worker ever answered. */
  alive = false;
  readonly #worker: Worker;
  readonly #open = new Map<number, (answer: Answer) => void>();
  #next = 0;
  #over: GradloomError | undefined;

  /** `ended` is told when the worker is no more; `always` are functions that it may call when nothing is under way, too. */
  constructor(worker: Worker, ended: () => void, always: Record<string, (...args: any[]) => void> = {}) {
    this.#worker = worker;
    worker.onmessage = ({ data }: MessageEvent<Answer>) => {
      this.alive = true;
      if ("told" in data && data.told in always) always[data.told]?.(...data.args);
      else this.#open.get(data.id)?.(data);
    };
    worker.onerror = (event) => {
      // what went wrong before it was alive is said by who started it
      if (!this.alive) event.preventDefault();
      const why = event.message ? `: ${event.message}` : "";
      this.end(new InternalError("E_INTERNAL", `the worker stopped${why}`));
      ended();
    };
  }

  /** Asks the worker. */
  ask<T = unknown>(name: string, args: unknown, { signal, told = {}, transfer = [], late }: Asking = {}): Promise<T> {
    if (this.#over) return Promise.reject(this.#over);
    if (signal?.aborted) return Promise.reject(signal.reason);
    const id = (this.#next += 1);
    return new Promise<T>((done, fail) => {
      let given = false;
      const stop = (): void => {
        given = true;
        this.#worker.postMessage({ id, stop: true });
        fail(signal?.reason);
      };
      this.#worker.postMessage({ id, name, args }, [...transfer]);
      signal?.addEventListener("abort", stop, { once: true });
      this.#open.set(id, (answer) => {
        if ("told" in answer) {
          if (!given) told[answer.told]?.(...answer.args);
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
  }
}
