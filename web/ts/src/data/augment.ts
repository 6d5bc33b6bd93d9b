// Random changes of batches of images for training: flips, crops, shifts, colours, mixing. Each example of a batch is changed
// by itself. What is drawn at random reaches the tensors as values, never as constants, so one plan serves all steps. Names and
// formulas are those of torchvision's transforms; mixup is of Zhang et al. 2018 (arXiv:1710.09412).
import type { Device } from "../device.js";
import { ValueError } from "../errors.js";
import { Tensor } from "../tensor.js";

/** Gives random numbers from 0 (inclusive) to 1, as `Math.random` does. */
export type Random = () => number;

/** Options of all random changes. */
export interface RandomOptions {
  /** Source of random numbers. Default: `Math.random`; `seededRandom` repeats a run. */
  random?: Random;
}

/** A source of random numbers that gives the same ones for the same seed (Mulberry32). */
export function seededRandom(seed: number): Random {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

type Sizes = [count: number, channels: number, height: number, width: number];

function sizesOf(name: string, x: Tensor): Sizes {
  if (x.rank === 4) return x.shape as unknown as Sizes;
  throw new ValueError("E_VALUE", `${name} takes images [batch, channels, height, width], not [${x.shape.join(", ")}]`);
}

const on = ({ device }: Tensor): { device?: Device } => (device ? { device } : {});

/** Elements along an axis (2 or 3) by their places for each example; with `fill` for places outside of the images. */
function take(x: Tensor, axis: 2 | 3, places: readonly number[], fill?: number): Tensor {
  const size = x.shape[axis] as number;
  const count = x.shape[0] as number;
  const length = places.length / count;
  const shape = axis === 2 ? [count, 1, length, 1] : [count, 1, 1, length];
  const whole = x.shape.map((n, at) => (at === axis ? length : n));
  const index = new Tensor(Int32Array.from(places, (at) => Math.min(Math.max(at, 0), size - 1)), shape, on(x));
  const taken = x.gather(axis, index.expand(whole));
  if (fill === undefined) return taken;
  const inside = new Tensor(Uint8Array.from(places, (at) => Number(at >= 0 && at < size)), shape, on(x));
  return inside.gt(0).expand(whole).where(taken, fill);
}

const range = (length: number): number[] => Array.from({ length }, (_, at) => at);

function flip(name: string, x: Tensor, axis: 2 | 3, { p = 0.5, random = Math.random }: RandomOptions & { p?: number }): Tensor {
  const sizes = sizesOf(name, x);
  if (!(p >= 0 && p <= 1)) throw new ValueError("E_VALUE", `${name}: a probability of ${p}`);
  const places = range(sizes[axis]);
  return take(x, axis, range(sizes[0]).flatMap(() => (random() < p ? [...places].reverse() : places)));
}

/** Mirrors each image `[batch, channels, height, width]` from left to right with probability `p` (default 0.5). */
export function randomHorizontalFlip(x: Tensor, options: RandomOptions & { p?: number } = {}): Tensor {
  return flip("randomHorizontalFlip", x, 3, options);
}

/** Mirrors each image `[batch, channels, height, width]` from top to bottom with probability `p` (default 0.5). */
export function randomVerticalFlip(x: Tensor, options: RandomOptions & { p?: number } = {}): Tensor {
  return flip("randomVerticalFlip", x, 2, options);
}

/** Options of `randomCrop`. */
export interface CropOptions extends RandomOptions {
  /** Pixels that are added at each side before. Default: 0. */
  padding?: number;
  /** The value of these. Default: 0. */
  fill?: number;
}

/**
 * A part of each image at a random place: `[batch, channels, height, width]` to `[batch, channels, size, size]`, or to `size`
 * of height and width. `randomCrop(x, 32, { padding: 4 })` is usual for images of 32 pixels. `E_VALUE` if the part is larger
 * than the image with its padding.
 */
export function randomCrop(x: Tensor, size: number | readonly [height: number, width: number], options: CropOptions = {}): Tensor {
  const { padding = 0, fill = 0, random = Math.random } = options;
  const [count, , height, width] = sizesOf("randomCrop", x);
  const [h, w] = typeof size === "number" ? [size, size] : size;
  const isSize = (n: number, whole: number): boolean => Number.isInteger(n) && n > 0 && n <= whole + 2 * padding;
  if (!(Number.isInteger(padding) && padding >= 0 && isSize(h, height) && isSize(w, width))) {
    throw new ValueError("E_VALUE", `randomCrop: ${h} x ${w} of ${height} x ${width} pixels with a padding of ${padding}`);
  }
  const start = (whole: number, part: number): number => Math.floor(random() * (whole + 2 * padding - part + 1)) - padding;
  const starts = range(count).map(() => [start(height, h), start(width, w)] as const);
  const rows = starts.flatMap(([top]) => range(h).map((at) => top + at));
  const columns = starts.flatMap(([, left]) => range(w).map((at) => left + at));
  const outside = padding > 0 ? fill : undefined;
  return take(take(x, 2, rows, outside), 3, columns, outside);
}

/** Moves each image by up to `pixels` up or down and left or right; the border is `fill` (default 0). The size stays. */
export function randomShift(x: Tensor, pixels: number, options: RandomOptions & { fill?: number } = {}): Tensor {
  const [, , height, width] = sizesOf("randomShift", x);
  return randomCrop(x, [height, width], { ...options, padding: pixels });
}

/** Options of `colorJitter`. */
export interface JitterOptions extends RandomOptions {
  /** Each image is multiplied by a factor from `1 - brightness` to `1 + brightness`. Default: 0. */
  brightness?: number;
  /** The difference to the mean of the image's grey is multiplied by such a factor. Default: 0. */
  contrast?: number;
  /** The difference to the grey of the pixel is multiplied by such a factor; for three channels. Default: 0. */
  saturation?: number;
  /** The largest value, to which results are limited. Default: 1. */
  max?: number;
}

/** Red, green and blue in grey (ITU-R 601), as torchvision has them. */
const GREY_WEIGHTS = [0.2989, 0.587, 0.114] as const;

/**
 * Changes brightness, then contrast, then saturation of each image `[batch, channels, height, width]` of floats from 0 to
 * `max`. Images with another number of channels than three have their mean as grey. Use it before means are subtracted.
 */
export function colorJitter(x: Tensor, options: JitterOptions = {}): Tensor {
  const { brightness = 0, contrast = 0, saturation = 0, max = 1, random = Math.random } = options;
  const [count, channels] = sizesOf("colorJitter", x);
  if (!x.dtype.includes("f")) throw new ValueError("E_VALUE", `colorJitter takes floats, not ${x.dtype}`);
  for (const [name, strength] of Object.entries({ brightness, contrast, saturation })) {
    if (!(strength >= 0 && Number.isFinite(strength))) throw new ValueError("E_VALUE", `colorJitter: ${name} ${strength}`);
  }
  if (saturation > 0 && channels !== 3) throw new ValueError("E_VALUE", `colorJitter: a saturation of ${channels} channels`);
  const perImage = (values: number[]): Tensor => new Tensor(Float32Array.from(values), [count, 1, 1, 1], on(x)).cast(x.dtype);
  const factors = (strength: number): Tensor => perImage(range(count).map(() => Math.max(0, 1 + strength * (2 * random() - 1))));
  const weights = channels === 3 ? new Tensor(Float32Array.from(GREY_WEIGHTS), [1, 3, 1, 1], on(x)).cast(x.dtype) : undefined;
  const greyOf = (images: Tensor): Tensor => (weights ? images.mul(weights).sum(1, true) : images.mean(1, true));
  const blend = (images: Tensor, base: Tensor, factor: Tensor): Tensor => images.sub(base).mul(factor).add(base).clamp(0, max);
  let out = x;
  if (brightness > 0) out = out.mul(factors(brightness)).clamp(0, max);
  if (contrast > 0) out = blend(out, greyOf(out).mean([2, 3], true), factors(contrast));
  if (saturation > 0) out = blend(out, greyOf(out), factors(saturation));
  return out;
}

/** Options of `mixup`. */
export interface MixupOptions extends RandomOptions {
  /** Both parameters of the beta distribution of the share. Default: 0.2. */
  alpha?: number;
  /** The number of classes, if `y` are class numbers. */
  classes?: number;
}

/**
 * Mixes each example with the one before it in the batch, the first with the last: `share * x + (1 - share) * other`, and the
 * targets alike, with one share for the batch. `x` is `[batch, ..]` of floats, `y` class numbers `[batch]` of an integer dtype,
 * or targets `[batch, ..]` of floats. Class numbers become shares of classes `[batch, classes]`, for `softCrossEntropy`.
 */
export function mixup(x: Tensor, y: Tensor, { alpha = 0.2, classes, random = Math.random }: MixupOptions = {}): { x: Tensor; y: Tensor; share: number } {
  if (!(alpha > 0 && Number.isFinite(alpha))) throw new ValueError("E_VALUE", `mixup: an alpha of ${alpha}`);
  if (!x.dtype.includes("f")) throw new ValueError("E_VALUE", `mixup takes floats, not ${x.dtype}`);
  if (x.rank < 1 || y.rank < 1 || x.shape[0] !== y.shape[0]) throw new ValueError("E_VALUE", `mixup: ${String(x)} and targets ${String(y)}`);
  const isClass = !y.dtype.includes("f");
  if (isClass && !(Number.isInteger(classes) && (classes as number) > 0)) throw new ValueError("E_VALUE", "mixup of class numbers needs `classes`");
  const share = sampleBeta(alpha, random);
  const mix = (t: Tensor): Tensor => {
    const factor = new Tensor(Float32Array.of(share), [1], on(t)).cast(t.dtype);
    const other = t.roll(1, 0);
    return t.sub(other).mul(factor).add(other);
  };
  return { x: mix(x), y: mix(isClass ? y.oneHot(classes as number).cast("f32") : y), share };
}

/** Cross entropy with shares of classes: logits and targets `[batch, classes]`, the mean over the batch. */
export const softCrossEntropy = (logits: Tensor, target: Tensor): Tensor => logits.logSoftmax(1).mul(target).sum(1).mean().neg();

/** A sample of the beta distribution with both parameters `alpha`, of two samples of the gamma distribution. */
function sampleBeta(alpha: number, random: Random): number {
  const [a, b] = [sampleLogGamma(alpha, random), sampleLogGamma(alpha, random)];
  // of logarithms, since samples for a small alpha are often too small for a number
  return 1 / (1 + Math.exp(b - a));
}

/** The logarithm of a sample of the gamma distribution (Marsaglia and Tsang 2000), for a shape below 1 by that of the next one. */
function sampleLogGamma(shape: number, random: Random): number {
  const uniform = (): number => 1 - random();
  if (shape < 1) return sampleLogGamma(shape + 1, random) + Math.log(uniform()) / shape;
  const d = shape - 1 / 3;
  const c = 1 / Math.sqrt(9 * d);
  for (;;) {
    const normal = Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * random());
    const v = (1 + c * normal) ** 3;
    if (v > 0 && Math.log(uniform()) < normal ** 2 / 2 + d - d * v + d * Math.log(v)) return Math.log(d * v);
  }
}
