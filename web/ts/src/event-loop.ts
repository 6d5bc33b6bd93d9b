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

/** A file in the module's memory, as far as it has been written. */
export class WasmFile {
  readonly raw: InstanceType<Engine["api"]["FileBuffer"]>;
  readonly #slices = new TimeSlices();
  #freed = false;

  constructor(
    engine: Engine,
    readonly size: number,
  ) {
    this.raw = guard(() => new engine.api.FileBuffer(size));
  }

  /** Writes the bytes from position `at` on, yielding to the event loop between portions. */
  async write(at: number, bytes: Uint8Array, signal?: AbortSignal): Promise<void> {
    // after a failure, other reads may still end; nobody waits for them
    for (let from = 0; from < bytes.length && !this.#freed; from += PORTION_BYTES) {
      guard(() => this.raw.write(at + from, bytes.subarray(from, from + PORTION_BYTES)));
      await this.#slices.yieldIfDue(signal);
    }
  }

  free(): void {
    this.#freed = true;
    this.raw.free();
  }
}

/** Makes a file in the module's memory, which `fill` writes. */
export async function wasmFile(engine: Engine, size: number, fill: (file: WasmFile) => Promise<void>): Promise<WasmFile> {
  const file = new WasmFile(engine, size);
  try {
    await fill(file);
    return file;
  } catch (error) {
    file.free();
    throw error;
  }
}
