// Speech detection: the sample, a sound file, or the microphone, at 16,000 samples a second.
import { Demo, el } from "../../src/demo/page";
import { files, microphone, plot, sample, sound } from "../../src/demo/widgets";
import type { Api } from "./worker";

const RATE = 16_000;
const FRAME = 512;
/** Above this a frame counts as speech. */
const LEVEL = 0.5;
const demo = new Demo<Api>(new Worker(new URL("./worker.ts", import.meta.url), { type: "module" }));
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

async function hear(samples: Float32Array, forget: boolean, signal: AbortSignal): Promise<number[]> {
  return demo.ask("hear", { samples, forget }, {
    signal,
    onEvent: (event) => {
      if (!("step" in event)) return;
      demo.took(event.ms ?? 0, "frame");
      if (forget) demo.measure(event.step / event.steps);
    },
  });
}

el("sample").addEventListener("click", () => void demo.work("Fetching the sample", async (signal) => {
  const samples = new Float32Array(await (await sample("data/speech.f32", signal)).arrayBuffer());
  return report(await hear(samples, true, signal));
}));
el("microphone").addEventListener("click", () => void demo.work("Asking for the microphone", async (signal) => {
  let all: number[] = [];
  let forget = true;
  return microphone(signal, async (samples) => {
    all = [...all, ...(await hear(samples, forget, signal))].slice(-300);
    forget = false;
    demo.say("Listening. The sound stays in this page.");
    demo.cost();
    report(all);
  });
}));
files("sound", "drop", (file) => void demo.work("Reading the sound", async (signal) => {
  const samples = await sound(file, file.name);
  return report(await hear(samples.slice(0, 60 * RATE), true, signal));
}));
addEventListener("themechange", () => report(shown));
plot(canvas, [], 1, 2);
