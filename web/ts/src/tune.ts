// Tuning: its options, and when it may work.

/** Options of `Device.tune`. */
export interface TuneOptions {
  /** The total time of the search in milliseconds. Default: 5000, or 10000 with `idle`. */
  ms?: number;
  /** Works only while the page is idle (`requestIdleCallback`), for as long as that takes. */
  idle?: boolean;
  /**
   * For tests of kernel replacement: starts from unoptimised kernels and ranks by the cost model instead of measured
   * times; results then have the cost model's unit.
   */
  fromPlain?: boolean;
  /** Ends the search early; what was found so far is used and stored. */
  signal?: AbortSignal;
}

export type { TunedKernel } from "./pkg/gradloom_web.js";

/** Idle periods shorter than this are not used. */
const IDLE_MS = 4;
/** After this time the search continues even if the page is never idle. */
const IDLE_TIMEOUT_MS = 2000;

/** Resolves in the next task of the event loop, so that events and other work can run. */
function nextTask(): Promise<void> {
  return new Promise((done) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      done();
    };
    port2.postMessage(null);
  });
}

function nextIdlePeriod(): Promise<void> {
  if (typeof requestIdleCallback === "undefined") return new Promise((done) => setTimeout(done, 50));
  return new Promise((done) => {
    const check = (deadline: IdleDeadline): void => {
      if (deadline.didTimeout || deadline.timeRemaining() >= IDLE_MS) done();
      else requestIdleCallback(check, { timeout: IDLE_TIMEOUT_MS });
    };
    requestIdleCallback(check, { timeout: IDLE_TIMEOUT_MS });
  });
}

/**
 * The search calls the returned function before each piece of work: it resolves once there is time, to false if the
 * search should end.
 */
export function timeSlots(ms: number, options: TuneOptions): () => Promise<boolean> {
  const end = performance.now() + ms;
  return async () => {
    await (options.idle ? nextIdlePeriod() : nextTask());
    return !options.signal?.aborted && (options.idle === true || performance.now() < end);
  };
}
