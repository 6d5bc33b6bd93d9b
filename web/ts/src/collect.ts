// Provokes garbage collection after an allocation on the device failed, so that tensors that the program no longer
// references free their memory. Loaded only when that happens.
import type { Host } from "./device.js";
import { turn } from "./turns.js";

/**
 * The size in bytes of an allocation that is dropped immediately: it pressures the JavaScript engine into a collection,
 * which a page cannot request directly.
 */
const PRESSURE_BYTES = 1 << 26;
/** The most such allocations. */
const ROUNDS = 100;
/**
 * Once a round has freed tensors, the loop ends after this many consecutive rounds that free no more: engines collect
 * at their own pace and never everything at once.
 */
const QUIET = 24;

/** Frees the device memory of unreachable tensors, as far as the JavaScript engine collects their handles. */
export async function collected(host: Host): Promise<void> {
  const { gc } = globalThis as { gc?: () => void };
  const held = (): number => host.raw.counters().tensors;
  const before = held();
  let [least, quiet] = [before, 0];
  for (let round = 0; round < ROUNDS && (least === before || quiet < QUIET); round += 1) {
    try {
      if (gc) gc();
      else new Uint8Array(PRESSURE_BYTES)[0] = round;
    } catch {
      // the allocation itself failed: then the engine has already collected what it could
    }
    // finalisers run between tasks of the event loop
    await turn();
    await new Promise((done) => setTimeout(done));
    const now = held();
    quiet = now < least ? 0 : quiet + 1;
    least = Math.min(least, now);
  }
  await host.raw.collect();
}
