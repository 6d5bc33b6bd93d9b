// The sound of a microphone or of another stream, piece by piece.
import { UnsupportedError, ValueError } from "../errors.js";
import type { DomInstance } from "../vision/pixels.js";
import { resample } from "./sound.js";

/** Options of `listen`. */
export interface ListenOptions {
  /** Samples per second of what is given. Default: 16000, which speech models usually take. */
  sampleRate?: number;
  /** Samples per piece. Default: a tenth of a second. */
  size?: number;
  signal?: AbortSignal;
}

/** What is heard while it comes: a stream or one of its tracks, or an `<audio>` or `<video>` that plays. */
export type LiveAudioSource = DomInstance<"MediaStream"> | DomInstance<"MediaStreamTrack"> | DomInstance<"HTMLMediaElement">;

/** The reach of `resample`'s filter to each side, in samples of the lower rate, with a little to spare. */
const REACH = 18;

/** How often a track is asked whether it was stopped. */
const STOP_CHECK_MS = 250;

const gcd = (a: number, b: number): number => (b === 0 ? a : gcd(b, a % b));

/** Resamples a stream: what it gives, put together, are the samples of `resample` for the whole sound. */
export class StreamResampler {
  readonly #rates: readonly [from: number, to: number];
  /** The shortest time that is a whole number of samples at both rates, in samples of each. */
  readonly #unit: readonly [from: number, to: number];
  /** Units that the filter needs on each side. */
  readonly #margin: number;
  /** Samples from `margin` units before the next one that is given. */
  #pending: Float32Array;

  constructor(from: number, to: number) {
    if (![from, to].every((rate) => Number.isInteger(rate) && rate > 0)) throw new ValueError("E_VALUE", `resample: from ${from} to ${to} samples a second`);
    const divisor = gcd(from, to);
    this.#rates = [from, to];
    this.#unit = [from / divisor, to / divisor];
    this.#margin = from === to ? 0 : Math.ceil((REACH * Math.max(1, from / to)) / this.#unit[0]);
    // silence before the beginning
    this.#pending = new Float32Array(this.#margin * this.#unit[0]);
  }

  /** Takes the next samples, and gives those that are certain by now. */
  push(samples: Float32Array): Float32Array {
    const all = new Float32Array(this.#pending.length + samples.length);
    all.set(this.#pending);
    all.set(samples, this.#pending.length);
    const [inputs, outputs] = this.#unit;
    const units = Math.floor(all.length / inputs) - 2 * this.#margin;
    if (units <= 0) {
      this.#pending = all;
      return new Float32Array(0);
    }
    this.#pending = all.slice(units * inputs);
    const window = all.subarray(0, (units + 2 * this.#margin) * inputs);
    return resample(window, ...this.#rates).slice(this.#margin * outputs, (this.#margin + units) * outputs);
  }
}

/** The track with sound of a source; `own` if it was made here. */
async function trackOf(source: LiveAudioSource, signal: AbortSignal | undefined): Promise<{ track: MediaStreamTrack; own: boolean }> {
  const own = "currentSrc" in source;
  const stream = own ? await capture(source, signal) : source;
  const tracks = "getAudioTracks" in stream ? stream.getAudioTracks() : [stream];
  const track = tracks.find(({ kind, readyState }) => kind === "audio" && readyState === "live");
  if (track) return { track, own };
  if (own) throw new ValueError("E_VALUE", "what the element plays has no sound");
  throw new ValueError("E_VALUE", "the stream has no sound: it has no audio track that is live", { hint: "getUserMedia({ audio: true })" });
}

/** The stream of what an element plays, once it knows what that is. */
async function capture(element: HTMLMediaElement, signal: AbortSignal | undefined): Promise<MediaStream> {
  type Capturing = { captureStream?(): MediaStream; mozCaptureStream?(): MediaStream };
  const { captureStream, mozCaptureStream } = element as Capturing;
  const make = captureStream ?? mozCaptureStream;
  if (!make) {
    const hint = "give the task the element's file, or a stream that Web Audio makes of it (MediaStreamAudioDestinationNode)";
    throw new UnsupportedError("E_UNSUPPORTED", "this browser does not give the sound of an element that plays", { hint });
  }
  if (element.readyState < HTMLMediaElement.HAVE_METADATA && !element.error) {
    await new Promise<void>((done) => {
      for (const event of ["loadedmetadata", "error"]) element.addEventListener(event, () => done(), { once: true });
      signal?.addEventListener("abort", () => done(), { once: true });
    });
    signal?.throwIfAborted();
  }
  if (element.error) throw new ValueError("E_VALUE", `the element cannot play ${element.currentSrc}: ${element.error.message}`);
  try {
    return make.call(element);
  } catch (cause) {
    const hint = "it is of another origin: serve it with CORS, and set the element's crossOrigin";
    throw new ValueError("E_VALUE", `the sound of ${element.currentSrc} may not be read`, { cause, hint });
  }
}

/**
 * The sound of a stream or track (a microphone: `getUserMedia({ audio: true })`), or of an `<audio>` or `<video>` that plays,
 * as mono samples from -1 to 1, in pieces of `size`, resampled without gaps. Nothing is dropped: what is not taken yet
 * waits. Ends with the track, or when the loop is left; an abort of `signal` throws its reason. A given track is left
 * running. `E_VALUE` for streams without sound, `E_UNSUPPORTED` outside of pages. Browsers start sound only after the
 * visitor did something on the page, or while they record.
 */
export async function* listen(source: LiveAudioSource, options: ListenOptions = {}): AsyncGenerator<Float32Array> {
  const { sampleRate = 16_000, size = Math.round(sampleRate / 10), signal } = options;
  if (!(Number.isInteger(size) && size > 0)) throw new ValueError("E_VALUE", `listen: pieces of ${size} samples`);
  if (typeof AudioWorkletNode === "undefined") throw new UnsupportedError("E_UNSUPPORTED", "only a secure page (https or localhost) hears streams");
  signal?.throwIfAborted();
  const { track, own } = await trackOf(source, signal);
  const context = new AudioContext();
  let wake = (): void => {};
  const queue: Float32Array[] = [];
  const onEvent = (): void => wake();
  // a track that the page itself stops has no event for that
  const watch = setInterval(onEvent, STOP_CHECK_MS);
  track.addEventListener("ended", onEvent);
  signal?.addEventListener("abort", onEvent);
  try {
    const resampler = new StreamResampler(context.sampleRate, sampleRate);
    await context.audioWorklet.addModule(new URL("./listen-worklet.js", import.meta.url));
    const node = new AudioWorkletNode(context, "gradloom-listen", { numberOfOutputs: 0 });
    node.port.onmessage = ({ data }: MessageEvent<Float32Array>) => {
      queue.push(data);
      wake();
    };
    context.createMediaStreamSource(new MediaStream([track])).connect(node);
    // it resolves once the browser allows sound; until then there is none
    void context.resume();
    let piece = new Float32Array(size);
    let count = 0;
    for (;;) {
      signal?.throwIfAborted();
      const heard = queue.shift();
      if (!heard) {
        if (track.readyState === "ended") return;
        await new Promise<void>((done) => (wake = done));
        continue;
      }
      const samples = resampler.push(heard);
      for (let at = 0; at < samples.length; ) {
        const part = samples.subarray(at, at + size - count);
        piece.set(part, count);
        [at, count] = [at + part.length, count + part.length];
        if (count < size) continue;
        yield piece;
        signal?.throwIfAborted();
        [piece, count] = [new Float32Array(size), 0];
      }
    }
  } finally {
    clearInterval(watch);
    track.removeEventListener("ended", onEvent);
    signal?.removeEventListener("abort", onEvent);
    if (own) track.stop();
    await context.close();
  }
}
