// An instance of a wasm module: its bindings, what waits for it, and its end. A module that panicked or trapped has left its
// memory as it was at that moment, so nothing of it runs again: all that waits for it is told, and all that is asked of it fails.
import { GradloomError, InternalError } from "./errors.js";

type Call = (...args: unknown[]) => unknown;
type Exports = Record<string, unknown>;

/** What bindings are made with, see scripts/lib/bindings.mjs. */
export interface Environment {
  Promise: unknown;
  guard: (exports: Exports) => Exports;
  called: (callback: Call, ...args: unknown[]) => unknown;
}

/** What all bindings have besides what their module exports. */
export interface Bindings {
  load(input?: { module_or_path: string | URL | BufferSource | WebAssembly.Module | Promise<Response> }): Promise<unknown>;
  module(): WebAssembly.Module;
  /** Does it have all its parts in one? */
  isWhole(): boolean;
  /** Adds what a part of the module exports. */
  part(compiled: WebAssembly.Module): Promise<void>;
  drop(stub: Exports): void;
}

/** Exports that let something go. There is nothing to let go once the instance has ended, so they do not fail. */
const LETS_GO = /free(Model)?$|destroy/;

/** An instance and its bindings. */
export class Instance<T extends Bindings> {
  readonly api: T;
  readonly #waiting = new Set<(why: unknown) => void>();
  readonly #last: (() => void)[] = [];
  /** Calls into the module that are under way. */
  #depth = 0;
  #ended: GradloomError | undefined;

  constructor(make: (environment: Environment) => T) {
    const waiting = this.#waiting;
    // The promises that the module makes: those that its end leaves open are rejected.
    const Waiting = function (body: (done: Call, fail: Call) => void): Promise<unknown> {
      return new Promise((done, fail) => {
        waiting.add(fail);
        const then = (settle: (value: unknown) => void) => (value: unknown) => {
          waiting.delete(fail);
          settle(value);
        };
        body(then(done), then(fail));
      });
    };
    Waiting.resolve = (value: unknown) => Promise.resolve(value);
    // what only parts of the module use begins with a dollar
    const guard = (exports: Exports): Exports =>
      Object.fromEntries(
        Object.entries(exports)
          .filter(([name]) => name[0] !== "$")
          .map(([name, it]) => [name, typeof it === "function" ? this.#guard(name, it as Call) : it]),
      );
    this.api = make({ Promise: Waiting, guard, called: (callback, ...args) => this.#called(callback, args) });
  }

  /** Why it ended, if it has. */
  get ended(): GradloomError | undefined {
    return this.#ended;
  }

  /** What is done when it ends. */
  atEnd(body: () => void): void {
    this.#last.push(body);
  }

  /** Ends it: what waits is rejected, and its memory is let go. */
  end(why: GradloomError): void {
    if (this.#ended) return;
    this.#ended = why;
    const stub = (name: string): Call => () => {
      if (!LETS_GO.test(name)) throw why;
    };
    this.api.drop(new Proxy({}, { get: (_, name) => stub(String(name)) }));
    for (const fail of this.#waiting) fail(why);
    this.#waiting.clear();
    for (const body of this.#last) body();
  }

  /** An export. Whatever comes out of one as an exception has left the module's own frames behind as they were. */
  #guard(name: string, f: Call): Call {
    return (...args) => {
      this.#depth += 1;
      try {
        return f(...args);
      } catch (error) {
        this.end(stopped(error));
        if (this.#depth === 1 && LETS_GO.test(name)) return undefined;
        throw this.#ended;
      } finally {
        this.#depth -= 1;
      }
    };
  }

  /** A callback of the module: its tasks, events. Nobody is there to catch what it throws. */
  #called(callback: Call, args: unknown[]): unknown {
    if (this.#ended && this.#depth === 0) return undefined;
    try {
      return callback(...args);
    } catch (error) {
      if (this.#ended && this.#depth === 0) return undefined;
      throw error;
    }
  }
}

function stopped(error: unknown): GradloomError {
  if (error instanceof GradloomError) return error;
  const why = error instanceof Error ? error.message : String(error);
  const hint = "what was computed with it is gone; `await init()` starts afresh";
  return new InternalError("E_INTERNAL", `the wasm module stopped: ${why}`, { cause: error, hint });
}
