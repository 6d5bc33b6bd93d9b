// The lifecycle of a wasm module's instance. A panic or trap leaves the module's memory in an undefined state, so the
// instance then ends for good: all pending promises are rejected, and every later call throws.
import { GradloomError, InternalError } from "./errors.js";

type Call = (...args: unknown[]) => unknown;
type Exports = Record<string, unknown>;

/** The environment passed to the generated bindings, see scripts/lib/bindings.mjs. */
export interface Environment {
  Promise: unknown;
  guard: (exports: Exports) => Exports;
  runCallback: (callback: Call, ...args: unknown[]) => unknown;
}

/** The functions that all bindings have besides their module's exports. */
export interface Bindings {
  load(input?: { module_or_path: string | URL | BufferSource | WebAssembly.Module | Promise<Response> }): Promise<unknown>;
  module(): WebAssembly.Module;
  /** Whether the module was built whole, with all its parts inside. */
  isWhole(): boolean;
  /** Adds the exports of a part of the module. */
  part(compiled: WebAssembly.Module): Promise<void>;
  drop(stub: Exports): void;
}

/**
 * Exports that release something. They succeed silently once the instance has ended, since everything is released then.
 */
const RELEASING = /free(Model)?$|destroy/;

/** An instance of a wasm module, with its bindings. */
export class Instance<T extends Bindings> {
  readonly api: T;
  readonly #pending = new Set<(why: unknown) => void>();
  readonly #endCallbacks: (() => void)[] = [];
  /** Nesting depth of the calls into the module that are on the stack. */
  #depth = 0;
  #ended: GradloomError | undefined;

  constructor(make: (environment: Environment) => T) {
    const pending = this.#pending;
    // The promise constructor for the module. Promises still pending when the instance ends are rejected.
    const TrackedPromise = function (body: (done: Call, fail: Call) => void): Promise<unknown> {
      return new Promise((done, fail) => {
        pending.add(fail);
        const settleWith = (settle: (value: unknown) => void) => (value: unknown) => {
          pending.delete(fail);
          settle(value);
        };
        body(settleWith(done), settleWith(fail));
      });
    };
    TrackedPromise.resolve = (value: unknown) => Promise.resolve(value);
    // names with a leading dollar are internal exports for the module's parts
    const guard = (exports: Exports): Exports =>
      Object.fromEntries(
        Object.entries(exports)
          .filter(([name]) => name[0] !== "$")
          .map(([name, it]) => [name, typeof it === "function" ? this.#guard(name, it as Call) : it]),
      );
    this.api = make({ Promise: TrackedPromise, guard, runCallback: (callback, ...args) => this.#runCallback(callback, args) });
  }

  /** The reason why the instance ended; undefined while it is alive. */
  get ended(): GradloomError | undefined {
    return this.#ended;
  }

  /** Registers a function to be called when the instance ends. */
  atEnd(body: () => void): void {
    this.#endCallbacks.push(body);
  }

  /** Ends the instance: rejects pending promises and releases its memory. */
  end(why: GradloomError): void {
    if (this.#ended) return;
    this.#ended = why;
    const stub = (name: string): Call => () => {
      if (!RELEASING.test(name)) throw why;
    };
    this.api.drop(new Proxy({}, { get: (_, name) => stub(String(name)) }));
    for (const fail of this.#pending) fail(why);
    this.#pending.clear();
    for (const body of this.#endCallbacks) body();
  }

  /**
   * Wraps an export. An exception that leaves it has skipped the clean-up of the module's own stack frames, so the
   * instance ends.
   */
  #guard(name: string, f: Call): Call {
    return (...args) => {
      this.#depth += 1;
      try {
        return f(...args);
      } catch (error) {
        this.end(trapError(error));
        if (this.#depth === 1 && RELEASING.test(name)) return undefined;
        throw this.#ended;
      } finally {
        this.#depth -= 1;
      }
    };
  }

  /**
   * Wraps a callback of the module (tasks, events). After the instance has ended its errors are dropped, since no
   * caller could handle them.
   */
  #runCallback(callback: Call, args: unknown[]): unknown {
    if (this.#ended && this.#depth === 0) return undefined;
    try {
      return callback(...args);
    } catch (error) {
      if (this.#ended && this.#depth === 0) return undefined;
      throw error;
    }
  }
}

function trapError(error: unknown): GradloomError {
  if (error instanceof GradloomError) return error;
  // the module does not contain the places in its source; the frames of the cause say in which function it panicked
  const why = (error instanceof Error ? error.message : String(error)).replace("panicked at <redacted>:0:0:\n", "");
  const hint = "what was computed with it is gone; `await init()` starts afresh";
  return new InternalError("E_INTERNAL", `the wasm module stopped: ${why}`, { cause: error, hint });
}
