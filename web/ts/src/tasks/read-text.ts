// Reading a picture: lines of text are found by one model (`detectText`) and read by another, which gives each column of a line the
// probability of each character; connectionist temporal classification (Graves et al. 2006) makes a text of that.
import { FormatError, ValueError } from "../errors.js";
import { readSource } from "../progress.js";
import type { Box } from "../vision/boxes.js";
import { fitImage } from "../vision/image.js";
import { type ImageSource, type Rgba, readPixels } from "../vision/pixels.js";
import { type Opened, type TaskOptions, beside, imageOf, inputOf, given, keep, openHere, runOf } from "./recipe.js";
import { type TextBox, detectText } from "./text-boxes.js";

/** A line of text with its words. */
export interface TextLine extends TextBox {
  text: string;
  /** The mean probability of the line's characters. */
  confidence: number;
}

/** What stands in a picture. */
export interface ReadText {
  /** The lines, one below the other. Boxes that stand beside each other are one line of it, with two spaces between. */
  text: string;
  lines: TextLine[];
}

interface Shape {
  /** The recipe that finds the lines, and the file with the characters, one in each row, in the order of the model's classes. */
  detect: string;
  characters: string;
  /** Pixels of a line's height. */
  height: number;
  /** The classes before the first character and after the last. */
  before: string[];
  after: string[];
}

/**
 * The widths of lines that the recogniser is compiled for: a line is scaled to the model's height, and the rest of the next of these widths
 * is filled. Longer ones are narrowed.
 */
const WIDTHS = [160, 320, 480, 640, 960, 1280, 1920];

/** Characters less likely than this on average are no text. */
const LEAST = 0.5;

/** How a picture is read. */
export interface ReadTextOptions extends TaskOptions {
  /** The lines of the picture, as `detectText` found them, so that they are not looked for again. */
  lines?: readonly TextBox[];
  /** Told of each line that was read. */
  onLine?: (line: TextLine) => void;
}

/** What is written in a picture: upright lines, read from left to right. */
export async function readText(source: ImageSource, { lines: known, ...options }: ReadTextOptions): Promise<ReadText> {
  const opened = given(options);
  const own = await readPixels(source, options);
  const looked = async (): Promise<readonly TextBox[]> => detectText(own, { ...options, model: await detectorOf(opened, options) });
  const [reader, found] = await Promise.all([readerOf(opened, options), known ?? looked()]);
  const lines: TextLine[] = [];
  for (const line of rows(found).flat()) {
    const { text, confidence } = await read(own, line.box, opened, reader, options);
    if (text.trim() === "" || confidence < LEAST) continue;
    const full = { ...line, text, confidence };
    lines.push(full);
    options.onLine?.(full);
  }
  const text = rows(lines).map((row) => row.map((line) => line.text.trim()).join("  ")).join("\n");
  return { text, lines };
}

interface Reader {
  classes: string[];
  height: number;
}

/** The model that finds lines. */
function detectorOf(opened: Opened, options: TaskOptions): Promise<Opened> {
  const { recipe } = opened;
  const load = async (): Promise<Opened> => {
    const { detect } = (recipe.more ?? {}) as Partial<Shape>;
    if (typeof detect !== "string") throw new FormatError("E_FORMAT", `${recipe.name}: the recipe of a reader has \`more.detect\``);
    const { model: _, ...fetching } = options;
    return openHere(beside(opened, detect), fetching);
  };
  return keep(opened, "detector", load);
}

function readerOf(opened: Opened, options: TaskOptions): Promise<Reader> {
  const { recipe } = opened;
  const load = async (): Promise<Reader> => {
    const { characters, height = 48, before = ["\0"], after = [" "] } = (recipe.more ?? {}) as Partial<Shape>;
    if (typeof characters !== "string") throw new FormatError("E_FORMAT", `${recipe.name}: the recipe of a reader has \`more.characters\``);
    const { model: _, ...fetching } = options;
    const list = await readSource(beside(opened, characters), fetching);
    return { classes: [...before, ...new TextDecoder().decode(list).replace(/\n$/, "").split("\n"), ...after], height };
  };
  return keep(opened, "reader", load);
}

async function read(picture: Rgba, box: Box, opened: Opened, { classes, height }: Reader, options: TaskOptions): Promise<{ text: string; confidence: number }> {
  const [left, top] = [Math.max(0, Math.floor(box[0])), Math.max(0, Math.floor(box[1]))];
  const crop = { x: left, y: top, width: Math.min(picture.width, Math.ceil(box[2])) - left, height: Math.min(picture.height, Math.ceil(box[3])) - top };
  if (crop.width < 1 || crop.height < 1) return { text: "", confidence: 0 };
  const wide = Math.ceil((crop.width / crop.height) * height);
  const width = WIDTHS.find((w) => w >= wide) ?? (WIDTHS.at(-1) as number);
  const fit = wide > width ? ({ fit: "fill" } as const) : ({ fit: "contain", align: "start", background: [127, 127, 127] } as const);
  const { tensor } = await fitImage(picture, { ...imageOf(opened, options), ...fit, crop, size: [height, width] });
  using out = await runOf(opened, { [inputOf(opened)]: tensor }, options);
  const [, columns, count] = out.shape as [number, number, number];
  if (out.shape.length !== 3 || count !== classes.length) {
    throw new ValueError("E_VALUE", `the reader gives [${out.shape.join(", ")}], and there are ${classes.length} characters`);
  }
  return spelled(await out.data(), columns, classes);
}

/** The likeliest class of each column; a class that goes on is one character, and the first class is none. */
export function spelled(scores: Float32Array, columns: number, classes: readonly string[]): { text: string; confidence: number } {
  const count = classes.length;
  let [text, sum, read, last] = ["", 0, 0, 0];
  for (let column = 0; column < columns; column += 1) {
    let best = 0;
    for (let c = 1; c < count; c += 1) if ((scores[column * count + c] as number) > (scores[column * count + best] as number)) best = c;
    if (best !== 0 && best !== last) {
      text += classes[best];
      sum += scores[column * count + best] as number;
      read += 1;
    }
    last = best;
  }
  return { text, confidence: read > 0 ? sum / read : 0 };
}

/** Boxes in rows from top to bottom, each from left to right. One whose middle lies within another's height is in the same row. */
export function rows<T extends { box: Box }>(lines: readonly T[]): T[][] {
  const found: T[][] = [];
  for (const line of [...lines].sort((a, b) => a.box[1] + a.box[3] - b.box[1] - b.box[3])) {
    const middle = (line.box[1] + line.box[3]) / 2;
    const row = found.at(-1);
    if (row?.some(({ box }) => middle > box[1] + (box[3] - box[1]) / 4 && middle < box[3] - (box[3] - box[1]) / 4)) row.push(line);
    else found.push([line]);
  }
  for (const row of found) row.sort((a, b) => a.box[0] - b.box[0]);
  return found;
}
