// High-level tasks, each one function call. The entry `gradloom/tasks`: a thin layer over public parts,
// `gradloom/vision`, `gradloom/audio` and `load`.
import "./page-chunks.js";
import { checkSound } from "./audio/check.js";
import type { LiveAudioSource } from "./audio/listen.js";
import type { AudioSource } from "./audio/sound.js";
import type { ChatMessage } from "./chat.js";
import { loadChunk } from "./chunks.js";
import { ValueError, missing } from "./errors.js";
import type { FileSource } from "./progress.js";
import type { ImageSource } from "./vision/pixels.js";
import type { Ranked } from "./vision/scores.js";
import type { ChatTaskOptions } from "./tasks/chats.js";
import type { Face } from "./tasks/faces.js";
import type { FileKind } from "./tasks/files.js";
import type { Note, NotesOptions } from "./tasks/notes.js";
import { runTask } from "./tasks/dispatch.js";
import type { Picture } from "./tasks/pictures.js";
import type { ReadText, ReadTextOptions } from "./tasks/read-text.js";
import type { TaskOptions } from "./tasks/recipe.js";
import type { Segments } from "./tasks/segments.js";
import type { SoundClassOptions, SoundClasses } from "./tasks/sound-classes.js";
import type { Speech, Transcript, VadOptions } from "./tasks/sounds.js";
import type { Segment as SpeechSegment, SegmentOptions } from "./tasks/speech-segments.js";
import type { TextBox } from "./tasks/text-boxes.js";
import type { Found } from "./tasks/objects.js";

export type { ChatTaskOptions } from "./tasks/chats.js";
export type { Face } from "./tasks/faces.js";
export type { FileKind } from "./tasks/files.js";
export { midi } from "./tasks/midi.js";
export type { Note, NotesOptions } from "./tasks/notes.js";
export { open, setModelBase, unload } from "./tasks/dispatch.js";
export type { Picture } from "./tasks/pictures.js";
export type { ReadText, ReadTextOptions, TextLine } from "./tasks/read-text.js";
export type { ImageRecipe, ModelNotice, Opened, Recipe, SsdRecipe, TaskName, TaskOptions } from "./tasks/recipe.js";
export type { Segment, Segments } from "./tasks/segments.js";
export type { SoundClassOptions, SoundClasses, SoundEvent } from "./tasks/sound-classes.js";
export type { Heard, Speech, Transcript, VadOptions } from "./tasks/sounds.js";
export type { TextBox } from "./tasks/text-boxes.js";
export type { LiveAudioSource } from "./audio/listen.js";
export type { SegmentOptions, Segment as SpeechSegment } from "./tasks/speech-segments.js";
export type { Found } from "./tasks/objects.js";

/** Classifies a picture: the `k` most likely classes, best first. */
export function classify(source: ImageSource, options: TaskOptions & { k?: number } = {}): Promise<Ranked[]> {
  return runTask("classify", "classify", [source], options);
}

/** Detects objects in a picture: class, score and box of each, best first. */
export function detect(source: ImageSource, options: TaskOptions & { score?: number; iou?: number } = {}): Promise<Found[]> {
  return runTask("detect", "detect", [source], options);
}

/**
 * Detects faces in a picture, best first. Detections that overlap by more than `iou` (default 0.3) are merged to their
 * mean, weighted by score, as in MediaPipe.
 */
export function detectFaces(source: ImageSource, options: TaskOptions & { score?: number; iou?: number } = {}): Promise<Face[]> {
  return runTask("detectFaces", "detectFaces", [source], options);
}

/** Detects horizontal lines of text in a picture, from top to bottom and left to right. */
export function detectText(source: ImageSource, options: TaskOptions = {}): Promise<TextBox[]> {
  return runTask("detectText", "detectText", [source], options);
}

/**
 * Reads the text in a picture (OCR): horizontal lines, upright or upside down, which the recipe's orientation
 * classifier decides.
 */
export function readText(source: ImageSource, options: ReadTextOptions = {}): Promise<ReadText> {
  return runTask("readText", "readText", [source], options);
}

/** Alias of `readText`. */
export const ocr = readText;

/** Paints a picture in a style, or in a mix of styles with a weight for each. */
export function stylize(source: ImageSource, options: TaskOptions & { style?: number | readonly number[] } = {}): Promise<Picture> {
  return runTask("stylize", "stylize", [source], options);
}

/** Assigns each pixel of a picture to one of the model's classes, with the share of each class in the picture. */
export function segment(source: ImageSource, options: TaskOptions = {}): Promise<Segments> {
  return runTask("segment", "segment", [source], options);
}

/**
 * Makes the background of a picture transparent, leaving the person (or whatever the model detects). Also gives the
 * mask: how much each pixel belongs to the foreground, from 0 to 1, row by row.
 */
export function removeBackground(source: ImageSource, options: TaskOptions = {}): Promise<{ picture: Picture; mask: Float32Array }> {
  return runTask("removeBackground", "removeBackground", [source], options);
}

/**
 * Enlarges a picture by the model's factor. Large pictures are processed in tiles, and `onTile` is called after each.
 */
export function upscale(
  source: ImageSource,
  options: TaskOptions & { tile?: number; onTile?: (done: number, all: number) => void } = {},
): Promise<Picture> {
  return runTask("upscale", "upscale", [source], options);
}

/**
 * Detects speech in a sound, or in the next part of a stream: Silero's detector, frame by frame, with its state carried
 * over.
 */
export async function vad(source: AudioSource, options: VadOptions = {}): Promise<Speech> {
  checkSound(source);
  return runTask("vad", "vad", [source], options);
}

/**
 * Transcribes speech with Whisper by greedy decoding. `onText` receives the words as they come. Longer sounds are
 * processed in pieces of 30 seconds; a word across a cut may be lost.
 */
export async function transcribe(source: AudioSource, options: TaskOptions & { onText?: (text: string) => void } = {}): Promise<Transcript> {
  checkSound(source);
  return runTask("transcribe", "transcribe", [source], options);
}

/** A piece of a sound that is heard live. */
export interface LiveSpeech extends SpeechSegment {
  /** The probability of speech in each frame of the piece. */
  probabilities: Float32Array;
  /** Whether somebody speaks at its end. */
  speaking: boolean;
  /** The segments with speech that ended in it, in seconds since the beginning. */
  segments: SpeechSegment[];
}

/** Options of `vadLive`. */
export interface VadLiveOptions extends TaskOptions, SegmentOptions {
  /** Seconds of sound in a result. Default: 0.128, four frames of Silero's detector. */
  pieceSeconds?: number;
}

/**
 * Detects speech while it is spoken: in a microphone's stream, another stream or one of its tracks, or an `<audio>` or
 * `<video>` that plays. Ends with the sound, when the loop is left, or with the reason of `signal`.
 */
export async function* vadLive(source: LiveAudioSource, options: VadLiveOptions = {}): AsyncGenerator<LiveSpeech> {
  yield* (await import("./tasks/live.js").catch(missing)).vadLive(source, options);
}

/** What is known of a sentence that is heard live. */
export interface LiveTranscript extends SpeechSegment {
  /** The words so far, or all of them. */
  text: string;
  /** Whether the sentence is complete; the next result is of another one. */
  final: boolean;
}

/** Options of `transcribeLive`. */
export interface TranscribeLiveOptions extends TaskOptions {
  /** The pause that ends a sentence, in seconds. Default: 0.5. */
  pauseSeconds?: number;
  /** The longest sentence; a longer one is cut. Default: 28 seconds. */
  longestSeconds?: number;
  /** A model of `vad`, which tells pauses from noise. Without it a pause is what is less loud than speech was. */
  detector?: TaskOptions["model"];
  /** Is given all sound as it is heard, 1600 samples of 16,000 a second at a time, e.g. to show how loud it is. */
  onSound?: (samples: Float32Array) => void;
}

/**
 * Transcribes speech while it is spoken, sentence by sentence: in a microphone's stream, another stream or one of its
 * tracks, or an `<audio>` or `<video>` that plays. Of each sentence the words come one by one, then the whole with
 * `final`. Nothing is dropped: sound that comes faster than it is transcribed waits. Ends with the sound, when the loop is
 * left, or with the reason of `signal`.
 */
export async function* transcribeLive(source: LiveAudioSource, options: TranscribeLiveOptions = {}): AsyncGenerator<LiveTranscript> {
  yield* (await import("./tasks/live.js").catch(missing)).transcribeLive(source, options);
}

/**
 * Classifies a sound: which classes of the model are heard, and when. With the model of `npx gradloom models` speech,
 * singing and music.
 */
export async function classifySound(source: AudioSource, options: SoundClassOptions = {}): Promise<SoundClasses> {
  checkSound(source);
  return runTask("classifySound", "classifySound", [source], options);
}

/** Transcribes music to notes, in the order of their onsets. */
export async function notes(source: AudioSource, options: NotesOptions = {}): Promise<Note[]> {
  checkSound(source);
  return runTask("notes", "notes", [source], options);
}

/**
 * Recognises the type of a file with Magika, from its first and last bytes without outer white space; only those are
 * read. Undefined for files that are too small.
 */
export function fileType(source: FileSource, options: TaskOptions & { k?: number } = {}): Promise<FileKind | undefined> {
  return runTask("fileType", "fileType", [source], options);
}

/**
 * Embeds texts as unit vectors, `[texts, size]`: texts with similar meaning have similar vectors. Texts are truncated
 * to the model's maximum (`maxTokens` of the recipe).
 */
export function embed(texts: readonly string[], options: TaskOptions = {}): Promise<Float32Array[]> {
  return runTask("embed", "embed", [texts], options);
}

/** Options of `similar`. */
export interface SimilarOptions extends TaskOptions {
  /** Precomputed vectors of the texts from `embed`, so that only the query is embedded. */
  vectors?: readonly Float32Array[];
}

/** Ranks texts by the cosine similarity of their vectors to the query's: 1 for identical direction, best first. */
export async function similar(
  query: string,
  texts: readonly string[],
  { vectors, ...options }: SimilarOptions = {},
): Promise<{ index: number; score: number; text: string }[]> {
  const vectorCount = vectors?.length;
  if (vectorCount !== undefined && vectorCount !== texts.length) {
    throw new ValueError("E_VALUE", `similar: ${texts.length} texts, and vectors of ${vectorCount}`);
  }
  const [queryVector, ...textVectors] = (await embed(vectors ? [query] : [query, ...texts], options)) as [Float32Array, ...Float32Array[]];
  const dotProduct = (v: Float32Array): number => v.reduce((sum, x, i) => sum + x * (queryVector[i] as number), 0);
  const scored = (vectors ?? textVectors).map((v, index) => ({ index, score: dotProduct(v), text: texts[index] as string }));
  return scored.sort((a, b) => b.score - a.score);
}

/**
 * Answers messages or a text with a language model; `onText` receives the answer as it comes. For streaming iterators,
 * embeddings and more control use `LLM` of `gradloom/llm`, on which this is built.
 */
export async function chat(messages: string | readonly ChatMessage[], options: ChatTaskOptions = {}): Promise<string> {
  return (await loadChunk("chats", () => import("./tasks/chats.js"))).chat(messages, options);
}
