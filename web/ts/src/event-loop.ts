// Yielding to the event loop during long JavaScript work, and copying files into the wasm module in portions. The
// module's own work is divided in web/src/scheduler.rs.
import { guard } from "./errors.js";
import type { Engine } from "./module.js";

/** Milliseconds of work after which the event loop runs. */
const SLICE_MS = 8;
/** Bytes that are copied into the module at a time. */
const PORTION_BYTES = 1 << 22;

/** Resolves after pending tasks of the event loop have run. */
export function yieldToEventLoop(): Promise<void> {
  return new Promise((done) => {
    const immediate = (globalThis as { setImmediate?: (body: () => void) => void }).setImmediate;
    if (immediate) return immediate(done);
    // a message instead of a timer, which would fire some milliseconds later
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      done();
    };
    port2.postMessage(0);
  });
}

/** Divides work into slices of some milliseconds, between which the event loop runs. */
export class TimeSlices {
  #pieceStart = performance.now();
  #sliceEnd = this.#pieceStart + SLICE_MS;

  /**
   * Call this between two pieces of work. Yields to the event loop if the next piece, assumed to take as long as the
   * last one, would exceed the slice. Throws if `signal` has fired.
   */
  async yieldIfDue(signal?: AbortSignal): Promise<void> {
    const now = performance.now();
    const last = now - this.#pieceStart;
    this.#pieceStart = now;
    if (now + last >= this.#sliceEnd) {
      await yieldToEventLoop();
      this.#pieceStart = performance.now();
      this.#sliceEnd = this.#pieceStart + SLICE_MS;
    }
    signal?.throwIfAborted();
  }
}

/** Copies a file into the module's memory, yielding between portions. */
export async function copyIntoWasm(engine: Engine, bytes: Uint8Array, signal?: AbortSignal): Promise<InstanceType<Engine["api"]["FileBuffer"]>> {
  const slices = new TimeSlices();
  const buffer = guard(() => new engine.api.FileBuffer(bytes.length));
  try {
    for (let at = 0; at < bytes.length; at += PORTION_BYTES) {
      guard(() => buffer.push(bytes.subarray(at, at + PORTION_BYTES)));
      await slices.yieldIfDue(signal);
    }
    return buffer;
  } catch (error) {
    buffer.free();
    throw error;
  }
}
