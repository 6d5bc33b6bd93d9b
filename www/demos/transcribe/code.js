// Speech to text by Whisper: a recording at once, or the microphone sentence by sentence.
import { transcribe } from "gradloom/tasks";

const RATE = 16_000; // samples a second

/** Transcribes a sound; `onText` of the options receives the words as they come. */
export async function write(samples, options) {
  const sound = { channels: [samples], sampleRate: RATE };
  const { text } = await transcribe(sound, { model: "models/whisper_tiny_en/recipe.json", ...options });
  return text.trim();
}

/** Splits incoming sound at pauses: half a second of silence, or after 12 seconds. */
export class Breaths {
  heard = [];
  length = 0;
  quiet = 0;
  loudest = 0;

  /** Takes new samples, and returns those of a sentence once it is complete. */
  push(samples) {
    const loud = Math.sqrt(samples.reduce((sum, v) => sum + v * v, 0) / samples.length);
    this.loudest = Math.max(this.loudest, loud);
    this.quiet = loud < Math.max(0.004, this.loudest / 8) ? this.quiet + samples.length : 0;
    this.heard.push(samples);
    this.length += samples.length;
    if ((this.quiet > RATE / 2 && this.length > 1.5 * RATE) || this.length > 12 * RATE) return this.end();
    return undefined;
  }

  /** Returns the remaining samples; undefined if nobody spoke. */
  end() {
    const all = Float32Array.from(this.heard.flatMap((each) => [...each]));
    const spoken = this.loudest > 0.01 && this.length > RATE / 4;
    [this.heard, this.length, this.quiet, this.loudest] = [[], 0, 0, 0];
    return spoken ? all : undefined;
  }
}
