// Semantic segmentation: assigns each pixel of a picture to one of a model's classes.
import type { DType } from "../dtype.js";
import { ValueError } from "../errors.js";
import { type Tensor, tidy } from "../tensor.js";
import { fromImage } from "../vision/image.js";
import { type ImageSource, readPixels } from "../vision/pixels.js";
import { type TaskOptions, openedOf, imageOptionsOf, inputNameOf, runModel } from "./recipe.js";

/** A class that occurs in a picture. */
export interface Segment {
  /** The index and the name of the class. */
  index: number;
  label: string | undefined;
  /** The fraction of the picture's pixels that belong to it. */
  share: number;
}

/** The result of `segment`. */
export interface Segments {
  width: number;
  height: number;
  /** The class index of each pixel, row by row. */
  classes: Uint16Array;
  /** The classes that occur, by decreasing share. */
  segments: Segment[];
}

/**
 * The scores as `[1, classes, height, width]`. A model with a single class gives the probability of that class, which
 * becomes class 1.
 */
function scoresOf(out: Tensor, channelsLast: boolean, { maxClasses }: { maxClasses: number }): Tensor {
  const shape = out.rank === 3 ? [...out.shape, 1] : out.shape;
  if (shape.length !== 4 || shape[0] !== 1) throw new ValueError("E_VALUE", `segments are [1, classes, height, width], not [${out.shape.join(", ")}]`);
  const planes = channelsLast || out.rank === 3 ? out.reshape(shape).permute([0, 3, 1, 2]) : out;
  const count = planes.shape[1] as number;
  if (count > maxClasses) {
    throw new ValueError("E_VALUE", `segments of ${count} classes, where ${maxClasses} are possible: does the recipe say where the channels are?`);
  }
  return planes;
}

/** The most classes that the type of a pixel's class index can hold. */
const MAX_CLASSES = 1 << 16;

/** Assigns each pixel the class with the highest score, after interpolating the scores to the picture's size. */
export async function segment(source: ImageSource, options: TaskOptions): Promise<Segments> {
  const opened = openedOf(options);
  const { labels, image, more } = opened.recipe;
  const pixels = await readPixels(source, options);
  const { width, height } = pixels;
  const { layout = image?.layout ?? "nchw", threshold = 0.5 } = (more ?? {}) as { layout?: string; threshold?: number };
  using out = await runModel(opened, { [inputNameOf(opened)]: await fromImage(pixels, imageOptionsOf(opened, options)) }, options);
  using indices = tidy(() => {
    const large = scoresOf(out, layout.endsWith("hwc"), { maxClasses: MAX_CLASSES }).interpolate([height, width], { mode: "linear" });
    return (large.shape[1] === 1 ? large.gt(threshold) : large.argmax(1)).cast("i32").reshape([height * width]);
  });
  const classes = Uint16Array.from((await indices.data<DType>(undefined, options.signal ? { signal: options.signal } : {})) as Int32Array);
  const counts = new Map<number, number>();
  for (const each of classes) counts.set(each, (counts.get(each) ?? 0) + 1);
  const segments = [...counts].map(([index, count]) => ({ index, label: labels?.[index], share: count / classes.length }));
  return { width, height, classes, segments: segments.sort((a, b) => b.share - a.share || a.index - b.index) };
}
