// One line to a result: the entry `gradloom/tasks`. A thin layer over parts that are all public: `gradloom/vision`, `gradloom/audio`, `load`.
import "./apart.js";
import type { AudioSource } from "./audio/sound.js";
import type { ChatMessage } from "./chat.js";
import { ValueError, missing } from "./errors.js";
import type { FileSource } from "./progress.js";
import type { ImageSource } from "./vision/pixels.js";
import type { Ranked } from "./vision/scores.js";
import type { ChatTaskOptions } from "./tasks/chats.js";
import type { Face } from "./tasks/faces.js";
import type { FileKind } from "./tasks/files.js";
import type { Note, NotesOptions } from "./tasks/notes.js";
import { work } from "./tasks/opened.js";
import type { Picture } from "./tasks/pictures.js";
import type { ReadText, ReadTextOptions } from "./tasks/read-text.js";
import type { TaskOptions } from "./tasks/recipe.js";
import type { Segments } from "./tasks/segments.js";
import type { Speech, Transcript, VadOptions } from "./tasks/sounds.js";
import type { TextBox } from "./tasks/text-boxes.js";
import type { Found } from "./tasks/things.js";

export type { ChatTaskOptions } from "./tasks/chats.js";
export type { Face } from "./tasks/faces.js";
export type { FileKind } from "./tasks/files.js";
export { midi } from "./tasks/midi.js";
export type { Note, NotesOptions } from "./tasks/notes.js";
export { open, unload } from "./tasks/opened.js";
export type { Picture } from "./tasks/pictures.js";
export type { ReadText, ReadTextOptions, TextLine } from "./tasks/read-text.js";
export type { ImageRecipe, ModelNotice, Opened, Recipe, SsdRecipe, TaskName, TaskOptions } from "./tasks/recipe.js";
export type { Segment, Segments } from "./tasks/segments.js";
export type { Heard, Speech, Transcript, VadOptions } from "./tasks/sounds.js";
export type { TextBox } from "./tasks/text-boxes.js";
export type { Found } from "./tasks/things.js";

/** What a picture shows: the `k` likeliest classes, best first. */
export function classify(source: ImageSource, options: TaskOptions & { k?: number }): Promise<Ranked[]> {
  return work("classify", "classify", [source], options);
}

/** The things in a picture and where they are, best first. */
export function detect(source: ImageSource, options: TaskOptions & { score?: number; iou?: number }): Promise<Found[]> {
  return work("detect", "detect", [source], options);
}

/** The faces in a picture, best first. Those that overlap more than `iou` (0.3) are one, whose numbers are their mean by score, as MediaPipe has it. */
export function detectFaces(source: ImageSource, options: TaskOptions & { score?: number; iou?: number }): Promise<Face[]> {
  return work("detectFaces", "detectFaces", [source], options);
}

/** Lines of text in a picture, upright ones, from top to bottom and left to right. */
export function detectText(source: ImageSource, options: TaskOptions): Promise<TextBox[]> {
  return work("detectText", "detectText", [source], options);
}

/** What is written in a picture: level lines, upright or on their heads, as the recipe's classifier of directions tells. */
export function readText(source: ImageSource, options: ReadTextOptions): Promise<ReadText> {
  return work("readText", "readText", [source], options);
}

/** The same by the name that it often has. */
export const ocr = readText;

/** A picture painted in a style, or in several with a weight for each. */
export function stylize(source: ImageSource, options: TaskOptions & { style?: number | readonly number[] }): Promise<Picture> {
  return work("stylize", "stylize", [source], options);
}

/** Which of the model's classes each pixel of a picture belongs to, and how much of the picture each has. */
export function segment(source: ImageSource, options: TaskOptions): Promise<Segments> {
  return work("segment", "segment", [source], options);
}

/**
 * The picture with everything but the person (or what else the model knows) transparent, and how far each of its pixels belongs to it, from 0 to 1,
 * row by row.
 */
export function removeBackground(source: ImageSource, options: TaskOptions): Promise<{ picture: Picture; mask: Float32Array }> {
  return work("removeBackground", "removeBackground", [source], options);
}

/** A picture in several times its size. Large ones are worked on in tiles, one after the other, which `onTile` hears of. */
export function upscale(
  source: ImageSource,
  options: TaskOptions & { tile?: number; onTile?: (done: number, all: number) => void },
): Promise<Picture> {
  return work("upscale", "upscale", [source], options);
}

/** Where somebody speaks in a sound, or in the next part of one: Silero's detector, frame by frame, with what it heard before. */
export function vad(source: AudioSource, options: VadOptions): Promise<Speech> {
  return work("vad", "vad", [source], options);
}

/**
 * What is said in a sound, by Whisper: the most likely words. `onText` hears them as they come. Longer sounds are worked on in pieces of 30
 * seconds, and a word that a cut goes through may be lost.
 */
export function transcribe(source: AudioSource, options: TaskOptions & { onText?: (text: string) => void }): Promise<Transcript> {
  return work("transcribe", "transcribe", [source], options);
}

/** The notes of a sound, in the order of their beginnings. */
export function notes(source: AudioSource, options: NotesOptions): Promise<Note[]> {
  return work("notes", "notes", [source], options);
}

/**
 * What kind of file something is: Magika's own steps, its first and last bytes without white space at the outer ends. Only those are read. Undefined
 * for what is too small to tell.
 */
export function fileType(source: FileSource, options: TaskOptions & { k?: number }): Promise<FileKind | undefined> {
  return work("fileType", "fileType", [source], options);
}

/**
 * Texts as unit vectors, `[texts, size]`: those of texts that mean the same are near. Texts are cut to what the model takes (`maxTokens` of the
 * recipe).
 */
export function embed(texts: readonly string[], options: TaskOptions): Promise<Float32Array[]> {
  return work("embed", "embed", [texts], options);
}

/** How `similar` compares. */
export interface SimilarOptions extends TaskOptions {
  /** The vectors of the texts, as `embed` gave them: then only the query's is computed. */
  vectors?: readonly Float32Array[];
}

/** How near texts are to a query, by the angle of their vectors: 1 for the same, nearest first. */
export async function similar(
  query: string,
  texts: readonly string[],
  { vectors, ...options }: SimilarOptions,
): Promise<{ index: number; score: number; text: string }[]> {
  const known = vectors?.length;
  if (known !== undefined && known !== texts.length) throw new ValueError("E_VALUE", `similar: ${texts.length} texts, and vectors of ${known}`);
  const [first, ...rest] = (await embed(vectors ? [query] : [query, ...texts], options)) as [Float32Array, ...Float32Array[]];
  const near = (v: Float32Array): number => v.reduce((sum, x, i) => sum + x * (first[i] as number), 0);
  const scored = (vectors ?? rest).map((v, index) => ({ index, score: near(v), text: texts[index] as string }));
  return scored.sort((a, b) => b.score - a.score);
}

/**
 * The answer of a language model to messages, or to a text, which `onText` hears as it comes. `LLM` of `gradloom/llm`, by which this is done, has the
 * pieces as an iterator, embeddings, and all else.
 */
export async function chat(messages: string | readonly ChatMessage[], options: ChatTaskOptions): Promise<string> {
  return (await import("./tasks/chats.js").catch(missing)).chat(messages, options);
}
