// The task `classifySound`: what is heard when, by a model that is given a sound's filter banks frame by frame, or windows
// of its samples.
import { fbank } from "../audio/fbank.js";
import { type AudioSource, chunks, readAudio } from "../audio/sound.js";
import { hostOf } from "../device.js";
import { FormatError } from "../errors.js";
import { Tensor } from "../tensor.js";
import { type Ranked, softmax, topK } from "../vision/scores.js";
import { type Opened, type TaskOptions, inputNameOf, openedOf, runModel } from "./recipe.js";
import { type Segment, type SegmentOptions, SpeechSegments } from "./speech-segments.js";

/** A part of a sound in which a class is heard, in seconds. */
export interface SoundEvent extends Segment {
  index: number;
  label: string | undefined;
  /** The mean probability of the class in this part. */
  score: number;
}

/** The result of `classifySound`. */
export interface SoundClasses {
  /** The classes by their mean probability over the whole sound, the `k` most likely ones. */
  classes: Ranked[];
  /** Where which class is heard, by their begin. Classes may overlap. */
  events: SoundEvent[];
  /** For each class its probability in each frame. */
  probabilities: Float32Array[];
  frameSeconds: number;
}

/** Options of `classifySound`; `threshold`, `silenceSeconds` and `speechSeconds` say when a class begins and ends. */
export interface SoundClassOptions extends TaskOptions, SegmentOptions {
  /** How many of the most likely classes to give. Default: 5. */
  k?: number;
}

/** How a recipe's model is given a sound (`more`). */
interface SoundRecipe {
  rate: number;
  /** Filter banks of all frames at once, or by default windows of samples one after the other. */
  features?: "fbank";
  /** Samples of a window, and between windows. */
  window: number;
  hop: number;
  /** The shape in which a window of samples is given. */
  shape: readonly number[];
  /** Frames that are computed at once, and how many frames before and after them the model's result depends on. */
  chunk: number;
  context: readonly [before: number, after: number];
}

/** Calls `take` with the probabilities of each frame, `[classes]`. */
type Take = (row: Float32Array) => void;

/** Classifies a sound: what is heard, and when. */
export async function classifySound(source: AudioSource, options: SoundClassOptions): Promise<SoundClasses> {
  const opened = openedOf(options);
  const { signal, fetch, k = 5, threshold = 0.5, silenceSeconds = 0.2, speechSeconds = 0.2 } = options;
  const given = (opened.recipe.more ?? {}) as Partial<SoundRecipe>;
  const { rate = 16_000, window = 400, hop = given.features ? 160 : window, chunk = 1000, context = [0, 0] } = given;
  const recipe = { ...given, rate, window, hop, chunk, context, shape: given.shape ?? [1, window] };
  const { channels } = await readAudio(source, { sampleRate: rate, ...(signal && { signal }), ...(fetch && { fetch }) });
  const [samples] = channels as [Float32Array];
  const rows: Float32Array[] = [];
  const take: Take = (row) => void rows.push(opened.recipe.softmax ? softmax(row) : row);
  await (recipe.features === "fbank" ? scoreFrames : scoreWindows)(opened, samples, recipe, options, take);
  const { labels } = opened.recipe;
  const count = rows[0]?.length ?? labels?.length ?? 0;
  const probabilities = Array.from({ length: count }, (_, at) => Float32Array.from(rows, (row) => row[at] as number));
  const frameSeconds = hop / rate;
  const means = probabilities.map((each) => each.reduce((sum, p) => sum + p, 0) / Math.max(1, each.length));
  const events = probabilities.flatMap((each, index) => {
    const segments = new SpeechSegments(frameSeconds, { threshold, silenceSeconds, speechSeconds });
    const found = [...each].flatMap((p) => segments.push(p) ?? []).concat(segments.end(samples.length / rate) ?? []);
    // whole frames, without the rounding errors of their sums
    return found.map((segment): SoundEvent => {
      const [from, to] = [Math.round(segment.start / frameSeconds), Math.round(segment.end / frameSeconds)];
      const part = each.subarray(from, Math.max(from + 1, to));
      const [start, end] = [(from * hop) / rate, Math.min((to * hop) / rate, samples.length / rate)];
      return { start, end, index, label: labels?.[index], score: part.reduce((sum, p) => sum + p, 0) / part.length };
    });
  });
  const classes = count > 0 ? topK(means, k, labels) : [];
  return { classes, events: events.sort((a, b) => a.start - b.start || a.index - b.index), probabilities, frameSeconds };
}

/** Calls `take` for rows `from` to `to` of the model's output. */
async function takeRows(
  opened: Opened,
  input: Tensor,
  { rows, from, to }: { rows: number; from: number; to: number },
  options: TaskOptions,
  take: Take,
): Promise<void> {
  const output = await runModel(opened, { [inputNameOf(opened)]: input }, options.signal ? { signal: options.signal } : {});
  const values = await output.data("f32").finally(() => output.dispose());
  const classes = values.length / rows;
  if (!Number.isInteger(classes)) throw new FormatError("E_FORMAT", `${opened.recipe.name} gives ${values.length} scores for ${rows} frames`);
  for (let row = from; row < to; row += 1) take(values.slice(row * classes, (row + 1) * classes));
}

/** Filter banks of some frames at a time, with the frames around them that their scores depend on. */
async function scoreFrames(opened: Opened, sound: Float32Array, recipe: SoundRecipe, options: TaskOptions, take: Take): Promise<void> {
  const { rate, window, hop, chunk, context } = recipe;
  const samples = sound.length < window ? new Float32Array(window) : sound;
  if (samples !== sound) samples.set(sound);
  const frames = 1 + Math.floor((samples.length - window) / hop);
  const device = await hostOf(options.device);
  const [before, after] = context;
  for (let start = 0; start < frames; start += chunk) {
    options.signal?.throwIfAborted();
    const end = Math.min(frames, start + chunk);
    const [from, to] = [Math.max(0, start - before), Math.min(frames, end + after)];
    const features = fbank(samples.slice(from * hop, (to - 1) * hop + window), { sampleRate: rate, window, hop, device });
    await takeRows(opened, features, { rows: to - from, from: start - from, to: end - from }, options, take);
  }
}

/** Windows of samples, the last one with silence behind the sound. */
async function scoreWindows(opened: Opened, sound: Float32Array, { window, hop, shape }: SoundRecipe, options: TaskOptions, take: Take): Promise<void> {
  for (const { samples } of chunks(sound, { size: window, hop })) {
    options.signal?.throwIfAborted();
    await takeRows(opened, new Tensor(samples, shape), { rows: 1, from: 0, to: 1 }, options, take);
  }
}
