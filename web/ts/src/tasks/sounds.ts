// Tasks on sounds.
import { type AudioSource, readAudio } from "../audio/sound.js";
import { Tensor } from "../tensor.js";
import { type TaskOptions, modelOf } from "./recipe.js";

/** Where somebody speaks. */
export interface Speech {
  /** The probability of speech in each frame. */
  probabilities: Float32Array;
  frameSeconds: number;
  /** Parts with speech, in seconds. */
  segments: { start: number; end: number }[];
}

/** How speech is found. */
export interface VadOptions extends TaskOptions {
  /** A part begins where the probability is above this: 0.5. It ends where it stays 0.15 below that. */
  threshold?: number;
  /** Silence that ends a part, and speech that makes one, in seconds: 0.1 and 0.25. */
  silenceSeconds?: number;
  speechSeconds?: number;
  /** Told of each frame. */
  onFrame?: (probability: number, frame: number) => void;
}

/** Where somebody speaks in a sound: Silero's detector, frame by frame, with what it heard before. */
export async function vad(source: AudioSource, options: VadOptions): Promise<Speech> {
  const opened = await modelOf("vad", options);
  const { rate = 16_000, frame = 512, context = 64, state = [2, 1, 128] } = (opened.recipe.more ?? {}) as Partial<Shapes>;
  const { onFrame, signal } = options;
  const { channels } = await readAudio(source, { sampleRate: rate, ...(signal && { signal }), ...(options.fetch && { fetch: options.fetch }) });
  const samples = channels[0] as Float32Array;
  const count = Math.ceil(samples.length / frame);
  const probabilities = new Float32Array(count);
  const model = opened.model as NonNullable<typeof opened.model>;
  let memory: Tensor = new Tensor(new Float32Array(state.reduce((a, b) => a * b, 1)), state);
  try {
    for (let at = 0; at < count; at += 1) {
      const heard = new Float32Array(context + frame);
      const from = at * frame - context;
      heard.set(samples.subarray(Math.max(0, from), from + heard.length), Math.max(0, -from));
      const inputs = { input: new Tensor(heard, [1, heard.length]), state: memory, sr: BigInt64Array.of(BigInt(rate)) };
      const { output, stateN } = (await model.run(inputs, signal ? { signal } : {})) as { output: Tensor; stateN: Tensor };
      memory.dispose();
      memory = stateN;
      probabilities[at] = await output.item();
      output.dispose();
      inputs.input.dispose();
      onFrame?.(probabilities[at] as number, at);
    }
  } finally {
    memory.dispose();
  }
  const frameSeconds = frame / rate;
  return { probabilities, frameSeconds, segments: segmentsOf(probabilities, frameSeconds, samples.length / rate, options) };
}

interface Shapes {
  rate: number;
  frame: number;
  context: number;
  state: number[];
}

function segmentsOf(probabilities: Float32Array, frame: number, end: number, options: VadOptions): Speech["segments"] {
  const { threshold = 0.5, silenceSeconds = 0.1, speechSeconds = 0.25 } = options;
  const found: Speech["segments"] = [];
  let [start, last] = [-1, -1];
  const close = (): void => {
    const part = { start: start * frame, end: Math.min(end, (last + 1) * frame) };
    if (part.end - part.start >= speechSeconds) found.push(part);
    start = -1;
  };
  probabilities.forEach((p, at) => {
    if (start < 0 && p >= threshold) start = at;
    if (start >= 0 && p >= threshold - 0.15) last = at;
    if (start >= 0 && (at - last) * frame >= silenceSeconds) close();
  });
  if (start >= 0) close();
  return found;
}
