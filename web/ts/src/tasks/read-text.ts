// Text recognition (OCR) in three steps: one model finds lines (`detectText`), a second decides which lines are upside
// down, and a third gives the probability of each character for each column of a line, which connectionist temporal
// classification (Graves et al. 2006) decodes to text.
import { FormatError, ValueError } from "../errors.js";
import { readSource } from "../progress.js";
import type { Box } from "../vision/boxes.js";
import { type ImageOptions, fitImage } from "../vision/image.js";
import { type ImageSource, type Rgba, readPixels } from "../vision/pixels.js";
import { type Opened, type TaskOptions, resolveFile, fileOptionsOf, imageOptionsOf, inputNameOf, openedOf, memoize, openLocal, runModel } from "./recipe.js";
import { type LineCurve, type TextBox, detectText, reachOf } from "./text-boxes.js";

/** A line of text and what it says. */
export interface TextLine extends TextBox {
  text: string;
  /** The mean probability of the line's characters. */
  confidence: number;
  /** Whether the line is upside down. */
  turned: boolean;
}

/** The result of `readText`. */
export interface ReadText {
  /**
   * The text in reading order, one line per row. Boxes beside each other form one row, separated by two spaces. If most
   * lines are upside down, the picture counts as rotated by 180 degrees and the order is that of the rotated picture.
   */
  text: string;
  lines: TextLine[];
}

interface OcrConfig {
  /**
   * The recipe that detects lines; the recipe that classifies their orientation as "0" or "180", if any; and the file
   * of characters, one per row, in the order of the model's classes.
   */
  detect: string;
  direction: string;
  characters: string;
  /** The height in pixels to which lines are scaled. */
  height: number;
  /** Classes before the first character and after the last one. */
  before: string[];
  after: string[];
}

/**
 * The input widths for which the recogniser is compiled. A line is scaled to the model's height and padded to the next
 * of these widths; longer lines are compressed to the largest.
 */
const INPUT_WIDTHS = [160, 320, 480, 640, 960, 1280, 1920];

/** Lines whose characters have a lower mean probability are dropped. */
const MIN_CONFIDENCE = 0.5;

/** The probability of "180" above which a line counts as upside down, the value of PP-OCR. */
const UPSIDE_DOWN_THRESHOLD = 0.9;

/** Options of `readText`. */
export interface ReadTextOptions extends TaskOptions {
  /** The lines, as `detectText` found them, to skip detection. */
  lines?: readonly TextBox[];
  /** Called for each line as it is read. */
  onLine?: (line: TextLine) => void;
}

/** Reads the text in a picture: horizontal lines, upright or upside down. */
export async function readText(source: ImageSource, { lines: givenLines, ...options }: ReadTextOptions): Promise<ReadText> {
  const opened = openedOf(options);
  const pixels = await readPixels(source, options);
  const detectLines = async (): Promise<readonly TextBox[]> => detectText(pixels, { ...options, model: await submodelOf(opened, "detect", options) });
  const { direction } = (opened.recipe.more ?? {}) as Partial<OcrConfig>;
  const classifierLoading = direction === undefined ? undefined : submodelOf(opened, "direction", options);
  const [recognizer, detected, classifier] = await Promise.all([recognizerOf(opened, options), givenLines ?? detectLines(), classifierLoading]);
  const orientedLines: OrientedLine[] = [];
  for (const line of detected) {
    const part = line.curve ? straightened(pixels, line.box, line.curve) : { picture: pixels, crop: cropOf(pixels, line.box) };
    const { picture, crop } = part;
    if (crop) orientedLines.push({ ...line, picture, crop, turned: classifier !== undefined && (await isUpsideDown(picture, crop, classifier, options)) });
  }
  const group = orientedLines.filter(({ turned }) => turned).length > orientedLines.length / 2 ? groupRowsUpsideDown : groupRows;
  const lines: TextLine[] = [];
  for (const { picture, crop, ...line } of group(orientedLines).flat()) {
    const { text, confidence } = await recognizeLine(line.turned ? rotatedCrop(picture, crop) : { picture, crop }, opened, recognizer, options);
    if (text.trim() === "" || confidence < MIN_CONFIDENCE) continue;
    const result = { ...line, text, confidence };
    lines.push(result);
    options.onLine?.(result);
  }
  const text = group(lines).map((row) => row.map((line) => line.text.trim()).join("  ")).join("\n");
  return { text, lines };
}

interface Crop {
  x: number;
  y: number;
  width: number;
  height: number;
}

/** A line with its pixels and orientation. */
interface OrientedLine extends TextBox {
  picture: Rgba;
  crop: Crop;
  turned: boolean;
}

/** The part of a box within the picture, in whole pixels. */
function cropOf(picture: Rgba, box: Box): Crop | undefined {
  const [left, top] = [Math.max(0, Math.floor(box[0])), Math.max(0, Math.floor(box[1]))];
  const [width, height] = [Math.min(picture.width, Math.ceil(box[2])) - left, Math.min(picture.height, Math.ceil(box[3])) - top];
  return width < 1 || height < 1 ? undefined : { x: left, y: top, width, height };
}

/**
 * The band of a line that is not horizontal and straight, with each column moved so that it is. A crop of the box would
 * also show parts of the lines above and below.
 */
function straightened(picture: Rgba, box: Box, curve: LineCurve): { picture: Rgba; crop: Crop | undefined } {
  const crop = cropOf(picture, box);
  if (!crop) return { picture, crop };
  const [above, below] = reachOf(curve);
  const [from, height] = [box[1] - above, Math.max(1, Math.round(box[3] - box[1] - (below - above)))];
  const data = new Uint8ClampedArray(4 * crop.width * height);
  for (let column = 0; column < crop.width; column += 1) {
    const x = crop.x + column;
    const t = (2 * (x + 0.5 - box[0])) / (box[2] - box[0]) - 1;
    const top = from + curve[0] * t + curve[1] * t * t;
    for (let row = 0; row < height; row += 1) {
      const y = Math.min(picture.height - 1, Math.max(0, top + row));
      const upper = 4 * (Math.floor(y) * picture.width + x);
      const lower = y + 1 < picture.height ? upper + 4 * picture.width : upper;
      for (let c = 0; c < 4; c += 1) {
        const [p, q] = [picture.data[upper + c] as number, picture.data[lower + c] as number];
        data[4 * (row * crop.width + column) + c] = p + (q - p) * (y - Math.floor(y));
      }
    }
  }
  return { picture: { data, width: crop.width, height }, crop: { x: 0, y: 0, width: crop.width, height } };
}

/** A part of a picture, rotated by 180 degrees. */
function rotatedCrop({ data, width: stride }: Rgba, { x, y, width, height }: Crop): { picture: Rgba; crop: Crop } {
  const out = new Uint8ClampedArray(4 * width * height);
  for (let row = 0; row < height; row += 1) {
    for (let column = 0; column < width; column += 1) {
      const from = 4 * ((y + row) * stride + x + column);
      out.set(data.subarray(from, from + 4), out.length - 4 * (row * width + column + 1));
    }
  }
  return { picture: { data: out, width, height }, crop: { x: 0, y: 0, width, height } };
}

/** How a line fits an input size: scaled to the height and padded at its end, or compressed if it is too long. */
function fitOptionsOf({ width, height }: Crop, [inputHeight, inputWidth]: readonly [number, number]): Pick<ImageOptions, "fit" | "align" | "background"> {
  return Math.ceil((width / height) * inputHeight) > inputWidth ? { fit: "fill" } : { fit: "contain", align: "start", background: [127, 127, 127] };
}

/** Whether a line is upside down, by the orientation classifier. */
async function isUpsideDown(picture: Rgba, crop: Crop, classifier: Opened, options: TaskOptions): Promise<boolean> {
  const { image, labels = ["0", "180"] } = classifier.recipe;
  const size = (image?.size ?? [48, 192]) as readonly [number, number];
  const { tensor } = await fitImage(picture, { ...imageOptionsOf(classifier, options), ...fitOptionsOf(crop, size), crop, size });
  using out = await runModel(classifier, { [inputNameOf(classifier)]: tensor }, options);
  const at = labels.indexOf("180");
  return ((await out.data("f32"))[at] ?? 0) > UPSIDE_DOWN_THRESHOLD;
}

interface Recognizer {
  classes: string[];
  height: number;
}

/** Loads the detection or the orientation model of the recipe. */
function submodelOf(opened: Opened, part: "detect" | "direction", options: TaskOptions): Promise<Opened> {
  const { recipe } = opened;
  const load = async (): Promise<Opened> => {
    const address = (recipe.more as Partial<OcrConfig> | undefined)?.[part];
    if (typeof address !== "string") throw new FormatError("E_FORMAT", `${recipe.name}: the recipe of a reader has \`more.${part}\``);
    const { model: _, ...rest } = options;
    return openLocal(resolveFile(opened, address), { ...rest, ...fileOptionsOf(opened, address, options) });
  };
  return memoize(opened, part, load);
}

function recognizerOf(opened: Opened, options: TaskOptions): Promise<Recognizer> {
  const { recipe } = opened;
  const load = async (): Promise<Recognizer> => {
    const { characters, height = 48, before = ["\0"], after = [" "] } = (recipe.more ?? {}) as Partial<OcrConfig>;
    if (typeof characters !== "string") throw new FormatError("E_FORMAT", `${recipe.name}: the recipe of a reader has \`more.characters\``);
    const list = await readSource(resolveFile(opened, characters), fileOptionsOf(opened, characters, options));
    return { classes: [...before, ...new TextDecoder().decode(list).replace(/\n$/, "").split("\n"), ...after], height };
  };
  return memoize(opened, "recognizer", load);
}

async function recognizeLine(
  { picture, crop }: { picture: Rgba; crop: Crop },
  opened: Opened,
  { classes, height }: Recognizer,
  options: TaskOptions,
): Promise<{ text: string; confidence: number }> {
  const inputWidth = Math.ceil((crop.width / crop.height) * height);
  const size = [height, INPUT_WIDTHS.find((w) => w >= inputWidth) ?? (INPUT_WIDTHS.at(-1) as number)] as const;
  const { tensor } = await fitImage(picture, { ...imageOptionsOf(opened, options), ...fitOptionsOf(crop, size), crop, size });
  using out = await runModel(opened, { [inputNameOf(opened)]: tensor }, options);
  const [, columns, count] = out.shape as [number, number, number];
  if (out.shape.length !== 3 || count !== classes.length) {
    throw new ValueError("E_VALUE", `the reader gives [${out.shape.join(", ")}], and there are ${classes.length} characters`);
  }
  return ctcDecode(await out.data(), columns, classes);
}

/**
 * Greedy CTC decoding: the most likely class of each column, with repetitions merged and the first class (blank)
 * dropped.
 */
export function ctcDecode(scores: Float32Array, columns: number, classes: readonly string[]): { text: string; confidence: number } {
  const count = classes.length;
  let [text, sum, characterCount, last] = ["", 0, 0, 0];
  for (let column = 0; column < columns; column += 1) {
    let best = 0;
    for (let c = 1; c < count; c += 1) if ((scores[column * count + c] as number) > (scores[column * count + best] as number)) best = c;
    if (best !== 0 && best !== last) {
      text += classes[best];
      sum += scores[column * count + best] as number;
      characterCount += 1;
    }
    last = best;
  }
  return { text, confidence: characterCount > 0 ? sum / characterCount : 0 };
}

/**
 * Groups boxes into rows from top to bottom, each from left to right. A box joins a row if its vertical centre is
 * within the height of another box there.
 */
export function groupRows<T extends { box: Box }>(lines: readonly T[]): T[][] {
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

/** `groupRows` for a picture that is upside down. */
const groupRowsUpsideDown = <T extends { box: Box }>(lines: readonly T[]): T[][] => groupRows(lines).reverse().map((row) => row.reverse());
