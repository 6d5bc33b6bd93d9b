// Every error that the package throws: a class for `instanceof`, and a stable `code` for programs. Messages are written
// where errors are thrown, not here.
import { loadChunk } from "./chunks.js";

// Safari, and Firefox and Chromium from before 2025, have no `Symbol.dispose`, without which compiled `using` throws.
// It is defined here because this module is evaluated before any that uses it.
(Symbol as { dispose: symbol }).dispose ??= Symbol("Symbol.dispose");

/** The base class of all errors of this package. `code` is stable; `hint` suggests a remedy where one is known. */
export class GradloomError extends Error {
  readonly code: string;
  declare readonly hint: string | undefined;

  constructor(code: string, message: string, options: { cause?: unknown; hint?: string | undefined } = {}) {
    super(message, options);
    this.code = code;
    // An absent hint is no property, since Node prints every property of an uncaught error.
    if (options.hint) this.hint = options.hint;
    // In V8 the stack begins with the name. Once it has been written, Node prints no line of minified code above it.
    // (No regular expression: where the stack is nearly used up, V8 ends the process if it cannot compile one.)
    if (this.stack?.startsWith(this.name)) this.stack = `${this.name} [${code}]${this.stack.slice(this.name.length)}`;
  }
}

/** Incompatible shapes (`E_SHAPE`) or an invalid axis (`E_AXIS`). */
export class ShapeError extends GradloomError {}
/** A dtype that the operation does not accept (`E_DTYPE`). */
export class DTypeError extends GradloomError {}
/** An invalid argument (`E_VALUE`). */
export class ValueError extends GradloomError {}
/** Something this build or device cannot do (`E_UNSUPPORTED`). */
export class UnsupportedError extends GradloomError {}
/** A file that is malformed or not of the expected format (`E_FORMAT`). */
export class FormatError extends GradloomError {}
/** A model that cannot be run (`E_MODEL`). */
export class ModelError extends GradloomError {}
/** A model input that is missing, unknown or of the wrong kind (`E_INPUT`). */
export class InputError extends GradloomError {}
/** A device that is unavailable or failed (`E_DEVICE`), or that was lost with everything it held (`E_DEVICE_LOST`). */
export class DeviceError extends GradloomError {}
/** A model, file or template that exceeds its budget of resources (`E_BUDGET`). */
export class BudgetError extends GradloomError {}
/** Memory could not be allocated (`E_OUT_OF_MEMORY`). */
export class OutOfMemoryError extends GradloomError {}
/** A file that could not be fetched or read (`E_FETCH`). */
export class FetchError extends GradloomError {}
/** Something used before `init`, or after `dispose` (`E_STATE`). */
export class StateError extends GradloomError {}
/**
 * A bug in this package (`E_INTERNAL`). If the wasm module stopped, everything it held is lost, and `init` starts
 * again.
 */
export class InternalError extends GradloomError {}

const NAMED = {
  GradloomError, ShapeError, DTypeError, ValueError, UnsupportedError, FormatError, ModelError, InputError, DeviceError, BudgetError,
  OutOfMemoryError, FetchError, StateError, InternalError,
};
/** The class of each code that the wasm module throws. A code is its class's name, as in `E_SHAPE`, except for these. */
const CLASSES: Record<string, typeof GradloomError> = { E_AXIS: ShapeError, E_DEVICE_LOST: DeviceError, E_OUT_OF_MEMORY: OutOfMemoryError };

for (const [value, Class] of Object.entries(NAMED)) {
  CLASSES[`E_${value.slice(0, -"Error".length).toUpperCase()}`] = Class;
  // Explicit names, since minifiers shorten those of the classes; Node prints both where they differ.
  for (const owner of [Class, Class.prototype]) Object.defineProperty(owner, "name", { value, configurable: true, writable: true });
}

/** @internal Whether the error is the loss of a device. */
export const isLost = (error: unknown): boolean => (error as { code?: unknown } | undefined)?.code === "E_DEVICE_LOST";

/** @internal The error for an operand that is no tensor. */
export const notTensor = (value: unknown): ValueError =>
  new ValueError("E_VALUE", `an operand is ${value === null ? value : typeof value}, not a tensor`);

/** @internal The error for sizes or axes that are given one by one, as PyTorch takes them too. */
export const notArray = (name: string): ValueError =>
  new ValueError("E_VALUE", `${name} takes an array of numbers`, { hint: "for example [2, 3], not 2, 3" });

/** @internal Throws the error for a module of the package that could not be loaded. */
export const missing = (cause: Error): never => {
  if (cause instanceof GradloomError) throw cause;
  if ("ServiceWorkerGlobalScope" in globalThis) {
    const hint = 'import "gradloom/service-worker" as well';
    throw new UnsupportedError("E_UNSUPPORTED", "a service worker cannot import a part of the package once it runs", { cause, hint });
  }
  throw new FetchError("E_FETCH", `a part of the package did not load: ${cause.message}`, { cause });
};

/** Finds the likely cause of a shape mismatch; loaded when the first layer is created. */
let hintOf: ((message: string) => string | undefined) | undefined;

/** Loads `hintOf`: a layer was created, and its input may have the wrong shape. */
export async function expectLayers(): Promise<void> {
  if (hintOf) return;
  hintOf = () => undefined;
  hintOf = await loadChunk("hints").then((module) => module.shapeErrorHint, () => undefined);
}

/** @internal Adds a hint to an error about the shape of a model's input, if a likely cause is found. */
export const withInputHint = async (error: unknown): Promise<unknown> =>
  error instanceof InputError ? loadChunk("hints").then((hints) => hints.withInputHint(error), () => error) : error;

/** Converts an error that the wasm module threw to one of this package's classes. */
export function wrap(error: unknown): unknown {
  if (error instanceof GradloomError) return error;
  const { code, message } = error as { code?: unknown; message?: unknown };
  if (typeof code === "string" && code.startsWith("E_")) {
    const Class = CLASSES[code] ?? InternalError;
    const hint = code === "E_SHAPE" ? hintOf?.(String(message)) : undefined;
    // Node would print the frames of the wasm module with every uncaught error, but they matter only for bugs of ours.
    if (Class !== InternalError) Object.defineProperties(error, { fullStack: { value: (error as Error).stack }, stack: { value: String(error) } });
    return new Class(code, String(message), { cause: error, hint });
  }
  return error;
}

/** Runs a call into the wasm module and converts the errors that it throws. */
export function guard<T>(body: () => T): T {
  try {
    return body();
  } catch (error) {
    throw wrap(error);
  }
}

/**
 * `guard` for an asynchronous call. When `signal` fires the promise rejects immediately; `late` then receives the
 * result that still arrives.
 */
export function guardAsync<T>(body: () => Promise<T> | T, signal?: AbortSignal, late?: (value: T) => void): Promise<T> {
  return Promise.resolve(guardSoon(body, signal, late));
}

/**
 * `guardAsync` without a promise for a result that is available at once: a promise and its task cost more than a small
 * kernel does.
 */
export function guardSoon<T>(body: () => Promise<T> | T, signal?: AbortSignal, late?: (value: T) => void): Promise<T> | T {
  if (signal?.aborted) return Promise.reject(signal.reason);
  let work: Promise<T>;
  try {
    const given = body();
    if (!(given instanceof Promise)) {
      if (!signal?.aborted) return given;
      late?.(given);
      return Promise.reject(signal.reason);
    }
    work = given;
  } catch (error) {
    return Promise.reject(signal?.aborted ? signal.reason : wrap(error));
  }
  if (!signal) return work.catch((error) => Promise.reject(wrap(error)));
  return new Promise((done, fail) => {
    const stop = (): void => fail(signal.reason);
    signal.addEventListener("abort", stop, { once: true });
    work.finally(() => signal.removeEventListener("abort", stop)).then(
      (value) => {
        if (!signal.aborted) return done(value);
        late?.(value);
        stop();
      },
      (error) => fail(signal.aborted ? signal.reason : wrap(error)),
    );
  });
}
