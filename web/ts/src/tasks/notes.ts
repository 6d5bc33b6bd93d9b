// Transcription of music to notes with Basic Pitch (Bittner et al. 2022, arXiv:2203.09893). The model takes windows of
// two seconds and gives, for each of 172 frames and each of the 88 piano keys, the probability that a note sounds and
// that one begins. A note starts at a likely onset and lasts while it keeps sounding.
import { FormatError } from "../errors.js";
import { type AudioSource, readAudio } from "../audio/sound.js";
import { Tensor } from "../tensor.js";
import { type TaskOptions, inputNameOf, openedOf } from "./recipe.js";

/** A note. */
export interface Note {
  /** Start and end in seconds. */
  start: number;
  end: number;
  /** The MIDI note number: 60 is middle C, 69 the A of 440 Hz. */
  pitch: number;
  /** Loudness from 0 to 1: the mean probability over the note's frames. */
  amplitude: number;
}

/** Options of `notes`. */
export interface NotesOptions extends TaskOptions {
  /** The probability of an onset above which a note begins. Default: 0.5. */
  onset?: number;
  /** The probability above which a note continues. Default: 0.3. */
  frame?: number;
  /** The shortest duration of a note in seconds. Default: 0.128. */
  shortest?: number;
  /** Receives the processed fraction of the sound, from 0 to 1. */
  onPart?: (part: number) => void;
}

interface BasicPitchConfig {
  rate: number;
  /** Samples per window, and per frame. */
  window: number;
  hop: number;
  frames: number;
  /** Frames by which neighbouring windows overlap. */
  shared: number;
  keys: number;
  /** The MIDI note number of the lowest key. */
  lowest: number;
  /** Names of the model's outputs. */
  note: string;
  onset: string;
}

/** The number of consecutive frames below the threshold that ends a note; shorter gaps are bridged. */
const GAP_FRAMES = 11;

/** Transcribes music to notes, in the order of their onsets. */
export async function notes(source: AudioSource, options: NotesOptions): Promise<Note[]> {
  const opened = openedOf(options);
  const { onPart, signal, fetch } = options;
  const shape: BasicPitchConfig = {
    rate: 22_050, window: 43_844, hop: 256, frames: 172, shared: 30, keys: 88, lowest: 21, note: "", onset: "",
    ...(opened.recipe.more as Partial<BasicPitchConfig> | undefined),
  };
  const { channels } = await readAudio(source, { sampleRate: shape.rate, ...(signal && { signal }), ...(fetch && { fetch }) });
  const samples = channels[0] as Float32Array;
  const model = opened.model as NonNullable<typeof opened.model>;
  // windows overlap; the frames near a window's edges are taken from its neighbour
  const edge = shape.shared / 2;
  const step = shape.window - shape.shared * shape.hop;
  const count = Math.floor((samples.length * Math.floor(shape.rate / shape.hop)) / shape.rate);
  const [noteProbabilities, onsetProbabilities] = [new Float32Array(count * shape.keys), new Float32Array(count * shape.keys)];
  let done = 0;
  for (let from = -edge * shape.hop; from < samples.length && done < count; from += step) {
    const windowSamples = new Float32Array(shape.window);
    windowSamples.set(samples.subarray(Math.max(0, from), from + shape.window), Math.max(0, -from));
    const input = new Tensor(windowSamples, [1, shape.window, 1]);
    const outputs = await model.run({ [inputNameOf(opened)]: input }, signal ? { signal } : {});
    input.dispose();
    const frames = Math.min(shape.frames - 2 * edge, count - done);
    for (const [name, target] of [[shape.note, noteProbabilities], [shape.onset, onsetProbabilities]] as const) {
      const out = outputs[name];
      if (out?.size !== shape.frames * shape.keys) throw new FormatError("E_FORMAT", `${opened.recipe.name} has no output ${name} of ${shape.frames} frames`);
      target.set((await out.data("f32")).subarray(edge * shape.keys, (edge + frames) * shape.keys), done * shape.keys);
    }
    for (const out of Object.values(outputs)) out.dispose();
    done += frames;
    onPart?.(done / count);
  }
  const minFrames = Math.round(((options.shortest ?? 0.1277) * shape.rate) / shape.hop);
  const found = notesOf(noteProbabilities, onsetProbabilities, shape.keys, { onset: options.onset ?? 0.5, frame: options.frame ?? 0.3, minFrames });
  // a window is a little shorter than its frames together, which accumulates over windows
  const drift = (shape.hop / shape.rate) * (shape.frames - shape.window / shape.hop) + 0.0018;
  const secondsAt = (frame: number): number => (frame * shape.hop) / shape.rate - drift * Math.floor(frame / shape.frames);
  return found
    .map(({ from, to, key, amplitude }) => ({ start: secondsAt(from), end: secondsAt(to), pitch: key + shape.lowest, amplitude }))
    .sort((a, b) => a.start - b.start || a.pitch - b.pitch);
}

interface FrameNote {
  from: number;
  to: number;
  key: number;
  amplitude: number;
}

/** Extracts notes from the `[frames, keys]` probabilities of sounding and of beginning. */
export function notesOf(
  noteProbabilities: Float32Array,
  onsetProbabilities: Float32Array,
  keys: number,
  limits: { onset: number; frame: number; minFrames: number },
): FrameNote[] {
  const { onset, frame, minFrames } = limits;
  const count = noteProbabilities.length / keys;
  const onsets = withInferredOnsets(noteProbabilities, onsetProbabilities, keys);
  const remaining = noteProbabilities.slice();
  const found: FrameNote[] = [];
  const addNote = (from: number, to: number, key: number): void => {
    let sum = 0;
    for (let t = from; t < to; t += 1) sum += noteProbabilities[t * keys + key] as number;
    found.push({ from, to, key, amplitude: sum / (to - from) });
  };
  /** Clears a key together with the keys beside it, which sound faintly with it. */
  const clear = (t: number, key: number): void => {
    for (const k of [key - 1, key, key + 1]) if (k >= 0 && k < keys) remaining[t * keys + k] = 0;
  };
  /**
   * Follows a note from a frame in one direction, calling `onFrame`, until `GAP_FRAMES` frames in a row are below the
   * threshold; gives the first of these.
   */
  const followNote = (from: number, direction: 1 | -1, key: number, onFrame: (t: number) => void): number => {
    let [t, quietFrames] = [from, 0];
    for (; quietFrames < GAP_FRAMES && (direction > 0 ? t < count - 1 : t > 0); t += direction) {
      quietFrames = (remaining[t * keys + key] as number) < frame ? quietFrames + 1 : 0;
      onFrame(t);
    }
    return t - direction * quietFrames;
  };
  // from the last frame to the first, so that a note ends where the next one of its key begins
  for (let t = count - 2; t > 0; t -= 1) {
    for (let key = keys - 1; key >= 0; key -= 1) {
      const value = onsets[t * keys + key] as number;
      if (!(value >= onset && value > (onsets[(t - 1) * keys + key] as number) && value > (onsets[(t + 1) * keys + key] as number))) continue;
      const end = followNote(t + 1, 1, key, () => {});
      if (end - t <= minFrames) continue;
      for (let i = t; i < end; i += 1) clear(i, key);
      addNote(t, end, key);
    }
  }
  // the remaining loud frames belong to notes without a detected onset: follow each in both directions from its loudest
  // frame
  for (;;) {
    let best = 0;
    for (let i = 1; i < remaining.length; i += 1) if ((remaining[i] as number) > (remaining[best] as number)) best = i;
    if (!((remaining[best] as number) > frame)) break;
    const [t, key] = [Math.floor(best / keys), best % keys];
    remaining[best] = 0;
    const end = followNote(t + 1, 1, key, (i) => clear(i, key)) - 1;
    const start = followNote(t - 1, -1, key, (i) => clear(i, key)) + 1;
    if (start >= 0 && end < count && end - start > minFrames) addNote(start, end, key);
  }
  return found;
}

/** Onset probabilities, raised where the sounding probability rises steeply; rises are scaled to the same maximum. */
function withInferredOnsets(noteProbabilities: Float32Array, onsetProbabilities: Float32Array, keys: number): Float32Array {
  const rises = new Float32Array(noteProbabilities.length);
  let [maxRise, maxOnset] = [0, 0];
  for (const v of onsetProbabilities) maxOnset = Math.max(maxOnset, v);
  for (let i = 2 * keys; i < noteProbabilities.length; i += 1) {
    const value = noteProbabilities[i] as number;
    rises[i] = Math.max(0, Math.min(value - (noteProbabilities[i - keys] as number), value - (noteProbabilities[i - 2 * keys] as number)));
    maxRise = Math.max(maxRise, rises[i] as number);
  }
  return onsetProbabilities.map((v, i) => Math.max(v, maxRise > 0 ? ((rises[i] as number) * maxOnset) / maxRise : 0));
}
