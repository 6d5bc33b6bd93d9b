// Tasks on pictures: classification, style transfer, background removal and enlargement.
import type { DType } from "../dtype.js";
import { ValueError } from "../errors.js";
import { Tensor, tidy } from "../tensor.js";
import { type PictureOptions, fromImage, toImageData } from "../vision/image.js";
import { type ImageSource, type Pixels, readPixels } from "../vision/pixels.js";
import { resize } from "../vision/resize.js";
import { type Ranked, softmax, topK } from "../vision/scores.js";
import { scoresOf } from "./efficientnet.js";
import { type Opened, type TaskOptions, imageOf, inputOf, given, runOf } from "./recipe.js";

/** A picture as RGBA bytes: an `ImageData` in pages. */
export type Picture = Pixels & { data: Uint8ClampedArray };

const picture = (data: Uint8ClampedArray, width: number, height: number): Picture =>
  typeof ImageData === "undefined" ? { data, width, height } : (new ImageData(data as Uint8ClampedArray<ArrayBuffer>, width, height) as Picture);

/** Classifies a picture: the `k` most likely classes, best first. */
export async function classify(source: ImageSource, options: TaskOptions & { k?: number }): Promise<Ranked[]> {
  const opened = given(options);
  const { recipe } = opened;
  const image = await fromImage(source, imageOf(opened, options));
  const out = opened.model ? await runOf(opened, { [inputOf(opened)]: image }, options) : await scoresOf(opened, image, options);
  const scores = (await out.data<DType>()) as ArrayLike<number>;
  out.dispose();
  return topK(recipe.softmax ? softmax(scores) : scores, Math.min(options.k ?? 5, scores.length), recipe.labels);
}

/** Paints a picture in a style, or in a mix of styles with a weight for each. */
export async function stylize(source: ImageSource, options: TaskOptions & { style?: number | readonly number[] }): Promise<Picture> {
  const opened = given(options);
  const { input = "style_weights", count = 0 } = (opened.recipe.more ?? {}) as { input?: string; count?: number };
  const { style = 0 } = options;
  const weights = new Float32Array(count);
  if (typeof style === "number" && style in weights) weights[style] = 1;
  else if (typeof style === "object" && style.length === count) weights.set(style);
  else throw new ValueError("E_VALUE", `stylize: ${JSON.stringify(style)} is none of ${count} styles, nor a weight for each`);
  const image = await fromImage(source, imageOf(opened, options));
  return pictureOf(opened, await runOf(opened, { [inputOf(opened)]: image, [input]: new Tensor(weights) }, options), options);
}

/** Converts a model's output to a picture. */
async function pictureOf({ recipe }: Opened, out: Tensor, { signal }: TaskOptions): Promise<Picture> {
  const { layout, ...colours } = recipe.picture ?? {};
  const how: PictureOptions = { ...colours, ...(layout && { layout: layout.endsWith("chw") ? "chw" : "hwc" }), ...(signal && { signal }) };
  const found = await toImageData(out, how);
  out.dispose();
  return found;
}

/**
 * Makes the background of a picture transparent, leaving the person (or whatever the model detects). Also gives the
 * mask: how much each pixel belongs to the foreground, from 0 to 1, row by row.
 */
export async function removeBackground(source: ImageSource, options: TaskOptions): Promise<{ picture: Picture; mask: Float32Array }> {
  const opened = given(options);
  const own = await readPixels(source, options);
  const { width, height } = own;
  using out = await runOf(opened, { [inputOf(opened)]: await fromImage(own, imageOf(opened, options)) }, options);
  const small = out.shape.filter((n) => n !== 1) as [number, number];
  if (small.length !== 2) throw new ValueError("E_VALUE", `a mask is [1, height, width], not [${out.shape.join(", ")}]`);
  using large = tidy(() => out.reshape([1, 1, ...small]).interpolate([height, width], { mode: "linear" }).clamp(0, 1));
  const mask = await large.data();
  const data = new Uint8ClampedArray(own.data);
  for (let at = 0; at < mask.length; at += 1) data[4 * at + 3] = (data[4 * at + 3] as number) * (mask[at] as number);
  return { picture: picture(data, width, height), mask };
}

/** Width in pixels of the margin of each tile that is computed and discarded, so that no seams are visible. */
const RIM = 8;

/**
 * Enlarges a picture by the model's factor. Large pictures are processed in tiles, and `onTile` is called after each.
 */
export async function upscale(
  source: ImageSource,
  options: TaskOptions & { tile?: number; onTile?: (done: number, all: number) => void },
): Promise<Picture> {
  const opened = given(options);
  const own = await readPixels(source, options);
  const { tile = 128, onTile, signal } = options;
  const { factor = 2 } = (opened.recipe.more ?? {}) as { factor?: number };
  const [columns, rows] = [Math.ceil(own.width / tile), Math.ceil(own.height / tile)];
  // all tiles have the same size, so that one plan serves them
  const [w, h] = [Math.min(own.width, tile + 2 * RIM), Math.min(own.height, tile + 2 * RIM)];
  const data = new Uint8ClampedArray(4 * own.width * own.height * factor * factor);
  for (let at = 0; at < columns * rows; at += 1) {
    signal?.throwIfAborted();
    const [left, top] = [(at % columns) * tile, Math.floor(at / columns) * tile];
    const [x, y] = [Math.max(0, Math.min(left - RIM, own.width - w)), Math.max(0, Math.min(top - RIM, own.height - h))];
    const image = await fromImage(own, { ...imageOf(opened, options), crop: { x, y, width: w, height: h } });
    const large = await pictureOf(opened, await runOf(opened, { [inputOf(opened)]: image }, options), options);
    const [right, bottom] = [Math.min(left + tile, own.width), Math.min(top + tile, own.height)];
    for (let row = top * factor; row < bottom * factor; row += 1) {
      const from = 4 * ((row - y * factor) * w * factor + (left - x) * factor);
      data.set(large.data.subarray(from, from + 4 * (right - left) * factor), 4 * (row * own.width * factor + left * factor));
    }
    onTile?.(at + 1, columns * rows);
  }
  // the alpha channel is enlarged separately
  const alpha = resize(own, { x: 0, y: 0, width: own.width, height: own.height }, own.width * factor, own.height * factor, "bilinear").data;
  for (let at = 3; at < data.length; at += 4) data[at] = alpha[at] as number;
  return picture(data, own.width * factor, own.height * factor);
}
