// Music to notes: Basic Pitch (Bittner et al. 2022, arXiv:2203.09893) hears two seconds at a time and says for each of 172 frames and each
// of a piano's 88 keys how likely a note sounds, and how likely it begins; notes are what begins and then goes on.
import { FormatError } from "../errors.js";
import { type AudioSource, readAudio } from "../audio/sound.js";
import { Tensor } from "../tensor.js";
import { type TaskOptions, inputOf, given } from "./recipe.js";

/** A note. */
export interface Note {
  /** In seconds. */
  start: number;
  end: number;
  /** As MIDI counts: 60 is the middle C, 69 the A of 440 Hz. */
  pitch: number;
  /** How loud it is, from 0 to 1: the mean probability of its frames. */
  amplitude: number;
}

/** What counts as a note. */
export interface NotesOptions extends TaskOptions {
  /** A note begins where its beginning is more likely than this: 0.5. */
  onset?: number;
  /** It goes on while it is more likely than this: 0.3. */
  frame?: number;
  /** Shorter ones are none: 0.128 seconds. */
  shortest?: number;
  /** How much of the sound is done, from 0 to 1. */
  onPart?: (part: number) => void;
}

interface Shape {
  rate: number;
  /** Samples of a window, and of each of its frames. */
  window: number;
  hop: number;
  frames: number;
  /** Frames that two windows share. */
  shared: number;
  keys: number;
  /** The lowest key, as MIDI counts. */
  lowest: number;
  /** The outputs. */
  note: string;
  onset: string;
}

/** Frames below the threshold that do not yet end a note. */
const GAP = 11;

/** The notes of a sound, in the order of their beginnings. */
export async function notes(source: AudioSource, options: NotesOptions): Promise<Note[]> {
  const opened = given(options);
  const { onPart, signal, fetch } = options;
  const shape: Shape = {
    rate: 22_050, window: 43_844, hop: 256, frames: 172, shared: 30, keys: 88, lowest: 21, note: "", onset: "",
    ...(opened.recipe.more as Partial<Shape> | undefined),
  };
  const { channels } = await readAudio(source, { sampleRate: shape.rate, ...(signal && { signal }), ...(fetch && { fetch }) });
  const samples = channels[0] as Float32Array;
  const model = opened.model as NonNullable<typeof opened.model>;
  // windows overlap, and what is near a window's edges is left to its neighbour
  const edge = shape.shared / 2;
  const step = shape.window - shape.shared * shape.hop;
  const count = Math.floor((samples.length * Math.floor(shape.rate / shape.hop)) / shape.rate);
  const [sounding, begins] = [new Float32Array(count * shape.keys), new Float32Array(count * shape.keys)];
  let done = 0;
  for (let from = -edge * shape.hop; from < samples.length && done < count; from += step) {
    const heard = new Float32Array(shape.window);
    heard.set(samples.subarray(Math.max(0, from), from + shape.window), Math.max(0, -from));
    const input = new Tensor(heard, [1, shape.window, 1]);
    const outputs = await model.run({ [inputOf(opened)]: input }, signal ? { signal } : {});
    input.dispose();
    const frames = Math.min(shape.frames - 2 * edge, count - done);
    for (const [name, into] of [[shape.note, sounding], [shape.onset, begins]] as const) {
      const out = outputs[name];
      if (out?.size !== shape.frames * shape.keys) throw new FormatError("E_FORMAT", `${opened.recipe.name} has no output ${name} of ${shape.frames} frames`);
      into.set((await out.data("f32")).subarray(edge * shape.keys, (edge + frames) * shape.keys), done * shape.keys);
    }
    for (const out of Object.values(outputs)) out.dispose();
    done += frames;
    onPart?.(done / count);
  }
  const least = Math.round(((options.shortest ?? 0.1277) * shape.rate) / shape.hop);
  const found = notesOf(sounding, begins, shape.keys, { onset: options.onset ?? 0.5, frame: options.frame ?? 0.3, least });
  // a window is a little shorter than its frames, which adds up
  const drift = (shape.hop / shape.rate) * (shape.frames - shape.window / shape.hop) + 0.0018;
  const at = (frame: number): number => (frame * shape.hop) / shape.rate - drift * Math.floor(frame / shape.frames);
  return found
    .map(({ from, to, key, amplitude }) => ({ start: at(from), end: at(to), pitch: key + shape.lowest, amplitude }))
    .sort((a, b) => a.start - b.start || a.pitch - b.pitch);
}

interface Found {
  from: number;
  to: number;
  key: number;
  amplitude: number;
}

/** Notes of `[frames, keys]` probabilities, to sound and to begin. */
export function notesOf(sounding: Float32Array, begins: Float32Array, keys: number, limits: { onset: number; frame: number; least: number }): Found[] {
  const { onset, frame, least } = limits;
  const count = sounding.length / keys;
  const starts = withRises(sounding, begins, keys);
  const left = sounding.slice();
  const found: Found[] = [];
  const take = (from: number, to: number, key: number): void => {
    let sum = 0;
    for (let t = from; t < to; t += 1) sum += sounding[t * keys + key] as number;
    found.push({ from, to, key, amplitude: sum / (to - from) });
  };
  /** A note takes the keys beside it along, which sound with it. */
  const clear = (t: number, key: number): void => {
    for (const k of [key - 1, key, key + 1]) if (k >= 0 && k < keys) left[t * keys + k] = 0;
  };
  /** The first frame, in a direction, of so many below the threshold that the note is over. */
  const goes = (from: number, by: 1 | -1, key: number, each: (t: number) => void): number => {
    let [t, quiet] = [from, 0];
    for (; quiet < GAP && (by > 0 ? t < count - 1 : t > 0); t += by) {
      quiet = (left[t * keys + key] as number) < frame ? quiet + 1 : 0;
      each(t);
    }
    return t - by * quiet;
  };
  // from the last to the first, so that a note ends where the next of its key begins
  for (let t = count - 2; t > 0; t -= 1) {
    for (let key = keys - 1; key >= 0; key -= 1) {
      const here = starts[t * keys + key] as number;
      if (!(here >= onset && here > (starts[(t - 1) * keys + key] as number) && here > (starts[(t + 1) * keys + key] as number))) continue;
      const end = goes(t + 1, 1, key, () => {});
      if (end - t <= least) continue;
      for (let i = t; i < end; i += 1) clear(i, key);
      take(t, end, key);
    }
  }
  // what is left and loud began without being noticed: it is followed both ways from where it is loudest
  for (;;) {
    let best = 0;
    for (let i = 1; i < left.length; i += 1) if ((left[i] as number) > (left[best] as number)) best = i;
    if (!((left[best] as number) > frame)) break;
    const [t, key] = [Math.floor(best / keys), best % keys];
    left[best] = 0;
    const end = goes(t + 1, 1, key, (i) => clear(i, key)) - 1;
    const start = goes(t - 1, -1, key, (i) => clear(i, key)) + 1;
    if (start >= 0 && end < count && end - start > least) take(start, end, key);
  }
  return found;
}

/** Beginnings, and where what sounds grows fast, on the same scale. */
function withRises(sounding: Float32Array, begins: Float32Array, keys: number): Float32Array {
  const rises = new Float32Array(sounding.length);
  let [most, highest] = [0, 0];
  for (const v of begins) highest = Math.max(highest, v);
  for (let i = 2 * keys; i < sounding.length; i += 1) {
    const here = sounding[i] as number;
    rises[i] = Math.max(0, Math.min(here - (sounding[i - keys] as number), here - (sounding[i - 2 * keys] as number)));
    most = Math.max(most, rises[i] as number);
  }
  return begins.map((v, i) => Math.max(v, most > 0 ? ((rises[i] as number) * highest) / most : 0));
}
