// What to do when memory is refused: let forgotten tensors go. Loaded when that happens.
import type { Host } from "./device.js";
import { turn } from "./turns.js";

/** Memory that is taken and dropped at once, so that the engine looks for what nobody uses: it cannot be told to. */
const PRESSURE_BYTES = 1 << 26;
/** So often at most. */
const ROUNDS = 100;
/** After something was found it goes on until nothing more was so often: engines look in their own time, and never for all at once. */
const QUIET = 24;

/** Frees what tensors held that nobody can reach any more, as far as the JavaScript engine finds them. */
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
      // there is not even so much: the engine has looked already
    }
    // finalisers run between turns
    await turn();
    await new Promise((done) => setTimeout(done));
    const now = held();
    quiet = now < least ? 0 : quiet + 1;
    least = Math.min(least, now);
  }
  await host.raw.collect();
}
