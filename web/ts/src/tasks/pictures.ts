// Tasks on pictures: classification, style transfer, background removal and enlargement.
import type { DType } from "../dtype.js";
import { ValueError } from "../errors.js";
import { Tensor, tidy } from "../tensor.js";
import { type PictureOptions, fromImage, toImageData } from "../vision/image.js";
import { type ImageSource, type Pixels, readPixels } from "../vision/pixels.js";
import { resize } from "../vision/resize.js";
import { type Ranked, softmax, topK } from "../vision/scores.js";
import { scoresOf } from "./efficientnet.js";
import { type Opened, type TaskOptions, imageOptionsOf, inputNameOf, openedOf, runModel } from "./recipe.js";

/** A picture as RGBA bytes: an `ImageData` in pages. */
export type Picture = Pixels & { data: Uint8ClampedArray };

const makePicture = (data: Uint8ClampedArray, width: number, height: number): Picture =>
  typeof ImageData === "undefined" ? { data, width, height } : (new ImageData(data as Uint8ClampedArray<ArrayBuffer>, width, height) as Picture);

/** Classifies a picture: the `k` most likely classes, best first. */
export async function classify(source: ImageSource, options: TaskOptions & { k?: number }): Promise<Ranked[]> {
  const opened = openedOf(options);
  const { recipe } = opened;
  const image = await fromImage(source, imageOptionsOf(opened, options));
  const out = opened.model ? await runModel(opened, { [inputNameOf(opened)]: image }, options) : await scoresOf(opened, image, options);
  const scores = (await out.data<DType>()) as ArrayLike<number>;
  out.dispose();
  return topK(recipe.softmax ? softmax(scores) : scores, Math.min(options.k ?? 5, scores.length), recipe.labels);
}

/** Paints a picture in a style, or in a mix of styles with a weight for each. */
export async function stylize(source: ImageSource, options: TaskOptions & { style?: number | readonly number[] }): Promise<Picture> {
  const opened = openedOf(options);
  const { input = "style_weights", count = 0 } = (opened.recipe.more ?? {}) as { input?: string; count?: number };
  const { style = 0 } = options;
  const weights = new Float32Array(count);
  if (typeof style === "number" && style in weights) weights[style] = 1;
  else if (typeof style === "object" && style.length === count) weights.set(style);
  else throw new ValueError("E_VALUE", `stylize: ${JSON.stringify(style)} is none of ${count} styles, nor a weight for each`);
  const image = await fromImage(source, imageOptionsOf(opened, options));
  return outputPicture(opened, await runModel(opened, { [inputNameOf(opened)]: image, [input]: new Tensor(weights) }, options), options);
}

/** Converts a model's output to a picture. */
async function outputPicture({ recipe }: Opened, out: Tensor, { signal }: TaskOptions): Promise<Picture> {
  const { layout, ...colours } = recipe.picture ?? {};
  const pictureOptions: PictureOptions = { ...colours, ...(layout && { layout: layout.endsWith("chw") ? "chw" : "hwc" }), ...(signal && { signal }) };
  const picture = await toImageData(out, pictureOptions);
  out.dispose();
  return picture;
}

/**
 * Makes the background of a picture transparent, leaving the person (or whatever the model detects). Also gives the
 * mask: how much each pixel belongs to the foreground, from 0 to 1, row by row.
 */
export async function removeBackground(source: ImageSource, options: TaskOptions): Promise<{ picture: Picture; mask: Float32Array }> {
  const opened = openedOf(options);
  const pixels = await readPixels(source, options);
  const { width, height } = pixels;
  using out = await runModel(opened, { [inputNameOf(opened)]: await fromImage(pixels, imageOptionsOf(opened, options)) }, options);
  const small = out.shape.filter((n) => n !== 1) as [number, number];
  if (small.length !== 2) throw new ValueError("E_VALUE", `a mask is [1, height, width], not [${out.shape.join(", ")}]`);
  using large = tidy(() => out.reshape([1, 1, ...small]).interpolate([height, width], { mode: "linear" }).clamp(0, 1));
  const mask = await large.data();
  const data = new Uint8ClampedArray(pixels.data);
  for (let at = 0; at < mask.length; at += 1) data[4 * at + 3] = (data[4 * at + 3] as number) * (mask[at] as number);
  return { picture: makePicture(data, width, height), mask };
}

/** Width in pixels of the margin of each tile that is computed and discarded, so that no seams are visible. */
const TILE_MARGIN = 8;

/**
 * Enlarges a picture by the model's factor. Large pictures are processed in tiles, and `onTile` is called after each.
 */
export async function upscale(
  source: ImageSource,
  options: TaskOptions & { tile?: number; onTile?: (done: number, all: number) => void },
): Promise<Picture> {
  const opened = openedOf(options);
  const pixels = await readPixels(source, options);
  const { tile = 128, onTile, signal } = options;
  const { factor = 2 } = (opened.recipe.more ?? {}) as { factor?: number };
  const [columns, rows] = [Math.ceil(pixels.width / tile), Math.ceil(pixels.height / tile)];
  // all tiles have the same size, so that one plan serves them
  const [w, h] = [Math.min(pixels.width, tile + 2 * TILE_MARGIN), Math.min(pixels.height, tile + 2 * TILE_MARGIN)];
  const data = new Uint8ClampedArray(4 * pixels.width * pixels.height * factor * factor);
  for (let at = 0; at < columns * rows; at += 1) {
    signal?.throwIfAborted();
    const [left, top] = [(at % columns) * tile, Math.floor(at / columns) * tile];
    const [x, y] = [Math.max(0, Math.min(left - TILE_MARGIN, pixels.width - w)), Math.max(0, Math.min(top - TILE_MARGIN, pixels.height - h))];
    const image = await fromImage(pixels, { ...imageOptionsOf(opened, options), crop: { x, y, width: w, height: h } });
    const large = await outputPicture(opened, await runModel(opened, { [inputNameOf(opened)]: image }, options), options);
    const [right, bottom] = [Math.min(left + tile, pixels.width), Math.min(top + tile, pixels.height)];
    for (let row = top * factor; row < bottom * factor; row += 1) {
      const from = 4 * ((row - y * factor) * w * factor + (left - x) * factor);
      data.set(large.data.subarray(from, from + 4 * (right - left) * factor), 4 * (row * pixels.width * factor + left * factor));
    }
    onTile?.(at + 1, columns * rows);
  }
  // the alpha channel is enlarged separately
  const alpha = resize(pixels, { x: 0, y: 0, width: pixels.width, height: pixels.height }, pixels.width * factor, pixels.height * factor, "bilinear").data;
  for (let at = 3; at < data.length; at += 4) data[at] = alpha[at] as number;
  return makePicture(data, pixels.width * factor, pixels.height * factor);
}
