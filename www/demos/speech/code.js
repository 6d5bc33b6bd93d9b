// Hears whether anyone speaks, as the sound comes in.
import { Tensor } from "gradloom";
import { open } from "gradloom/tasks";

const FRAME = 512; // samples: 32 ms
const CONTEXT = 64; // of those before, which the detector sees again

export class Listener {
  constructor(model) {
    this.model = model;
    this.forget();
  }

  static async open(recipe = "models/silero_vad_op18_ifless/recipe.json", options = {}) {
    return new Listener((await open(recipe, options)).model);
  }

  forget() {
    this.state?.dispose();
    this.state = new Tensor(new Float32Array(256), [2, 1, 128]);
    this.context = new Float32Array(CONTEXT);
    this.rest = new Float32Array(0);
  }

  /** Yields the probability of speech in each frame that `samples` (16,000 a second) complete. */
  async *hear(samples, signal) {
    const all = Float32Array.from([...this.rest, ...samples]);
    let at = 0;
    for (; at + FRAME <= all.length; at += FRAME) {
      const input = Float32Array.from([...this.context, ...all.subarray(at, at + FRAME)]);
      const inputs = {
        input: new Tensor(input, [1, CONTEXT + FRAME]),
        state: this.state,
        sr: new Tensor(BigInt64Array.of(16000n), []),
      };
      // the state stays in the worker that the model is in, and goes from run to run there
      const { output, stateN } = await this.model.run(inputs, { stay: true, ...(signal && { signal }) });
      [this.state, this.context] = [stateN, input.slice(-CONTEXT)];
      yield await output.item();
      for (const t of [output, ...Object.values(inputs)]) t.dispose();
    }
    this.rest = all.slice(at);
  }
}
