// Music to notes: from a tune that the page synthesises, a sound file, or the microphone; the notes are drawn, played
// and saved.
import type { Note } from "gradloom/tasks";
import { el } from "../../src/demo/page";
import { TaskDemo } from "../../src/demo/task";
import { colour, files, microphone, sound } from "../../src/demo/widgets";
import { listen } from "./code.js";

/** The sample rate of the model, and that of the page's recording and decoding widgets. */
const RATE = 22_050;
const HEARD = 16_000;
const MOST = 60;
/** The height of the octaves' names on the screen. */
const LABEL_PX = 12;
const NAMES = ["C", "C♯", "D", "D♯", "E", "F", "F♯", "G", "G♯", "A", "A♯", "B"];
/** Pitch, start and length in units of 0.3 seconds: the beginning of the "Ode to Joy". */
const TUNE = [
  [64, 0, 1], [64, 1, 1], [65, 2, 1], [67, 3, 1], [67, 4, 1], [65, 5, 1], [64, 6, 1], [62, 7, 1],
  [60, 8, 1], [60, 9, 1], [62, 10, 1], [64, 11, 1], [64, 12, 1.5], [62, 13.5, 0.5], [62, 14, 2],
  [48, 0, 4], [55, 4, 4], [48, 8, 4], [48, 12, 2], [55, 14, 2],
] as const;

const demo = new TaskDemo("models/basic_pitch/recipe.json");
const canvas = el<HTMLCanvasElement>("roll");
let shown: readonly Note[] = [];
let sounding: AudioContext | undefined;

const hertz = (pitch: number): number => 440 * 2 ** ((pitch - 69) / 12);

/** The tune as samples: plucked tones with overtones. */
function tune(): Float32Array {
  const out = new Float32Array(Math.ceil(5.2 * RATE));
  for (const [pitch, at, length] of TUNE) {
    const [from, to] = [Math.round(at * 0.3 * RATE), Math.round((at + length) * 0.3 * RATE)];
    for (let i = from; i < Math.min(to, out.length); i += 1) {
      const s = (i - from) / RATE;
      const loud = 0.2 * Math.exp(-2.5 * s) * Math.min(1, s * 200) * Math.min(1, ((to - i) / RATE) * 60);
      for (let k = 1; k <= 5; k += 1) out[i] = (out[i] as number) + (loud * Math.sin(2 * Math.PI * hertz(pitch) * k * s)) / k ** 1.6;
    }
  }
  return out;
}

/** Draws a piano roll, with a line at the playback position. */
function draw(at = -1): void {
  const pen = canvas.getContext("2d") as CanvasRenderingContext2D;
  const { width, height } = canvas;
  pen.clearRect(0, 0, width, height);
  const [low, high] = shown.length === 0 ? [48, 72] : [Math.min(...shown.map((n) => n.pitch)) - 2, Math.max(...shown.map((n) => n.pitch)) + 2];
  const seconds = Math.max(2, ...shown.map((n) => n.end));
  const row = height / (high - low + 1);
  for (let pitch = low; pitch <= high; pitch += 1) {
    const y = height - (pitch - low + 1) * row;
    pen.fillStyle = colour("--line");
    pen.globalAlpha = [1, 3, 6, 8, 10].includes(pitch % 12) ? 0.5 : 0.15;
    pen.fillRect(0, y, width, row - 1);
  }
  pen.fillStyle = colour("--accent");
  for (const { start, end, pitch, amplitude } of shown) {
    pen.globalAlpha = 0.35 + 0.65 * Math.min(1, amplitude);
    pen.fillRect((start / seconds) * width, height - (pitch - low + 1) * row, Math.max(3, ((end - start) / seconds) * width - 1), row - 1);
  }
  pen.globalAlpha = 1;
  // the canvas is displayed smaller than it is on a phone; the names of the octaves are not
  const size = Math.round((LABEL_PX * width) / (canvas.clientWidth || width));
  pen.font = `${size}px system-ui, sans-serif`;
  pen.textBaseline = "middle";
  pen.fillStyle = colour("--soft");
  for (let pitch = 12 * Math.ceil(low / 12); pitch <= high; pitch += 12) {
    const y = height - (pitch - low + 0.5) * row;
    pen.fillText(`C${pitch / 12 - 1}`, size / 3, Math.max(size, Math.min(height - size, y)));
  }
  pen.fillStyle = colour("--accent");
  if (at >= 0) pen.fillRect((at / seconds) * width, 0, 2, height);
}

async function hear(samples: Float32Array, rate: number, signal: AbortSignal): Promise<string> {
  const { value: found } = await demo.perform(signal, (how) => {
    let last = performance.now();
    const onPart = (part: number): void => {
      const now = performance.now();
      demo.took(now - last, "piece of 2 s");
      demo.measure(part);
      last = now;
    };
    return listen({ channels: [samples.subarray(0, MOST * rate)], sampleRate: rate }, { ...how, onPart });
  });
  shown = found.notes;
  draw();
  const first = shown.slice(0, 12).map(({ pitch }) => `${NAMES[pitch % 12]}${Math.floor(pitch / 12) - 1}`);
  el("roll-text").textContent = shown.length === 0 ? "No notes were heard." : `${first.join(" ")}${shown.length > 12 ? " …" : ""}`;
  const save = el<HTMLAnchorElement>("save");
  URL.revokeObjectURL(save.href);
  save.href = URL.createObjectURL(new Blob([found.file as Uint8Array<ArrayBuffer>], { type: "audio/midi" }));
  save.hidden = shown.length === 0;
  el<HTMLButtonElement>("play").disabled = shown.length === 0;
  return `Heard ${shown.length} notes in ${(samples.length / rate).toFixed(1)} s.`;
}

/** Plays the notes; a second press stops. */
async function play(): Promise<void> {
  if (sounding) return silence();
  const context = (sounding = new AudioContext());
  el("play").textContent = "Silence";
  const begin = context.currentTime + 0.1;
  for (const { start, end, pitch, amplitude } of shown) {
    const tone = new OscillatorNode(context, { type: "triangle", frequency: hertz(pitch) });
    const loud = new GainNode(context, { gain: 0 });
    loud.gain.linearRampToValueAtTime(0, begin + start);
    loud.gain.linearRampToValueAtTime(0.2 * amplitude, begin + start + 0.01);
    loud.gain.linearRampToValueAtTime(0, begin + end);
    tone.connect(loud).connect(context.destination);
    tone.start(begin + start);
    tone.stop(begin + end + 0.02);
  }
  const last = Math.max(...shown.map((n) => n.end));
  const step = (): void => {
    if (sounding !== context) return;
    const at = context.currentTime - begin;
    draw(at);
    if (at < last) requestAnimationFrame(step);
    else void silence();
  };
  step();
}

async function silence(): Promise<void> {
  const context = sounding;
  sounding = undefined;
  el("play").textContent = "Play the notes";
  draw();
  await context?.close();
}

el("sample").addEventListener("click", () => void demo.work("Listening", (signal) => hear(tune(), RATE, signal)));
el("play").addEventListener("click", () => void play());
el("microphone").addEventListener("click", () => {
  let all = new Float32Array(0);
  void demo
    .work("Asking for the microphone", (signal) => microphone(signal, async (samples) => {
      const longer = new Float32Array(Math.min(MOST * HEARD, all.length + samples.length));
      longer.set(all);
      longer.set(samples.subarray(0, longer.length - all.length), all.length);
      all = longer;
      demo.say(`Recording, ${(all.length / HEARD).toFixed(0)} s: press Stop to hear what it was. The sound stays in this page.`);
    }))
    .then(() => (all.length < HEARD / 2 ? undefined : demo.work("Listening", (signal) => hear(all, HEARD, signal))));
});
files("sound", "drop", (file) => void demo.work("Reading the sound", async (signal) => hear(await sound(file, file.name), HEARD, signal)));
addEventListener("themechange", () => draw());
draw();
