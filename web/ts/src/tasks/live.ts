// Tasks on sound that is heard while it comes: of a microphone, another stream, or an element that plays.
import { type LiveAudioSource, listen } from "../audio/listen.js";
import type { LiveSpeech, LiveTranscript, TranscribeLiveOptions, VadLiveOptions } from "../tasks.js";
import { runTask } from "./dispatch.js";
import type { TaskOptions } from "./recipe.js";
import type { Heard, Speech, Transcript } from "./sounds.js";
import { type Segment, SpeechSegments } from "./speech-segments.js";

const SAMPLE_RATE = 16_000;
/** Sounds shorter than this are no sentence, in seconds; the sound that a pause ends has to be longer. */
const SHORTEST = 0.25;
const SHORTEST_BEFORE_PAUSE = 1.5;

const sound = (samples: Float32Array): unknown => ({ channels: [samples], sampleRate: SAMPLE_RATE });

/** Values of one asynchronous producer, in order, for one consumer. */
class Feed<T> {
  readonly #values: T[] = [];
  #wake = (): void => {};
  #ended = false;
  #error: unknown;

  push(value: T): void {
    this.#values.push(value);
    this.#wake();
  }

  /** Ends the feed after what it has, with what a producer that failed threw. */
  end(...error: unknown[]): void {
    if (error.length > 0) this.#error = { thrown: error[0] };
    this.#ended = true;
    this.#wake();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T> {
    for (;;) {
      while (this.#values.length > 0) yield this.#values.shift() as T;
      if (this.#error) throw (this.#error as { thrown: unknown }).thrown;
      if (this.#ended) return;
      await new Promise<void>((done) => (this.#wake = done));
    }
  }
}

/** Aborts with another signal, or when `stop` is called. */
function stoppable(outer: AbortSignal | undefined): { signal: AbortSignal; stop: () => void } {
  const controller = new AbortController();
  const follow = (): void => controller.abort(outer?.reason);
  if (outer?.aborted) follow();
  outer?.addEventListener("abort", follow);
  const stop = (): void => {
    outer?.removeEventListener("abort", follow);
    controller.abort();
  };
  return { signal: controller.signal, stop };
}

/** Where somebody speaks: piece by piece, with the segments that ended in it. */
export async function* vadLive(source: LiveAudioSource, { pieceSeconds = 0.128, ...options }: VadLiveOptions): AsyncGenerator<LiveSpeech> {
  const { signal } = options;
  const size = Math.max(1, Math.round(pieceSeconds * SAMPLE_RATE));
  let after: Heard | undefined;
  let segments: SpeechSegments | undefined;
  let time = 0;
  for await (const samples of listen(source, { sampleRate: SAMPLE_RATE, size, ...(signal && { signal }) })) {
    const how = { ...options, more: true, ...(after && { after }) };
    const { probabilities, frameSeconds, heard } = (await runTask("vad", "vad", [sound(samples)], how as TaskOptions)) as Speech;
    after = heard;
    segments ??= new SpeechSegments(frameSeconds, options);
    const ended = [...probabilities].flatMap((p) => segments?.push(p) ?? []);
    const start = time;
    time += probabilities.length * frameSeconds;
    yield { start, end: time, probabilities, speaking: segments.speaking, segments: ended };
  }
  const last = segments?.end(time);
  if (last) yield { start: time, end: time, probabilities: new Float32Array(0), speaking: false, segments: [last] };
}

/** The sound between two pauses. */
interface Sentence extends Segment {
  samples: Float32Array;
}

/** Cuts a sound at pauses, by its loudness or by what a detector of speech says. */
class Sentences {
  #pieces: Float32Array[] = [];
  #count = 0;
  #quiet = 0;
  #loudest = 0;
  #spoken = false;
  #begin = 0;

  constructor(
    readonly pauseSeconds: number,
    readonly longestSeconds: number,
  ) {}

  /** Takes the next piece, and gives the sentence that it ends. `isSpeech` undefined decides by loudness. */
  push(samples: Float32Array, isSpeech: boolean | undefined): Sentence | undefined {
    const loudness = Math.sqrt(samples.reduce((sum, v) => sum + v * v, 0) / samples.length);
    this.#loudest = Math.max(this.#loudest, loudness);
    const heard = isSpeech ?? loudness >= Math.max(0.004, this.#loudest / 8);
    this.#spoken ||= isSpeech ?? this.#loudest > 0.01;
    this.#quiet = heard ? 0 : this.#quiet + samples.length;
    this.#pieces.push(samples);
    this.#count += samples.length;
    const paused = this.#quiet >= this.pauseSeconds * SAMPLE_RATE && this.#count > SHORTEST_BEFORE_PAUSE * SAMPLE_RATE;
    return paused || this.#count >= this.longestSeconds * SAMPLE_RATE ? this.end() : undefined;
  }

  /** What is left; undefined if nobody spoke. */
  end(): Sentence | undefined {
    const samples = new Float32Array(this.#count);
    let at = 0;
    for (const piece of this.#pieces) {
      samples.set(piece, at);
      at += piece.length;
    }
    const [start, end] = [this.#begin, this.#begin + samples.length];
    const isSentence = this.#spoken && samples.length > SHORTEST * SAMPLE_RATE;
    [this.#pieces, this.#count, this.#quiet, this.#loudest, this.#spoken, this.#begin] = [[], 0, 0, 0, false, end];
    return isSentence ? { start: start / SAMPLE_RATE, end: end / SAMPLE_RATE, samples } : undefined;
  }
}

/** The sentences of a sound, while it comes. They wait until they are taken; listening goes on meanwhile. */
function sentencesOf(source: LiveAudioSource, options: TranscribeLiveOptions, signal: AbortSignal): Feed<Sentence> {
  const { pauseSeconds = 0.5, longestSeconds = 28, detector, onSound, device, fetch } = options;
  const feed = new Feed<Sentence>();
  const sentences = new Sentences(pauseSeconds, Math.min(30, longestSeconds));
  const how = { signal, model: detector, ...(device !== undefined && { device }), ...(fetch && { fetch }) };
  let after: Heard | undefined;
  const isSpeech = async (samples: Float32Array): Promise<boolean | undefined> => {
    if (detector === undefined) return undefined;
    const { probabilities, heard } = (await runTask("vad", "vad", [sound(samples)], { ...how, more: true, ...(after && { after }) } as TaskOptions)) as Speech;
    after = heard;
    return probabilities.some((p) => p >= 0.5);
  };
  const hear = async (): Promise<void> => {
    for await (const samples of listen(source, { sampleRate: SAMPLE_RATE, signal })) {
      onSound?.(samples);
      const sentence = sentences.push(samples, await isSpeech(samples));
      if (sentence) feed.push(sentence);
    }
    const rest = sentences.end();
    if (rest) feed.push(rest);
  };
  hear().then(() => feed.end(), (error) => feed.end(error));
  return feed;
}

/** What is said, sentence by sentence; of each first the words so far, and at the end the whole. */
export async function* transcribeLive(source: LiveAudioSource, options: TranscribeLiveOptions): AsyncGenerator<LiveTranscript> {
  const { pauseSeconds: _, longestSeconds: __, detector: ___, onSound: ____, signal: outer, ...taskOptions } = options;
  const { signal, stop } = stoppable(outer);
  try {
    for await (const { start, end, samples } of sentencesOf(source, options, signal)) {
      const parts = new Feed<LiveTranscript>();
      let text = "";
      const onText = (more: string): void => {
        text += more;
        if (text.trim() !== "") parts.push({ text: text.trim(), start, end, final: false });
      };
      const whole = runTask("transcribe", "transcribe", [sound(samples)], { ...taskOptions, onText, signal } as TaskOptions) as Promise<Transcript>;
      whole.then(({ text: all }) => {
        if (all.trim() !== "") parts.push({ text: all.trim(), start, end, final: true });
        parts.end();
      }, (error) => parts.end(error));
      yield* parts;
    }
  } finally {
    stop();
  }
}
