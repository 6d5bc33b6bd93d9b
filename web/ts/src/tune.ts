// Tuning: when it may work, and what it tells.

/** How a device is tuned. */
export interface TuneOptions {
  /** Milliseconds of work it may take in all: 5000, or 10000 when idle. */
  ms?: number;
  /** Works only while the page is idle (`requestIdleCallback`), and takes as long as that needs. */
  idle?: boolean;
  /**
   * For tests of the exchange: starts from kernels that nothing optimised and goes by the cost model instead of the clock,
   * whose units the results then have.
   */
  fromPlain?: boolean;
  /** Ends it early; what was found until then is in use and kept. */
  signal?: AbortSignal;
}

export type { TunedKernel } from "./pkg/gradloom_web.js";

/** An idle period shorter than this is left to others. */
const IDLE_MS = 4;
/** A page that is never idle still gets its turn. */
const PATIENCE_MS = 2000;

/** Resolves in the next task, so that events and other work get theirs. */
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

function idle(): Promise<void> {
  if (typeof requestIdleCallback === "undefined") return new Promise((done) => setTimeout(done, 50));
  return new Promise((done) => {
    const look = (deadline: IdleDeadline): void => {
      if (deadline.didTimeout || deadline.timeRemaining() >= IDLE_MS) done();
      else requestIdleCallback(look, { timeout: PATIENCE_MS });
    };
    requestIdleCallback(look, { timeout: PATIENCE_MS });
  });
}

/** What the search asks before each piece of work: resolves when there is time, to false when it should end. */
export function slots(ms: number, options: TuneOptions): () => Promise<boolean> {
  const end = performance.now() + ms;
  return async () => {
    await (options.idle ? idle() : nextTask());
    return !options.signal?.aborted && (options.idle === true || performance.now() < end);
  };
}
