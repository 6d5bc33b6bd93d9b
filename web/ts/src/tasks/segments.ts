// Segmentation: which of a model's classes each pixel of a picture belongs to.
import type { DType } from "../dtype.js";
import { ValueError } from "../errors.js";
import { type Tensor, tidy } from "../tensor.js";
import { fromImage } from "../vision/image.js";
import { type ImageSource, readPixels } from "../vision/pixels.js";
import { type TaskOptions, given, imageOf, inputOf, runOf } from "./recipe.js";

/** A class that a picture shows. */
export interface Segment {
  /** The number of the class, and its name. */
  index: number;
  label: string | undefined;
  /** How much of the picture belongs to it, from 0 to 1. */
  share: number;
}

/** A picture in parts. */
export interface Segments {
  width: number;
  height: number;
  /** The number of each pixel's class, row by row. */
  classes: Uint16Array;
  /** The classes that occur, the largest first. */
  segments: Segment[];
}

/** Scores as `[1, classes, height, width]`; a model of one class gives how likely each pixel belongs to it, as number 1. */
function scoresOf(out: Tensor, last: boolean, { most }: { most: number }): Tensor {
  const shape = out.rank === 3 ? [...out.shape, 1] : out.shape;
  if (shape.length !== 4 || shape[0] !== 1) throw new ValueError("E_VALUE", `segments are [1, classes, height, width], not [${out.shape.join(", ")}]`);
  const planes = last || out.rank === 3 ? out.reshape(shape).permute([0, 3, 1, 2]) : out;
  const count = planes.shape[1] as number;
  if (count > most) throw new ValueError("E_VALUE", `segments of ${count} classes, where ${most} are possible: does the recipe say where the channels are?`);
  return planes;
}

/** The most classes that a number of a pixel holds. */
const MOST = 1 << 16;

/** Which of the model's classes each pixel belongs to: the likeliest, by scores that are interpolated to the picture's size. */
export async function segment(source: ImageSource, options: TaskOptions): Promise<Segments> {
  const opened = given(options);
  const { labels, image, more } = opened.recipe;
  const own = await readPixels(source, options);
  const { width, height } = own;
  const { layout = image?.layout ?? "nchw", threshold = 0.5 } = (more ?? {}) as { layout?: string; threshold?: number };
  using out = await runOf(opened, { [inputOf(opened)]: await fromImage(own, imageOf(opened, options)) }, options);
  using numbers = tidy(() => {
    const large = scoresOf(out, layout.endsWith("hwc"), { most: MOST }).interpolate([height, width], { mode: "linear" });
    return (large.shape[1] === 1 ? large.gt(threshold) : large.argmax(1)).cast("i32").reshape([height * width]);
  });
  const classes = Uint16Array.from((await numbers.data<DType>(undefined, options.signal ? { signal: options.signal } : {})) as Int32Array);
  const counts = new Map<number, number>();
  for (const each of classes) counts.set(each, (counts.get(each) ?? 0) + 1);
  const segments = [...counts].map(([index, count]) => ({ index, label: labels?.[index], share: count / classes.length }));
  return { width, height, classes, segments: segments.sort((a, b) => b.share - a.share || a.index - b.index) };
}
