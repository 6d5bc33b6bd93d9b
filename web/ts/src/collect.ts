// Provokes garbage collection after an allocation on the device failed, so that tensors that the program no longer
// references free their memory. Loaded only when that happens.
import type { Host } from "./device.js";
import { yieldToEventLoop } from "./event-loop.js";

/**
 * The size in bytes of an allocation that is dropped immediately: it pressures the JavaScript engine into a collection,
 * which a page cannot request directly.
 */
const PRESSURE_BYTES = 1 << 26;
/** The most such allocations. */
const MAX_ROUNDS = 100;
/**
 * Once a round has freed tensors, the loop ends after this many consecutive rounds that free no more: engines collect
 * at their own pace and never everything at once.
 */
const MAX_IDLE_ROUNDS = 24;

/** Frees the device memory of unreachable tensors, as far as the JavaScript engine collects their handles. */
export async function collectUnreachable(host: Host): Promise<void> {
  const { gc } = globalThis as { gc?: () => void };
  const liveTensors = (): number => host.raw.counters().tensors;
  const initial = liveTensors();
  let [fewest, idleRounds] = [initial, 0];
  for (let round = 0; round < MAX_ROUNDS && (fewest === initial || idleRounds < MAX_IDLE_ROUNDS); round += 1) {
    try {
      if (gc) gc();
      else new Uint8Array(PRESSURE_BYTES)[0] = round;
    } catch {
      // the allocation itself failed: then the engine has already collected what it could
    }
    // finalisers run between tasks of the event loop
    await yieldToEventLoop();
    await new Promise((done) => setTimeout(done));
    const now = liveTensors();
    idleRounds = now < fewest ? 0 : idleRounds + 1;
    fewest = Math.min(fewest, now);
  }
  await host.raw.collect();
}
