// Resizes pictures with the same bytes as Pillow (src/libImaging/Resample.c, 8 bits per channel), with which most
// models were trained: filters widen when a picture shrinks, and each pass rounds to bytes.
import { ValueError } from "../errors.js";
import type { Rgba } from "./pixels.js";

/** The resampling filter. `box` averages areas; all but `nearest` widen when a picture shrinks. */
export type Resample = "nearest" | "box" | "bilinear" | "bicubic" | "lanczos";

interface Filter {
  support: number;
  weight(x: number): number;
}

const sinc = (x: number): number => (x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x));

const FILTERS: Record<Exclude<Resample, "nearest">, Filter> = {
  box: { support: 0.5, weight: (x) => (x > -0.5 && x <= 0.5 ? 1 : 0) },
  bilinear: { support: 1, weight: (x) => Math.max(0, 1 - Math.abs(x)) },
  bicubic: {
    support: 2,
    weight(x) {
      const [a, t] = [-0.5, Math.abs(x)];
      if (t < 1) return ((a + 2) * t - (a + 3)) * t * t + 1;
      return t < 2 ? (((t - 5) * t + 8) * t - 4) * a : 0;
    },
  },
  lanczos: { support: 3, weight: (x) => (x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0) },
};

/** Fractional bits of the fixed-point weights. */
export const WEIGHT_BITS = 22;

export interface Taps {
  /** The first input of each output, and the number of inputs. */
  first: Int32Array;
  count: Int32Array;
  /** The weights, `width` per output. */
  weights: Int32Array;
  width: number;
}

/**
 * The filter weights of one axis, which map `length` inputs from `start` on to `size` outputs. Inputs outside of that
 * range are not used.
 */
function filterTaps(filter: Filter, start: number, length: number, size: number): Taps {
  const [low, high] = [Math.floor(start), Math.ceil(start + length)];
  const scale = length / size;
  const stretch = Math.max(1, scale);
  const support = filter.support * stretch;
  const width = 2 * Math.ceil(support) + 1;
  const [first, count, weights] = [new Int32Array(size), new Int32Array(size), new Int32Array(size * width)];
  const row = new Float64Array(width);
  for (let out = 0; out < size; out += 1) {
    const center = start + (out + 0.5) * scale;
    const from = Math.max(low, Math.trunc(center - support + 0.5));
    const tapCount = Math.min(high, Math.trunc(center + support + 0.5)) - from;
    let sum = 0;
    for (let x = 0; x < tapCount; x += 1) sum += row[x] = filter.weight((x + from - center + 0.5) / stretch);
    for (let x = 0; x < tapCount; x += 1) {
      const w = (sum === 0 ? (row[x] as number) : (row[x] as number) / sum) * 2 ** WEIGHT_BITS;
      weights[out * width + x] = Math.trunc(w < 0 ? w - 0.5 : w + 0.5);
    }
    first[out] = from;
    count[out] = tapCount;
  }
  return { first, count, weights, width };
}

/** The filter weights of an axis by the filter's name; undefined for `nearest`, where each output is one input. */
export function tapsOf(filterName: Resample, start: number, length: number, size: number): Taps | undefined {
  if (filterName === "nearest") return undefined;
  const filter = FILTERS[filterName] as Filter | undefined;
  if (!filter) throw new ValueError("E_VALUE", `there is no way \`${String(filterName)}\` to resample; there are nearest, ${Object.keys(FILTERS).join(", ")}`);
  return filterTaps(filter, start, length, size);
}

/** The input that an output equals, without a filter. */
export const nearestOf = (out: number, start: number, length: number, size: number, inputs: number): number =>
  Math.min(inputs - 1, Math.max(0, Math.floor(start + ((out + 0.5) * length) / size)));

/** Whether an axis is unchanged. */
export const isUnchanged = (start: number, length: number, inputs: number, size: number): boolean => start === 0 && length === inputs && size === inputs;

/** Strides in bytes between pixels of a line and between lines, of the source and of the result. */
interface Strides {
  fromPixel: number;
  fromLine: number;
  toPixel: number;
  toLine: number;
}

/** Applies the filter along one axis, for all four channels: each of `lines` lines becomes `size` pixels. */
function filterAxis(from: Rgba["data"], to: Uint8ClampedArray, t: Taps, size: number, lines: number, strides: Strides): void {
  const { first, count, weights, width } = t;
  const { fromPixel, fromLine, toPixel, toLine } = strides;
  for (let line = 0; line < lines; line += 1) {
    for (let out = 0; out < size; out += 1) {
      let r = 1 << (WEIGHT_BITS - 1);
      let [g, b, a] = [r, r, r];
      let at = line * fromLine + (first[out] as number) * fromPixel;
      const base = out * width;
      for (let x = 0; x < (count[out] as number); x += 1, at += fromPixel) {
        const w = weights[base + x] as number;
        r += w * (from[at] as number);
        g += w * (from[at + 1] as number);
        b += w * (from[at + 2] as number);
        a += w * (from[at + 3] as number);
      }
      const toIdx = line * toLine + out * toPixel;
      // the clamped array clamps to 0..255
      to[toIdx] = r >> WEIGHT_BITS;
      to[toIdx + 1] = g >> WEIGHT_BITS;
      to[toIdx + 2] = b >> WEIGHT_BITS;
      to[toIdx + 3] = a >> WEIGHT_BITS;
    }
  }
}

/** Resizes a part of a picture; its corner `x, y` may be fractional. */
export function resize(from: Rgba, part: { x: number; y: number; width: number; height: number }, width: number, height: number, filterName: Resample): Rgba {
  const whole = part.x === 0 && part.y === 0 && part.width === from.width && part.height === from.height;
  if (whole && width === from.width && height === from.height) return from;
  if (filterName === "nearest") return nearest(from, part, width, height);
  let { data } = from;
  if (!isUnchanged(part.x, part.width, from.width, width)) {
    const out = new Uint8ClampedArray(4 * width * from.height);
    const t = tapsOf(filterName, part.x, part.width, width) as Taps;
    filterAxis(data, out, t, width, from.height, { fromPixel: 4, fromLine: 4 * from.width, toPixel: 4, toLine: 4 * width });
    data = out;
  }
  if (!isUnchanged(part.y, part.height, from.height, height)) {
    const out = new Uint8ClampedArray(4 * width * height);
    const t = tapsOf(filterName, part.y, part.height, height) as Taps;
    filterAxis(data, out, t, height, width, { fromPixel: 4 * width, fromLine: 4, toPixel: 4 * width, toLine: 4 });
    data = out;
  }
  return { data, width, height };
}

function nearest(from: Rgba, part: { x: number; y: number; width: number; height: number }, width: number, height: number): Rgba {
  const data = new Uint8ClampedArray(4 * width * height);
  for (let y = 0; y < height; y += 1) {
    const row = nearestOf(y, part.y, part.height, height, from.height) * from.width;
    for (let x = 0; x < width; x += 1) {
      const at = 4 * (row + nearestOf(x, part.x, part.width, width, from.width));
      for (let c = 0; c < 4; c += 1) data[4 * (y * width + x) + c] = from.data[at + c] as number;
    }
  }
  return { data, width, height };
}
