// Reading a picture: lines of text are found by one model (`detectText`), a second tells which of them stand on their heads, and a third gives each
// column of a line the probability of each character; connectionist temporal classification (Graves et al. 2006) makes a text of that.
import { FormatError, ValueError } from "../errors.js";
import { readSource } from "../progress.js";
import type { Box } from "../vision/boxes.js";
import { type ImageOptions, fitImage } from "../vision/image.js";
import { type ImageSource, type Rgba, readPixels } from "../vision/pixels.js";
import { type Opened, type TaskOptions, beside, imageOf, inputOf, given, keep, openHere, runOf } from "./recipe.js";
import { type TextBox, detectText } from "./text-boxes.js";

/** A line of text with its words. */
export interface TextLine extends TextBox {
  text: string;
  /** The mean probability of the line's characters. */
  confidence: number;
  /** Does it stand on its head? */
  turned: boolean;
}

/** What stands in a picture. */
export interface ReadText {
  /**
   * The lines, one below the other. Boxes that stand beside each other are one line of it, with two spaces between. If most of them stand on their
   * heads, the picture does, and they are in the order of one that is turned.
   */
  text: string;
  lines: TextLine[];
}

interface Shape {
  /**
   * The recipe that finds the lines, that of classes "0" and "180" which tells how they stand, if any, and the file with the characters, one in each
   * row, in the order of the model's classes.
   */
  detect: string;
  direction: string;
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

/** A line is turned if the model is so sure that it stands on its head, as PP-OCR has it. */
const SURE = 0.9;

/** How a picture is read. */
export interface ReadTextOptions extends TaskOptions {
  /** The lines of the picture, as `detectText` found them, so that they are not looked for again. */
  lines?: readonly TextBox[];
  /** Told of each line that was read. */
  onLine?: (line: TextLine) => void;
}

/** What is written in a picture: level lines, upright or on their heads. */
export async function readText(source: ImageSource, { lines: known, ...options }: ReadTextOptions): Promise<ReadText> {
  const opened = given(options);
  const own = await readPixels(source, options);
  const looked = async (): Promise<readonly TextBox[]> => detectText(own, { ...options, model: await partOf(opened, "detect", options) });
  const { direction } = (opened.recipe.more ?? {}) as Partial<Shape>;
  const told = direction === undefined ? undefined : partOf(opened, "direction", options);
  const [reader, found, teller] = await Promise.all([readerOf(opened, options), known ?? looked(), told]);
  const stood: Standing[] = [];
  for (const line of found) {
    const crop = cropOf(own, line.box);
    if (crop) stood.push({ ...line, crop, turned: teller !== undefined && (await isTurned(own, crop, teller, options)) });
  }
  const order = stood.filter(({ turned }) => turned).length > stood.length / 2 ? turnedRows : rows;
  const lines: TextLine[] = [];
  for (const { crop, ...line } of order(stood).flat()) {
    const { text, confidence } = await read(line.turned ? turnedPart(own, crop) : { picture: own, crop }, opened, reader, options);
    if (text.trim() === "" || confidence < LEAST) continue;
    const full = { ...line, text, confidence };
    lines.push(full);
    options.onLine?.(full);
  }
  const text = order(lines).map((row) => row.map((line) => line.text.trim()).join("  ")).join("\n");
  return { text, lines };
}

interface Crop {
  x: number;
  y: number;
  width: number;
  height: number;
}

/** A line, the pixels that it takes, and how it stands. */
interface Standing extends TextBox {
  crop: Crop;
  turned: boolean;
}

/** The pixels of a box that are in the picture. */
function cropOf(picture: Rgba, box: Box): Crop | undefined {
  const [left, top] = [Math.max(0, Math.floor(box[0])), Math.max(0, Math.floor(box[1]))];
  const [width, height] = [Math.min(picture.width, Math.ceil(box[2])) - left, Math.min(picture.height, Math.ceil(box[3])) - top];
  return width < 1 || height < 1 ? undefined : { x: left, y: top, width, height };
}

/** A part of a picture, on its head. */
function turnedPart({ data, width: stride }: Rgba, { x, y, width, height }: Crop): { picture: Rgba; crop: Crop } {
  const out = new Uint8ClampedArray(4 * width * height);
  for (let row = 0; row < height; row += 1) {
    for (let column = 0; column < width; column += 1) {
      const from = 4 * ((y + row) * stride + x + column);
      out.set(data.subarray(from, from + 4), out.length - 4 * (row * width + column + 1));
    }
  }
  return { picture: { data: out, width, height }, crop: { x: 0, y: 0, width, height } };
}

/** How a line fills a picture of a size: scaled to its height, with the rest filled, and narrowed if it is longer. */
function filling({ width, height }: Crop, [high, wide]: readonly [number, number]): Pick<ImageOptions, "fit" | "align" | "background"> {
  return Math.ceil((width / height) * high) > wide ? { fit: "fill" } : { fit: "contain", align: "start", background: [127, 127, 127] };
}

/** Does a line stand on its head? */
async function isTurned(picture: Rgba, crop: Crop, teller: Opened, options: TaskOptions): Promise<boolean> {
  const { image, labels = ["0", "180"] } = teller.recipe;
  const size = (image?.size ?? [48, 192]) as readonly [number, number];
  const { tensor } = await fitImage(picture, { ...imageOf(teller, options), ...filling(crop, size), crop, size });
  using out = await runOf(teller, { [inputOf(teller)]: tensor }, options);
  const at = labels.indexOf("180");
  return ((await out.data("f32"))[at] ?? 0) > SURE;
}

interface Reader {
  classes: string[];
  height: number;
}

/** The model that finds lines, or that tells how they stand. */
function partOf(opened: Opened, what: "detect" | "direction", options: TaskOptions): Promise<Opened> {
  const { recipe } = opened;
  const load = async (): Promise<Opened> => {
    const address = (recipe.more as Partial<Shape> | undefined)?.[what];
    if (typeof address !== "string") throw new FormatError("E_FORMAT", `${recipe.name}: the recipe of a reader has \`more.${what}\``);
    const { model: _, ...fetching } = options;
    return openHere(beside(opened, address), fetching);
  };
  return keep(opened, what, load);
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

async function read(
  { picture, crop }: { picture: Rgba; crop: Crop },
  opened: Opened,
  { classes, height }: Reader,
  options: TaskOptions,
): Promise<{ text: string; confidence: number }> {
  const wide = Math.ceil((crop.width / crop.height) * height);
  const size = [height, WIDTHS.find((w) => w >= wide) ?? (WIDTHS.at(-1) as number)] as const;
  const { tensor } = await fitImage(picture, { ...imageOf(opened, options), ...filling(crop, size), crop, size });
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

/** The same in a picture that stands on its head. */
const turnedRows = <T extends { box: Box }>(lines: readonly T[]): T[][] => rows(lines).reverse().map((row) => row.reverse());
