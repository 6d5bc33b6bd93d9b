// Speech detection: the sample, a sound file, or the microphone, at 16,000 samples a second.
import { el } from "../../src/demo/page";
import { TaskDemo } from "../../src/demo/task";
import { files, microphone, plot, sample, sound } from "../../src/demo/widgets";
import { Listener } from "./code.js";

const RATE = 16_000;
const FRAME = 512;
/** Above this a frame counts as speech. */
const LEVEL = 0.5;
const demo = new TaskDemo("models/silero_vad_op18_ifless/recipe.json");
const canvas = el<HTMLCanvasElement>("voice");
let shown: readonly number[] = [];

function report(probabilities: readonly number[]): string {
  shown = probabilities;
  plot(canvas, probabilities, 1, Math.max(probabilities.length, 2));
  const spoken = probabilities.filter((p) => p >= LEVEL).length;
  const seconds = (n: number): string => ((n * FRAME) / RATE).toFixed(1);
  const text = `Speech in ${seconds(spoken)} of ${seconds(probabilities.length)} s.`;
  el("voice-text").textContent = text;
  return text;
}

/** Hears a sound, or the next part of one by the listener of those before. */
async function hear(samples: Float32Array, signal: AbortSignal, listener?: Listener): Promise<number[]> {
  const { value } = await demo.perform(signal, async ({ model }) => {
    const own = listener ?? new Listener();
    const steps = Math.floor(samples.length / FRAME);
    let last = performance.now();
    const onFrame = (_: number, frame: number): void => {
      const now = performance.now();
      demo.took(now - last, "frame");
      if (!listener) demo.measure((frame + 1) / steps);
      last = now;
    };
    return own.hear(samples, { model, signal, onFrame });
  });
  return value;
}

el("sample").addEventListener("click", () => void demo.work("Fetching the sample", async (signal) => {
  const samples = new Float32Array(await (await sample("data/speech.f32", signal)).arrayBuffer());
  return report(await hear(samples, signal));
}));
el("microphone").addEventListener("click", () => void demo.work("Asking for the microphone", async (signal) => {
  let all: number[] = [];
  const listener = new Listener();
  return microphone(signal, async (samples) => {
    all = [...all, ...(await hear(samples, signal, listener))].slice(-300);
    demo.say("Listening. The sound stays in this page.");
    demo.cost();
    report(all);
  });
}));
files("sound", "drop", (file) => void demo.work("Reading the sound", async (signal) => {
  const samples = await sound(file, file.name);
  return report(await hear(samples.slice(0, 60 * RATE), signal));
}));
addEventListener("themechange", () => report(shown));
plot(canvas, [], 1, 2);
