// Speech detection: the sample, a sound file, or the microphone, at 16,000 samples a second.
import { ask } from "./protocol";
import { el, files, plot, refused, show, timing, work } from "./ui";

const RATE = 16_000;
const FRAME = 512;
/** Above this a frame counts as speech. */
const LEVEL = 0.5;
const canvas = el<HTMLCanvasElement>("voice");

function report(probabilities: readonly number[]): string {
  plot(canvas, probabilities, 1, Math.max(probabilities.length, 2));
  const spoken = probabilities.filter((p) => p >= LEVEL).length;
  const seconds = (n: number): string => ((n * FRAME) / RATE).toFixed(1);
  const text = `Speech in ${seconds(spoken)} of ${seconds(probabilities.length)} s.`;
  el("voice-text").textContent = text;
  return text;
}

async function detect(samples: Float32Array, signal: AbortSignal): Promise<string> {
  const done = await ask<"speech">({ kind: "speech", samples, forget: true }, { onEvent: show, signal });
  timing("speech-timing", done.timing, "frame");
  return report(done.probabilities);
}

async function file(from: File, signal: AbortSignal): Promise<string> {
  const context = new OfflineAudioContext(1, RATE, RATE);
  const sound = await context.decodeAudioData(await from.arrayBuffer()).catch(() => {
    throw new Error(`${from.name} is not a sound this browser can read`);
  });
  return detect(sound.getChannelData(0).slice(0, 60 * RATE), signal);
}

/** Listens until Stop, or until the page is hidden. */
async function microphone(signal: AbortSignal): Promise<string> {
  if (!navigator.mediaDevices) throw new Error("the microphone needs a secure page (https or localhost)");
  const stream = await navigator.mediaDevices.getUserMedia({ audio: true }).catch((error) => {
    throw refused(error, "microphone");
  });
  const context = new AudioContext({ sampleRate: RATE });
  const all: number[] = [];
  try {
    const input = new AnalyserNode(context, { fftSize: 8192 });
    context.createMediaStreamSource(stream).connect(input);
    let heard = context.currentTime;
    let forget = true;
    while (!signal.aborted && !document.hidden) {
      await new Promise((done) => setTimeout(done, 100));
      const frames = Math.min(16, Math.floor(((context.currentTime - heard) * RATE) / FRAME));
      if (frames === 0) continue;
      heard = context.currentTime;
      const ring = new Float32Array(input.fftSize);
      input.getFloatTimeDomainData(ring);
      const done = await ask<"speech">({ kind: "speech", samples: ring.slice(-frames * FRAME), forget }, { signal });
      forget = false;
      all.push(...done.probabilities);
      timing("speech-timing", done.timing, "frame");
      report(all.slice(-300));
    }
    return "The microphone is off.";
  } finally {
    for (const track of stream.getTracks()) track.stop();
    await context.close();
  }
}

export function voice(): void {
  el("speech-sample").addEventListener("click", () => void work("Fetching the sample", async (signal) => {
    const response = await fetch(new URL("data/speech.f32", document.baseURI), { signal });
    if (!response.ok) throw new Error(`the sample could not be fetched: status ${response.status}`);
    return detect(new Float32Array(await response.arrayBuffer()), signal);
  }));
  el("microphone").addEventListener("click", () => void work("Asking for the microphone", microphone));
  files("sound", "speech", (from) => void work("Reading the sound", (signal) => file(from, signal)));
}
