// Speech to text from a recording in pieces of at most 30 seconds, or from the microphone, one line per sentence.
import { el } from "../../src/demo/page";
import { TaskDemo } from "../../src/demo/task";
import { files, microphone, plot, sample, sound } from "../../src/demo/widgets";
import { Breaths, write } from "./code.js";

const RATE = 16_000;
const PIECE = 30 * RATE;
const BLOCK = 800;
const demo = new TaskDemo("models/whisper_tiny_en/recipe.json");
const list = el<HTMLOListElement>("said");
const copy = el<HTMLButtonElement>("copy");
let shown: number[] = [];

const clock = (seconds: number): string => `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, "0")}`;

/** The loudness of each twentieth of a second. */
function levels(samples: Float32Array): number[] {
  return Array.from({ length: Math.floor(samples.length / BLOCK) }, (_, at) => {
    const part = samples.subarray(at * BLOCK, (at + 1) * BLOCK);
    return Math.sqrt(part.reduce((sum, v) => sum + v * v, 0) / BLOCK);
  });
}

function wave(values: number[]): void {
  shown = values;
  plot(el<HTMLCanvasElement>("wave"), values, Math.max(0.05, ...values), Math.max(2, values.length));
}

/** Adds a line for a piece of sound, which fills during transcription. */
async function line(samples: Float32Array, from: number, signal?: AbortSignal): Promise<string> {
  const item = document.createElement("li");
  const time = document.createElement("small");
  const text = document.createElement("span");
  time.textContent = clock(from);
  item.append(time, text);
  list.append(item);
  const onText = (more: string): void => void (text.textContent = `${text.textContent}${more}`.trimStart());
  try {
    const { value: whole, ms } = await demo.perform(signal, (how) => write(samples, { ...how, onText }));
    text.textContent = whole;
    demo.took(ms, "piece");
    demo.cost();
    copy.disabled = false;
    if (whole === "") item.remove();
    return whole;
  } catch (error) {
    if (text.textContent === "") item.remove();
    throw error;
  }
}

async function transcribe(samples: Float32Array, signal: AbortSignal): Promise<string> {
  list.replaceChildren();
  wave(levels(samples));
  const seconds = samples.length / RATE;
  el("wave-text").textContent = `${seconds.toFixed(1)} seconds of sound`;
  let words = 0;
  for (let at = 0; at < samples.length; at += PIECE) {
    const said = await line(samples.slice(at, at + PIECE), at / RATE, signal);
    words += said.split(/\s+/).filter(Boolean).length;
    demo.measure(Math.min(1, (at + PIECE) / samples.length));
  }
  return `Heard ${words} words in ${seconds.toFixed(1)} s of sound.`;
}

el("sample").addEventListener("click", () => void demo.work("Fetching the model", async (signal) => {
  return transcribe(await sound(await sample("data/austen.wav", signal), "the sentence"), signal);
}));
files("sound", "drop", (file) => void demo.work("Reading the sound", async (signal) => transcribe(await sound(file, file.name), signal)));
el("microphone").addEventListener("click", () => void demo.work("Asking for the microphone", async (signal) => {
  list.replaceChildren();
  const breaths = new Breaths();
  let [heard, last] = [0, 0];
  let loud: number[] = [];
  // sentences are transcribed one at a time, while the microphone keeps recording
  let queue: Promise<unknown> = Promise.resolve();
  let failed: unknown;
  const say = (samples: Float32Array | undefined): void => {
    const from = last;
    last = heard / RATE;
    if (samples) queue = queue.then(() => line(samples, from)).catch((error) => (failed ??= error));
  };
  const end = await microphone(signal, async (samples) => {
    if (failed) throw failed;
    heard += samples.length;
    loud = [...loud, ...levels(samples)].slice(-300);
    wave(loud);
    demo.say("Listening. The sound stays in this page.");
    say(breaths.push(samples));
  });
  say(breaths.end());
  demo.say("Writing what is left");
  await queue;
  if (failed) throw failed;
  return end;
}));
copy.addEventListener("click", () => {
  const text = [...list.querySelectorAll("span")].map((each) => each.textContent).join("\n");
  void navigator.clipboard.writeText(text).then(() => demo.say("Copied."));
});
addEventListener("themechange", () => wave(shown));
wave([]);
