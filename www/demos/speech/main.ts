// Speech detection in the sample, a sound file, or the microphone, at 16,000 samples per second.
import { el } from "../../src/demo/page";
import { TaskDemo } from "../../src/demo/task";
import { colour, files, plot, sample, sound, withMicrophone } from "../../src/demo/widgets";
import { detect, kindsOf, listenTo } from "./code.js";

const RATE = 16_000;
const FRAME = 512;
/** The probability above which a frame counts as speech. */
const LEVEL = 0.5;
const demo = new TaskDemo("models/silero_vad_op18_ifless/recipe.json");
const canvas = el<HTMLCanvasElement>("voice");
let shown: readonly number[] = [];
/** The classes of the second chart, from top to bottom. */
const KINDS = ["speech", "singing", "music"];
let events: readonly { start: number; end: number; label: string | undefined; score: number }[] = [];
/** The displayed sound, kept for playback. */
let sounding: Float32Array | undefined;

function report(probabilities: readonly number[]): string {
  shown = probabilities;
  plot(canvas, probabilities, 1, Math.max(probabilities.length, 2));
  const spoken = probabilities.filter((p) => p >= LEVEL).length;
  const seconds = (n: number): string => ((n * FRAME) / RATE).toFixed(1);
  const text = `Speech in ${seconds(spoken)} of ${seconds(probabilities.length)} s.`;
  el("voice-text").textContent = text;
  return text;
}

/** Shows where each class is heard in a sound of so many seconds, a row for each. */
function drawKinds(seconds: number): void {
  const rows = KINDS.map((kind) => {
    const own = events.filter(({ label }) => label === kind);
    const row = Object.assign(document.createElement("li"), { textContent: kind });
    const track = document.createElement("span");
    const bands = own.map(({ start, end }) => {
      const band = document.createElement("i");
      band.style.left = `${(100 * start) / seconds}%`;
      band.style.width = `${(100 * (end - start)) / seconds}%`;
      return band;
    });
    track.append(...bands);
    row.append(track);
    return row;
  });
  el("kinds").replaceChildren(...rows);
}

/** Shows what kinds of sound are heard in the whole. */
async function showKinds(samples: Float32Array, signal: AbortSignal): Promise<void> {
  ({ value: events } = await demo.perform(signal, (how) => kindsOf(samples, { ...how, signal }), "models/firered_aed/recipe.json"));
  drawKinds(samples.length / RATE);
  const told = events.map(({ label, start, end }) => `${label} from ${start.toFixed(1)} to ${end.toFixed(1)} s`);
  el("kinds-text").textContent = told.length > 0 ? `${told.slice(0, 6).join(", ")}${told.length > 6 ? " …" : ""}.` : "Neither speech nor singing nor music.";
}

/** Plays the sound, with a line on the chart at the playback position. */
async function play(samples: Float32Array, signal: AbortSignal): Promise<void> {
  const context = new AudioContext();
  try {
    const buffer = context.createBuffer(1, samples.length, RATE);
    buffer.copyToChannel(new Float32Array(samples), 0);
    const player = new AudioBufferSourceNode(context, { buffer });
    player.connect(context.destination);
    await context.resume();
    const start = context.currentTime;
    player.start(start);
    for (let part = 0; part < 1 && !signal.aborted; part = (context.currentTime - start) / buffer.duration) {
      report(shown);
      const pen = canvas.getContext("2d") as CanvasRenderingContext2D;
      pen.fillStyle = colour("--ink");
      pen.fillRect(Math.round(part * canvas.width) - 1, 0, 3, canvas.height);
      await new Promise((done) => requestAnimationFrame(done));
    }
  } finally {
    await context.close();
    report(shown);
  }
}

/** Analyses the sound of a file and keeps it for playback. */
async function whole(samples: Float32Array, signal: AbortSignal): Promise<string> {
  const text = report(await hear(samples, signal));
  await showKinds(samples, signal);
  sounding = samples;
  return text;
}

/** Enables playback if there is the sound of a file. */
const offer = (): void => void (el<HTMLButtonElement>("play").disabled = sounding === undefined);

/** Analyses a sound. */
async function hear(samples: Float32Array, signal: AbortSignal): Promise<number[]> {
  const { value } = await demo.perform(signal, async (how) => {
    const steps = Math.ceil(samples.length / FRAME);
    let last = performance.now();
    const onFrame = (_: number, frame: number): void => {
      const now = performance.now();
      demo.took(now - last, "frame");
      demo.measure((frame + 1) / steps);
      last = now;
    };
    return detect(samples, { ...how, signal, onFrame });
  });
  return value;
}

el("sample").addEventListener("click", () => void demo.work("Fetching the sample", async (signal) => {
  const samples = new Float32Array(await (await sample("data/speech.f32", signal)).arrayBuffer());
  return whole(samples, signal);
}).then(offer));
el("microphone").addEventListener("click", () => void demo.work("Asking for the microphone", async (signal) => {
  let all: number[] = [];
  sounding = undefined;
  events = [];
  drawKinds(1);
  el("kinds-text").textContent = "";
  return withMicrophone(signal, async (stream) => {
    const stop = (): void => stream.getTracks().forEach((track) => track.stop());
    const hidden = (): void => void (document.hidden && stop());
    const show = ({ probabilities }: { probabilities: Float32Array }): void => {
      all = [...all, ...probabilities].slice(-300);
      demo.say("Listening. The sound stays in this page.");
      demo.cost();
      report(all);
    };
    document.addEventListener("visibilitychange", hidden);
    try {
      await demo.perform(signal, (how) => listenTo(stream, show, { ...how, signal }));
    } finally {
      document.removeEventListener("visibilitychange", hidden);
    }
  });
}).then(offer));
files("sound", "drop", (file) => void demo.work("Reading the sound", async (signal) => {
  const samples = await sound(file, file.name);
  return whole(samples.slice(0, 60 * RATE), signal);
}).then(offer));
el("play").addEventListener("click", () => {
  const samples = sounding;
  if (samples) void demo.work("Playing.", async (signal) => play(samples, signal).then(() => report(shown)));
});
addEventListener("themechange", () => report(shown));
plot(canvas, [], 1, 2);
drawKinds(1);
