// Speech to text from a recording in pieces of at most 30 seconds, or from the microphone, one line per sentence.
import { el } from "../../src/demo/page";
import { TaskDemo } from "../../src/demo/task";
import { files, plot, sample, sound, withMicrophone } from "../../src/demo/widgets";
import { hear, write } from "./code.js";

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

/** Adds a line for the sound from a time on, and gives the element for its text. */
function newLine(from: number): HTMLElement {
  const item = document.createElement("li");
  const time = document.createElement("small");
  const text = document.createElement("span");
  time.textContent = clock(from);
  item.append(time, text);
  list.append(item);
  return text;
}

/** Adds a line for a piece of sound, which fills during transcription. */
async function line(samples: Float32Array, from: number, signal?: AbortSignal): Promise<string> {
  const text = newLine(from);
  const onText = (more: string): void => void (text.textContent = `${text.textContent}${more}`.trimStart());
  try {
    const { value: whole, ms } = await demo.perform(signal, (how) => write(samples, { ...how, onText }));
    text.textContent = whole;
    demo.took(ms, "piece");
    demo.cost();
    copy.disabled = false;
    return whole;
  } finally {
    if (text.textContent === "") text.parentElement?.remove();
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
el("microphone").addEventListener("click", () => void demo.work("Asking for the microphone", (signal) => {
  list.replaceChildren();
  let loud: number[] = [];
  const onSound = (samples: Float32Array): void => {
    loud = [...loud, ...levels(samples)].slice(-300);
    wave(loud);
    demo.say("Listening. The sound stays in this page.");
  };
  let growing: HTMLElement | undefined;
  let begun = 0;
  const show = ({ text, start, final }: { text: string; start: number; final: boolean }): void => {
    if (!growing) [growing, begun] = [newLine(start), performance.now()];
    growing.textContent = text;
    if (!final) return;
    growing = undefined;
    demo.took(performance.now() - begun, "sentence");
    demo.cost();
    copy.disabled = false;
  };
  return withMicrophone(signal, async (stream) => {
    // the end of the stream rather than the signal ends it, so that the sentence that was begun is written
    const stop = (): void => {
      for (const track of stream.getTracks()) track.stop();
      demo.say("Writing what is left");
    };
    const hidden = (): void => void (document.hidden && stop());
    signal.addEventListener("abort", stop);
    document.addEventListener("visibilitychange", hidden);
    try {
      await demo.perform(undefined, (how) => hear(stream, show, { ...how, onSound }));
    } finally {
      document.removeEventListener("visibilitychange", hidden);
    }
  });
}));
copy.addEventListener("click", () => {
  const text = [...list.querySelectorAll("span")].map((each) => each.textContent).join("\n");
  void navigator.clipboard.writeText(text).then(() => demo.say("Copied."));
});
addEventListener("themechange", () => wave(shown));
wave([]);
