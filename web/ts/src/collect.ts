// What to do when memory is refused: let forgotten tensors go. Loaded when that happens.
import type { Host } from "./device.js";
import { turn } from "./turns.js";

/** Memory that is taken and dropped at once, so that the engine looks for what nobody uses: it cannot be told to. */
const PRESSURE_BYTES = 1 << 26;
/** So often at most, and once more after something was found: engines look in their own time. */
const ROUNDS = 16;

/** Frees what tensors held that nobody can reach any more, as far as the JavaScript engine finds them. */
export async function collected(host: Host): Promise<void> {
  const { gc } = globalThis as { gc?: () => void };
  const held = (): number => host.raw.counters().tensors as number;
  const before = held();
  let found = 0;
  for (let round = 0; round < ROUNDS && found < 2; round += 1) {
    try {
      if (gc) gc();
      else new Uint8Array(PRESSURE_BYTES)[0] = round;
    } catch {
      // there is not even so much: the engine has looked already
    }
    // finalisers run between turns
    await turn();
    await new Promise((done) => setTimeout(done));
    if (held() < before) found += 1;
  }
  await host.raw.collect();
}
