// Tasks on sounds: speech detection and transcription.
import { logMel } from "../audio/mel.js";
import { type AudioSource, chunks, readAudio } from "../audio/sound.js";
import { hostOf } from "../device.js";
import { Tensor, tidy } from "../tensor.js";
import { Tokenizer } from "../tokenizer.js";
import { type Opened, type TaskOptions, resolveFile, fileOptionsOf, openedOf, memoize, disposeWhenSettled, weightsOf } from "./recipe.js";
import { type Segment, type SegmentOptions, SpeechSegments } from "./speech-segments.js";
import { type SpecialTokens, Whisper } from "./whisper.js";

/** The result of `vad`. */
export interface Speech {
  /** The probability of speech in each frame. */
  probabilities: Float32Array;
  frameSeconds: number;
  /** The segments with speech, in seconds. */
  segments: Segment[];
  /** The detector's state at the end of this part; pass it as `after` with the next part of the sound. */
  heard: Heard;
}

/** The state of a speech detector: that of its network, and the samples that the next frame begins with. */
export interface Heard {
  state: Float32Array;
  samples: Float32Array;
}

/** Options of `vad`. */
export interface VadOptions extends TaskOptions, SegmentOptions {
  /**
   * The state at the end of the preceding part of a stream, e.g. from a microphone. Times are relative to the current
   * part.
   */
  after?: Heard;
  /**
   * True if more parts will follow: trailing samples that do not fill a frame are then kept in `heard`. Otherwise the
   * sound ends here.
   */
  more?: boolean;
  /** Called for each frame. */
  onFrame?: (probability: number, frame: number) => void;
}

/**
 * Detects speech in a sound, or in the next part of a stream: Silero's detector, frame by frame, with its state carried
 * over.
 */
export async function vad(source: AudioSource, options: VadOptions): Promise<Speech> {
  const opened = openedOf(options);
  const { rate = 16_000, frame = 512, context = 64, state = [2, 1, 128] } = (opened.recipe.more ?? {}) as Partial<VadConfig>;
  const { after, more = false, onFrame, signal } = options;
  const { channels } = await readAudio(source, { sampleRate: rate, ...(signal && { signal }), ...(options.fetch && { fetch: options.fetch }) });
  const contextSamples = after?.samples ?? new Float32Array(context);
  const [newSamples] = channels as [Float32Array];
  const length = contextSamples.length - context + newSamples.length;
  const count = more ? Math.floor(length / frame) : Math.ceil(length / frame);
  // the last frame of the sound is padded with silence
  const samples = new Float32Array(context + Math.max(length, count * frame));
  samples.set(contextSamples);
  samples.set(newSamples, contextSamples.length);
  const probabilities = new Float32Array(count);
  const model = opened.model as NonNullable<typeof opened.model>;
  let stateTensor: Tensor = new Tensor(after?.state ?? new Float32Array(state.reduce((a, b) => a * b, 1)), state);
  let heard: Heard;
  try {
    for (let at = 0; at < count; at += 1) {
      const part = samples.slice(at * frame, at * frame + context + frame);
      const inputs = { input: new Tensor(part, [1, part.length]), state: stateTensor, sr: BigInt64Array.of(BigInt(rate)) };
      const { output, stateN } = (await model.run(inputs, signal ? { signal } : {})) as { output: Tensor; stateN: Tensor };
      stateTensor.dispose();
      stateTensor = stateN;
      probabilities[at] = await output.item();
      output.dispose();
      inputs.input.dispose();
      onFrame?.(probabilities[at] as number, at);
    }
    heard = { state: await stateTensor.data("f32"), samples: samples.slice(count * frame) };
  } finally {
    stateTensor.dispose();
  }
  const frameSeconds = frame / rate;
  return { probabilities, frameSeconds, segments: segmentsOf(probabilities, frameSeconds, length / rate, options), heard };
}

interface VadConfig {
  rate: number;
  frame: number;
  context: number;
  state: number[];
}

function segmentsOf(probabilities: Float32Array, frame: number, end: number, options: VadOptions): Speech["segments"] {
  const all = new SpeechSegments(frame, options);
  const segments = [...probabilities].flatMap((p) => all.push(p) ?? []);
  return segments.concat(all.end(end) ?? []);
}

/** The result of `transcribe`. */
export interface Transcript {
  text: string;
  /** The text of each 30-second piece of the sound, with its start and end in seconds. */
  pieces: { start: number; end: number; text: string }[];
}

interface Recognizer extends Disposable {
  whisper: Whisper;
  tokenizer: Tokenizer;
}

/** The number of samples that Whisper processes at once: 30 seconds. */
const CHUNK_SAMPLES = 480_000;
const SAMPLE_RATE = 16_000;
/** The special tokens of the English-only models. */
const ENGLISH_SPECIAL_TOKENS: SpecialTokens = { prompt: [50257, 50362], end: 50256, notFirst: [220, 50256] };

/**
 * Transcribes speech with Whisper by greedy decoding. `onText` receives the words as they come. Longer sounds are
 * processed in pieces of 30 seconds; a word across a cut may be lost.
 */
export async function transcribe(source: AudioSource, options: TaskOptions & { onText?: (text: string) => void }): Promise<Transcript> {
  const opened = openedOf(options);
  const { signal, onText, fetch } = options;
  const { whisper, tokenizer } = await recognizerOf(opened, options);
  const specialTokens = { ...ENGLISH_SPECIAL_TOKENS, ...(opened.recipe.more as Partial<SpecialTokens> | undefined) };
  const { channels } = await readAudio(source, { sampleRate: SAMPLE_RATE, ...(signal && { signal }), ...(fetch && { fetch }) });
  const samples = channels[0] as Float32Array;
  const device = await hostOf(options.device);
  const pieces: Transcript["pieces"] = [];
  for (const { start, samples: piece } of chunks(samples, { size: CHUNK_SAMPLES, pad: false })) {
    using features = tidy(() => whisper.encode(logMel(piece, { pad: CHUNK_SAMPLES, device })));
    const textStream = tokenizer.stream();
    let text = "";
    const emit = (more: string): void => {
      text += more;
      if (more !== "") onText?.(more);
    };
    for await (const token of whisper.tokens(features, specialTokens, signal)) emit(textStream.push(token));
    emit(textStream.end());
    pieces.push({ start: start / SAMPLE_RATE, end: (start + piece.length) / SAMPLE_RATE, text });
  }
  return { text: pieces.map(({ text }) => text).join(""), pieces };
}

function recognizerOf(opened: Opened, options: TaskOptions): Promise<Recognizer> {
  const load = async (): Promise<Recognizer> => {
    const { tokenizer = "tokenizer.json" } = (opened.recipe.more ?? {}) as { tokenizer?: string };
    const [file, weights] = [resolveFile(opened, tokenizer), weightsOf(opened, options)];
    const tokenizerLoading = Tokenizer.load(file, fileOptionsOf(opened, tokenizer, options));
    try {
      const [tensors, loadedTokenizer] = await Promise.all([weights, tokenizerLoading]);
      return recognizer(await Whisper.of(tensors), loadedTokenizer);
    } catch (error) {
      disposeWhenSettled(weights, tokenizerLoading);
      throw error;
    }
  };
  const recognizer = (whisper: Whisper, tokenizer: Tokenizer): Recognizer => {
    const dispose = (): void => {
      whisper[Symbol.dispose]();
      tokenizer.dispose();
    };
    return { whisper, tokenizer, [Symbol.dispose]: dispose };
  };
  return memoize(opened, "recognizer", load);
}
