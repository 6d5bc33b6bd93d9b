// What to do when memory is refused: let forgotten tensors go. Loaded when that happens.
import type { Host } from "./device.js";
import { turn } from "./turns.js";

/** Memory that is taken and dropped at once, so that the engine looks for what nobody uses: it cannot be told to. */
const PRESSURE_BYTES = 1 << 26;
const ROUNDS = 4;

/** Frees what tensors held that nobody can reach any more, as far as the JavaScript engine finds them. */
export async function collected(host: Host): Promise<void> {
  const { gc } = globalThis as { gc?: () => void };
  for (let round = 0; round < ROUNDS; round += 1) {
    try {
      if (gc) gc();
      else new Uint8Array(PRESSURE_BYTES)[0] = round;
    } catch {
      // there is not even so much: the engine has looked already
    }
    // finalisers run between turns
    await turn();
    await new Promise((done) => setTimeout(done));
  }
  await host.raw.collect();
}
