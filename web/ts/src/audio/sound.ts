// Reads sounds from files, URLs or audio buffers as samples at the rate that a model expects, and resamples and splits
// them.
import { loadChunk } from "../chunks.js";
import type { Device } from "../device.js";
import { FormatError, UnsupportedError, ValueError } from "../errors.js";
import { type FetchOptions, type FileSource, checkSource, readSource } from "../progress.js";
import { Tensor } from "../tensor.js";
import { checkSound } from "./check.js";
import { type Sound, isWav, readWav } from "./wav.js";

/** The part of an `AudioBuffer` that is used here. */
export interface AudioBufferLike {
  readonly numberOfChannels: number;
  readonly sampleRate: number;
  getChannelData(channel: number): Float32Array;
}

/** The source of a sound: a file (WAV everywhere, in pages any format that the browser decodes), or samples. */
export type AudioSource = FileSource | AudioBufferLike | Sound;

/** Options for reading a sound. */
export interface AudioOptions extends FetchOptions {
  /** Sample rate of the result in Hz; default: that of the source. Speech models usually take 16000. */
  sampleRate?: number;
  /** Mixes all channels to their mean. Default: true. */
  mono?: boolean;
  device?: Device;
}

/**
 * Reads a sound as an f32 tensor of samples from -1 to 1: `[samples]`, or `[channels, samples]` with `mono: false`.
 * Fails with `E_FORMAT` for a file that is no sound, `E_UNSUPPORTED` where the host cannot decode the format (Node
 * reads only WAV), `E_FETCH` and `E_VALUE`.
 */
export async function fromAudio(source: AudioSource, options: AudioOptions = {}): Promise<Tensor> {
  checkSound(source);
  const { channels } = await readAudio(source, options);
  const length = channels[0]?.length ?? 0;
  const tensorOptions = options.device ? { device: options.device } : {};
  if (options.mono ?? true) return new Tensor(channels[0] as Float32Array, [length], tensorOptions);
  const all = new Float32Array(channels.length * length);
  channels.forEach((samples, c) => all.set(samples, c * length));
  return new Tensor(all, [channels.length, length], tensorOptions);
}

/** Reads a sound as arrays of samples, one per channel. */
export async function readAudio(source: AudioSource, options: AudioOptions = {}): Promise<Sound> {
  let sound = await decodeSource(source, options);
  if (sound.channels.length === 0) throw new ValueError("E_VALUE", "a sound needs a channel");
  if (options.mono ?? true) sound = { ...sound, channels: [mixToMono(sound.channels)] };
  const { sampleRate = sound.sampleRate } = options;
  if (sampleRate === sound.sampleRate) return sound;
  return { sampleRate, channels: sound.channels.map((samples) => resample(samples, sound.sampleRate, sampleRate)) };
}

async function decodeSource(source: AudioSource, options: AudioOptions): Promise<Sound> {
  const { channels, sampleRate, numberOfChannels } = (source ?? {}) as Partial<Sound & AudioBufferLike>;
  if (typeof numberOfChannels === "number" && typeof sampleRate === "number") {
    const buffer = source as AudioBufferLike;
    return { sampleRate, channels: Array.from({ length: numberOfChannels }, (_, c) => buffer.getChannelData(c)) };
  }
  if (Array.isArray(channels) && typeof sampleRate === "number") {
    if (channels.every((each) => each instanceof Float32Array && each.length === channels[0]?.length)) return { channels, sampleRate };
    throw new ValueError("E_VALUE", "the channels of a sound are Float32Arrays of one length");
  }
  checkSource(source as FileSource);
  const bytes = await readSource(source as FileSource, options);
  const name = typeof source === "string" || source instanceof URL ? String(source) : "the file";
  // a browser may support a WAV encoding that is not read here
  const decode = typeof OfflineAudioContext === "undefined" ? pageDecoder.decode : decodeSound;
  if (isWav(bytes) && !decode) return readWav(bytes);
  if (isWav(bytes)) {
    try {
      return readWav(bytes);
    } catch (error) {
      if (!(error instanceof UnsupportedError)) throw error;
    }
  }
  const { detectFormat } = await loadChunk("sniff");
  const format = detectFormat(bytes);
  const soundFormats = ["ogg", "flac", "mp3", "mp4"];
  const formatError = (cause?: unknown): FormatError => {
    const what = format ? `${name} is ${format.what}${soundFormats.includes(format.id) ? "" : ", not a sound"}` : `${name} is no sound that is known here`;
    return new FormatError("E_FORMAT", what, { ...(cause !== undefined && { cause }), ...(format?.hint && { hint: format.hint }) });
  };
  if (format && !soundFormats.includes(format.id)) throw formatError();
  if (!decode) {
    const hint = "convert it to WAV, or give { channels, sampleRate }";
    throw new UnsupportedError("E_UNSUPPORTED", `${format ? `${name} is ${format.what}; ` : ""}only WAV files are decoded here`, { hint });
  }
  // Decoding also resamples to the requested rate, if any. The bytes are copied because the decoder detaches them.
  const sound = await decode(new Uint8Array(bytes), options.sampleRate ?? 44_100).catch((cause: Error) => {
    throw formatError(cause);
  });
  options.signal?.throwIfAborted();
  return decodeSource(sound, options);
}

/** In a worker, where browsers offer no audio decoder: a function of the page that decodes for it. */
export const pageDecoder: { decode?: (bytes: Uint8Array<ArrayBuffer>, sampleRate: number) => Promise<Sound> } = {};

/** Decodes a sound with the browser's decoder at a sample rate. The bytes are detached. */
export function decodeSound(bytes: Uint8Array<ArrayBuffer>, sampleRate: number): Promise<AudioBufferLike> {
  return new OfflineAudioContext(1, 1, sampleRate).decodeAudioData(bytes.buffer);
}

function mixToMono(channels: readonly Float32Array[]): Float32Array {
  const [first] = channels as [Float32Array];
  if (channels.length === 1) return first;
  const out = new Float32Array(first.length);
  for (let i = 0; i < out.length; i += 1) {
    let sum = 0;
    for (const samples of channels) sum += samples[i] as number;
    out[i] = sum / channels.length;
  }
  return out;
}

/**
 * Zero crossings of the sinc filter on each side, and the start of its cut-off as a fraction of the lower Nyquist
 * frequency.
 */
const CROSSINGS = 16;
const ROLLOFF = 0.95;

/**
 * Resamples with a band-limited filter (a sinc with a Hann window, 16 zero crossings), so that frequencies above the
 * new Nyquist limit are removed instead of aliased. The result has `ceil(length * to / from)` samples.
 */
export function resample(samples: Float32Array, from: number, to: number): Float32Array {
  if (![from, to].every((rate) => rate > 0 && Number.isFinite(rate))) {
    throw new ValueError("E_VALUE", `resample: from ${from} to ${to} samples a second`);
  }
  if (from === to) return samples;
  const cutoff = Math.min(1, to / from) * ROLLOFF;
  const halfWidth = CROSSINGS / cutoff;
  const size = Math.ceil((samples.length * to) / from);
  const out = new Float32Array(size);
  // The filter has one phase for each fractional offset between input and output samples; integer rates have few.
  const divisor = Number.isInteger(from) && Number.isInteger(to) ? gcd(from, to) : 0;
  const phases = divisor && to / divisor <= 4096 ? to / divisor : 0;
  const width = 2 * Math.ceil(halfWidth) + 1;
  const filter = (offset: number): Float32Array => {
    const taps = new Float64Array(width);
    let sum = 0;
    for (let i = 0; i < width; i += 1) {
      const t = i - Math.ceil(halfWidth) - offset;
      if (Math.abs(t) >= halfWidth) continue;
      const x = Math.PI * t * cutoff;
      sum += taps[i] = (t === 0 ? 1 : Math.sin(x) / x) * (0.5 + 0.5 * Math.cos((Math.PI * t) / halfWidth));
    }
    // normalise so that a constant signal is preserved
    return Float32Array.from(taps, (v) => v / sum);
  };
  const phaseFilters = Array.from({ length: phases }, (_, p) => filter(((p * (from / divisor)) % phases) / phases));
  for (let i = 0; i < size; i += 1) {
    const centre = phases ? Math.floor((i * (from / divisor)) / phases) : Math.floor((i * from) / to);
    const taps = phases ? (phaseFilters[i % phases] as Float32Array) : filter((i * from) / to - centre);
    const first = centre - Math.ceil(halfWidth);
    const end = Math.min(width, samples.length - first);
    let sum = 0;
    for (let k = Math.max(0, -first); k < end; k += 1) sum += (taps[k] as number) * (samples[first + k] as number);
    out[i] = sum;
  }
  return out;
}

const gcd = (a: number, b: number): number => (b === 0 ? a : gcd(b, a % b));

/** Options of `chunks`. */
export interface ChunkOptions {
  /** Samples per piece. */
  size: number;
  /** Samples between the starts of consecutive pieces; less than `size` gives overlapping pieces. Default: `size`. */
  hop?: number;
  /** Pads the last piece with silence. Default: true; false leaves it shorter. */
  pad?: boolean;
}

/** Splits a sound into pieces, which share its memory except for a padded one. */
export function* chunks(samples: Float32Array, { size, hop = size, pad = true }: ChunkOptions): Generator<{ start: number; samples: Float32Array }> {
  if (![size, hop].every((n) => Number.isInteger(n) && n > 0)) throw new ValueError("E_VALUE", `chunks of ${size} samples every ${hop}`);
  for (let start = 0; start < samples.length; start += hop) {
    let piece = samples.subarray(start, start + size);
    const last = start + size >= samples.length;
    if (pad && piece.length < size) {
      const whole = new Float32Array(size);
      whole.set(piece);
      piece = whole;
    }
    yield { start, samples: piece };
    if (last) return;
  }
}
