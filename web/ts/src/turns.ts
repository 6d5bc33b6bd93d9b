// The page's turns while JavaScript has much to do, and files on their way into the module. The module's own work is cut in
// web/src/pace.rs.
import { guard } from "./errors.js";
import type { Engine } from "./module.js";

/** Milliseconds of work after which the page has its turn. */
const SLICE_MS = 8;
/** Bytes that are copied at a time. */
const PART_BYTES = 1 << 22;

/** Resolves when the page has done what it had to do. */
export function turn(): Promise<void> {
  return new Promise((done) => {
    const immediate = (globalThis as { setImmediate?: (body: () => void) => void }).setImmediate;
    if (immediate) return immediate(done);
    // a timer would come some milliseconds later
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      done();
    };
    port2.postMessage(0);
  });
}

/** Work that goes on for some milliseconds at a time. */
export class Slices {
  #piece = performance.now();
  #end = this.#piece + SLICE_MS;

  /**
   * Between two pieces: the page has its turn where the next piece, if it takes as long as the last one, would end after the slice. Fails if the caller
   * gave up.
   */
  async breathe(signal?: AbortSignal): Promise<void> {
    const now = performance.now();
    const last = now - this.#piece;
    this.#piece = now;
    if (now + last >= this.#end) {
      await turn();
      this.#piece = performance.now();
      this.#end = this.#piece + SLICE_MS;
    }
    signal?.throwIfAborted();
  }
}

/** A file, copied into the module. */
export async function passed(engine: Engine, bytes: Uint8Array, signal?: AbortSignal): Promise<InstanceType<Engine["api"]["Parts"]>> {
  const slices = new Slices();
  const parts = guard(() => new engine.api.Parts(bytes.length));
  try {
    for (let at = 0; at < bytes.length; at += PART_BYTES) {
      guard(() => parts.push(bytes.subarray(at, at + PART_BYTES)));
      await slices.breathe(signal);
    }
    return parts;
  } catch (error) {
    parts.free();
    throw error;
  }
}
