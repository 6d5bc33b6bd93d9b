// Detects speech in a stream of sound.
import { vad } from "gradloom/tasks";

const RATE = 16_000; // samples a second

export class Listener {
  /** @param {Partial<import("gradloom/tasks").VadOptions>} options */
  constructor({ model = "models/silero_vad_op18_ifless/recipe.json", ...options } = {}) {
    this.options = { model, ...options };
  }

  /** Takes the next part; gives the probability of speech per 32 ms, also to `onFrame`. */
  async hear(samples, options = {}) {
    const sound = { channels: [samples], sampleRate: RATE };
    const after = this.heard && { after: this.heard };
    const { probabilities, heard } = await vad(sound, { ...this.options, ...options, more: true, ...after });
    this.heard = heard; // what the detector knows so far
    return [...probabilities];
  }
}
