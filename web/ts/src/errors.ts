// Every error the package throws: a class for `instanceof`, and a stable `code` for programs. No messages are made here.
import { piece } from "./pieces.js";

// Safari, and Firefox and Chromium of before 2025, have no `Symbol.dispose`: without it `using`, compiled for them, throws. It is here
// because this module is evaluated before any that uses it.
(Symbol as { dispose: symbol }).dispose ??= Symbol("Symbol.dispose");

/** What all errors of this package are. `code` is stable; `hint` says what to do where that is known. */
export class GradloomError extends Error {
  readonly code: string;
  readonly hint: string | undefined;

  constructor(code: string, message: string, options: { cause?: unknown; hint?: string } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.hint = options.hint;
  }
}

/** Shapes or axes that do not fit (`E_SHAPE`, `E_AXIS`). */
export class ShapeError extends GradloomError {}
/** A dtype an op does not take (`E_DTYPE`). */
export class DTypeError extends GradloomError {}
/** A bad argument (`E_VALUE`). */
export class ValueError extends GradloomError {}
/** Something this build or device cannot do (`E_UNSUPPORTED`). */
export class UnsupportedError extends GradloomError {}
/** A file that is not what it should be (`E_FORMAT`). */
export class FormatError extends GradloomError {}
/** A model that cannot be run (`E_MODEL`). */
export class ModelError extends GradloomError {}
/** A model input that is missing, unknown or of the wrong kind (`E_INPUT`). */
export class InputError extends GradloomError {}
/** A device that is not there, or failed (`E_DEVICE`), or that is gone with all that it held (`E_DEVICE_LOST`). */
export class DeviceError extends GradloomError {}
/** A model, a file or a template asks for more than its budget allows (`E_BUDGET`). */
export class BudgetError extends GradloomError {}
/** Memory was refused (`E_OUT_OF_MEMORY`). */
export class OutOfMemoryError extends GradloomError {}
/** A file that could not be fetched or read (`E_FETCH`). */
export class FetchError extends GradloomError {}
/** Something used before `init`, or after `dispose` (`E_STATE`). */
export class StateError extends GradloomError {}
/** A bug in this package (`E_INTERNAL`). If the wasm module stopped, all that it held is gone, and `init` starts afresh. */
export class InternalError extends GradloomError {}

const NAMED = {
  GradloomError, ShapeError, DTypeError, ValueError, UnsupportedError, FormatError, ModelError, InputError, DeviceError, BudgetError,
  OutOfMemoryError, FetchError, StateError, InternalError,
};
// Not those of the classes, which bundlers shorten.
for (const [value, Class] of Object.entries(NAMED)) Object.defineProperty(Class.prototype, "name", { value, configurable: true, writable: true });

/** @internal Did a device go away under it? */
export const isLost = (error: unknown): boolean => (error as { code?: unknown } | undefined)?.code === "E_DEVICE_LOST";

const CLASSES: Record<string, typeof GradloomError> = {
  E_SHAPE: ShapeError,
  E_AXIS: ShapeError,
  E_DTYPE: DTypeError,
  E_VALUE: ValueError,
  E_UNSUPPORTED: UnsupportedError,
  E_FORMAT: FormatError,
  E_MODEL: ModelError,
  E_INPUT: InputError,
  E_DEVICE: DeviceError,
  E_BUDGET: BudgetError,
  E_DEVICE_LOST: DeviceError,
  E_OUT_OF_MEMORY: OutOfMemoryError,
};

/** @internal The error for code that is not to be had. */
export const missing = (cause: Error): never => {
  throw new FetchError("E_FETCH", `a part of the package did not load: ${cause.message}`, { cause });
};

/** What says what may be meant where shapes do not fit; fetched when the first layer is made. */
let hintOf: ((message: string) => string | undefined) | undefined;

/** There will be layers, whose inputs may not fit. */
export async function expectLayers(): Promise<void> {
  if (hintOf) return;
  hintOf = () => undefined;
  hintOf = await piece("hints").then((module) => module.hintOf, () => undefined);
}

/** The error the wasm module threw, as one of ours. */
export function wrap(error: unknown): unknown {
  if (error instanceof GradloomError) return error;
  const { code, message } = error as { code?: unknown; message?: unknown };
  if (typeof code === "string" && code.startsWith("E_")) {
    const Class = CLASSES[code] ?? InternalError;
    const hint = code === "E_SHAPE" ? hintOf?.(String(message)) : undefined;
    return new Class(code, String(message), { cause: error, ...(hint && { hint }) });
  }
  return error;
}

/** Runs a call into the wasm module; what it throws is one of our errors. */
export function guard<T>(body: () => T): T {
  try {
    return body();
  } catch (error) {
    throw wrap(error);
  }
}

/** The same for one that waits. With a signal the wait ends at once when it fires; `late` gets what still arrives. */
export function guardAsync<T>(body: () => Promise<T> | T, signal?: AbortSignal, late?: (value: T) => void): Promise<T> {
  const given = guardSoon(body, signal, late);
  return given instanceof Promise ? given : Promise.resolve(given);
}

/** The same, without a promise for what is there at once: promises and their turns cost more than a small kernel does. */
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
    work.then(
      (value) => {
        signal.removeEventListener("abort", stop);
        if (!signal.aborted) return done(value);
        late?.(value);
        fail(signal.reason);
      },
      (error) => {
        signal.removeEventListener("abort", stop);
        fail(signal.aborted ? signal.reason : wrap(error));
      },
    );
  });
}
