// Pictures as tensors, and tensors as pictures.
import type { Device } from "../device.js";
import type { DType, TypedArray } from "../dtype.js";
import { UnsupportedError, ValueError } from "../errors.js";
import type { FetchOptions } from "../progress.js";
import { Tensor } from "../tensor.js";
import type { Placement } from "./boxes.js";
import { type ImageSource, type Pixels, type Rgba, newCanvas, readPixels } from "./pixels.js";
import { type Resample, resize } from "./resize.js";

/** One number for all channels, or one for each. */
export type PerChannel = number | readonly number[];

/** How the numbers of a tensor mean colours. */
export interface ColourOptions {
  /** `rgb` unless told otherwise; `bgr` as OpenCV has it; `grey` is one channel (ITU-R 601); `rgba` keeps transparency. */
  channels?: "rgb" | "bgr" | "grey" | "rgba";
  /** A byte times this is the number that mean and std are for: 1/255 for floats, and 1 for integers, which take nothing else. */
  scale?: number;
  /** Subtracted from each channel after scaling: 0. `[0.485, 0.456, 0.406]` for most ImageNet models. */
  mean?: PerChannel;
  /** Divides what is left: 1. `[0.229, 0.224, 0.225]` for most ImageNet models. */
  std?: PerChannel;
}

/** How a picture becomes a tensor. */
export interface ImageOptions extends ColourOptions, FetchOptions {
  /** Height and width of the tensor; one number for a square. Without it the picture keeps its own. */
  size?: number | readonly [height: number, width: number];
  /**
   * What happens to a picture of another shape: `fill` (the default) stretches it, `cover` fills the size and cuts what stands out,
   * `contain` shows all of it and fills the rest with the background.
   */
  fit?: "fill" | "cover" | "contain";
  /** With `cover`, the length of the shorter side before the middle is cut out: torchvision's `Resize(256)`, `CenterCrop(224)`. */
  shortSide?: number;
  /** With `contain`, where the picture lies: in the middle unless told otherwise. */
  align?: "center" | "start";
  /** Fills the rest, and is behind what is transparent: red, green and blue from 0 to 255; black. */
  background?: readonly [number, number, number];
  /** `bilinear` unless told otherwise; results are Pillow's, to the byte. */
  resample?: Resample;
  /** Takes a part of the picture, in its pixels. */
  crop?: { x: number; y: number; width: number; height: number };
  /** `nchw` unless told otherwise; those without `n` leave out the batch axis. */
  layout?: "nchw" | "nhwc" | "chw" | "hwc";
  /** `f32` unless told otherwise. */
  dtype?: DType;
  device?: Device;
}

/** How a tensor becomes a picture: the options that made the tensor undo it. */
export interface PictureOptions extends ColourOptions {
  /** Where the channels are, if the shape does not say. */
  layout?: "chw" | "hwc";
  signal?: AbortSignal;
}

/** An element or an `OffscreenCanvas`. */
export interface AnyCanvas {
  width: number;
  height: number;
}

const LAYOUTS = ["nchw", "nhwc", "chw", "hwc"];
const ORDERS: Record<string, readonly number[]> = { rgb: [0, 1, 2], bgr: [2, 1, 0], rgba: [0, 1, 2, 3], grey: [0] };
/** More pixels than any canvas has. */
const MOST = 1 << 15;

/**
 * A picture as a tensor `[1, 3, height, width]` of f32 from 0 to 1, or as the options say. Fails with `E_FORMAT` for files that are no
 * pictures, `E_UNSUPPORTED` where there is nothing to decode them with, `E_FETCH` and `E_VALUE`.
 */
export async function fromImage(source: ImageSource, options: ImageOptions = {}): Promise<Tensor> {
  return (await fitImage(source, options)).tensor;
}

/** The same, and where the picture lies in the tensor: `scaleBoxes` takes what a detector found back to the picture. */
export async function fitImage(source: ImageSource, options: ImageOptions = {}): Promise<{ tensor: Tensor; placement: Placement }> {
  const order = orderOf(options.channels);
  const picture = await readPixels(source, options);
  const { pixels, placement } = fit(order.length === 4 ? picture : opaque(picture, options.background), options);
  return { tensor: toTensor(pixels, order, options), placement };
}

/** As `fitImage` with the whole picture in the middle of a grey square, as detectors of the YOLO family expect it. */
export function letterbox(
  source: ImageSource,
  options: ImageOptions & { size: NonNullable<ImageOptions["size"]> },
): Promise<{ tensor: Tensor; placement: Placement }> {
  return fitImage(source, { fit: "contain", background: [114, 114, 114], ...options });
}

function orderOf(channels: ColourOptions["channels"] = "rgb"): readonly number[] {
  const order = ORDERS[channels];
  if (!order) throw new ValueError("E_VALUE", `there are no channels \`${String(channels)}\`; there are ${Object.keys(ORDERS).join(", ")}`);
  return order;
}

/** Over a background, if anything is transparent. */
function opaque(from: Rgba, background: readonly number[] = [0, 0, 0]): Rgba {
  const { data } = from;
  let at = 3;
  while (at < data.length && data[at] === 255) at += 4;
  if (at >= data.length) return from;
  const out = new Uint8ClampedArray(data);
  for (; at < out.length; at += 4) {
    const alpha = (data[at] as number) / 255;
    for (let c = 0; c < 3; c += 1) out[at - 3 + c] = alpha * (data[at - 3 + c] as number) + (1 - alpha) * (background[c] as number);
    out[at] = 255;
  }
  return { ...from, data: out };
}

/** To the nearest whole number; halves to the even one. */
function even(x: number): number {
  const low = Math.floor(x);
  return x - low === 0.5 ? low + (low & 1) : Math.round(x);
}

function sizeOf({ size }: ImageOptions, own: readonly [number, number]): readonly [number, number] {
  const [height, width] = size === undefined ? own : typeof size === "number" ? [size, size] : size;
  if (![height, width].every((n) => Number.isInteger(n) && n > 0 && n < MOST)) {
    throw new ValueError("E_VALUE", `a picture cannot be ${height} pixels high and ${width} wide`);
  }
  return [height, width];
}

/** The picture in the size that is asked for. */
function fit(from: Rgba, options: ImageOptions): { pixels: Rgba; placement: Placement } {
  const { fit: how = "fill", resample = "bilinear", align = "center", background = [0, 0, 0] } = options;
  const part = options.crop ?? { x: 0, y: 0, width: from.width, height: from.height };
  const inside = part.x >= 0 && part.y >= 0 && part.width > 0 && part.height > 0 && part.x + part.width <= from.width && part.y + part.height <= from.height;
  if (!inside) {
    throw new ValueError("E_VALUE", `crop: ${part.width} x ${part.height} at ${part.x}, ${part.y} is not inside ${from.width} x ${from.height} pixels`);
  }
  const [height, width] = sizeOf(options, [Math.max(1, Math.round(part.height)), Math.max(1, Math.round(part.width))]);
  let [w, h, left, top] = [width, height, 0, 0];
  if (how === "contain") {
    const scale = Math.min(width / part.width, height / part.height);
    [w, h] = [Math.max(1, even(part.width * scale)), Math.max(1, even(part.height * scale))];
    if (align === "center") [left, top] = [Math.floor((width - w) / 2), Math.floor((height - h) / 2)];
  } else if (how === "cover") {
    const short = Math.min(part.width, part.height);
    const scale = Math.max(width / part.width, height / part.height, (options.shortSide ?? 0) / short);
    // a size that is off by the last bit of a float is whole
    const along = (n: number, least: number): number => Math.max(least, Math.floor(n * scale + 1e-9));
    [w, h] = [along(part.width, width), along(part.height, height)];
    [left, top] = [-even((w - width) / 2), -even((h - height) / 2)];
  } else if (how !== "fill") {
    throw new ValueError("E_VALUE", `there is no fit \`${String(how)}\`; there are fill, cover, contain`);
  }
  const scaled = resize(from, part, w, h, resample);
  const pixels = w === width && h === height ? scaled : placed(scaled, width, height, left, top, background);
  const [scaleX, scaleY] = [w / part.width, h / part.height];
  const placement = { width: from.width, height: from.height, scaleX, scaleY, left: left - part.x * scaleX, top: top - part.y * scaleY };
  return { pixels, placement };
}

/** A picture on a canvas of another size. */
function placed(from: Rgba, width: number, height: number, left: number, top: number, background: readonly number[]): Rgba {
  const data = new Uint8ClampedArray(4 * width * height);
  new Uint32Array(data.buffer).fill(new Uint32Array(Uint8ClampedArray.of(...background, 255).buffer)[0] as number);
  const [x0, x1] = [Math.max(0, left), Math.min(width, left + from.width)];
  for (let y = Math.max(0, top); y < Math.min(height, top + from.height); y += 1) {
    const row = 4 * ((y - top) * from.width + x0 - left);
    data.set(from.data.subarray(row, row + 4 * (x1 - x0)), 4 * (y * width + x0));
  }
  return { data, width, height };
}

const each = (value: PerChannel | undefined, channels: number, other: number, what: string): readonly number[] => {
  const list = typeof value === "object" ? value : new Array<number>(channels).fill(value ?? other);
  if (list.length !== channels) throw new ValueError("E_VALUE", `${what}: ${list.length} numbers for ${channels} channels`);
  return list;
};

/** What the numbers are multiplied with and what is added, by channel; undefined where they are bytes. */
function affine(dtype: DType, options: ColourOptions, channels: number): { times: number[]; plus: number[] } | undefined {
  const { scale, mean, std } = options;
  if (!dtype.includes("f")) {
    if ((scale ?? 1) === 1 && mean === undefined && std === undefined) return undefined;
    throw new ValueError("E_VALUE", `scale, mean and std make floats, not ${dtype}`);
  }
  const [means, stds] = [each(mean, channels, 0, "mean"), each(std, channels, 1, "std")];
  return { times: stds.map((s) => (scale ?? 1 / 255) / s), plus: means.map((m, c) => -m / (stds[c] as number)) };
}

function toTensor({ data, width, height }: Rgba, order: readonly number[], options: ImageOptions): Tensor {
  const { layout = "nchw", dtype = "f32", device } = options;
  if (!LAYOUTS.includes(layout)) throw new ValueError("E_VALUE", `there is no layout \`${String(layout)}\`; there are ${LAYOUTS.join(", ")}`);
  const channels = order.length;
  const plane = width * height;
  const by = affine(dtype, options, channels);
  const out: TypedArray = by ? new Float32Array(channels * plane) : new Uint8Array(channels * plane);
  const first = layout.endsWith("chw");
  const [pixelStep, channelStep] = first ? [1, plane] : [channels, 1];
  const grey = options.channels === "grey";
  order.forEach((from, c) => {
    const [times, plus] = [by?.times[c] ?? 1, by?.plus[c] ?? 0];
    for (let at = 0, place = c * channelStep; at < plane; at += 1, place += pixelStep) {
      const i = 4 * at;
      // the weights that Pillow has
      const [r, g, b] = [data[i], data[i + 1], data[i + 2]] as unknown as [number, number, number];
      const v = grey ? (19595 * r + 38470 * g + 7471 * b + 0x8000) >> 16 : (data[i + from] as number);
      out[place] = v * times + plus;
    }
  });
  const shape = first ? [channels, height, width] : [height, width, channels];
  return new Tensor(out, layout.length === 4 ? [1, ...shape] : shape, { dtype, ...(device && { device }) });
}

/**
 * The picture of a tensor `[1, c, h, w]`, `[c, h, w]`, `[h, w, c]` or `[h, w]` with 1, 3 or 4 channels: floats from 0 to 1, integers from
 * 0 to 255, or what the options undo. What is beyond is cut. Where there is no `ImageData`, as in Node, an object of the same form.
 */
export async function toImageData(tensor: Tensor, options: PictureOptions = {}): Promise<Pixels & { data: Uint8ClampedArray }> {
  const { dtype, shape } = tensor;
  let sizes = shape;
  while (sizes.length > 3 && sizes[0] === 1) sizes = sizes.slice(1);
  if (sizes.length === 2) sizes = [1, ...sizes];
  const colours = (n: number | undefined): boolean => n === 1 || n === 3 || n === 4;
  const layout = shape.length === 2 ? "chw" : (options.layout ?? (colours(sizes[0]) ? "chw" : "hwc"));
  const [channels, height, width] = (layout === "chw" ? sizes : [sizes[2], sizes[0], sizes[1]]) as [number, number, number];
  if (sizes.length !== 3 || !colours(channels) || height * width === 0) {
    throw new ValueError("E_VALUE", `shape [${shape.join(", ")}] is not that of a picture with 1, 3 or 4 channels`);
  }
  const order = channels === 4 ? [0, 1, 2, 3] : channels === 1 ? [0] : options.channels === "bgr" ? [2, 1, 0] : [0, 1, 2];
  const by = affine(dtype, options, channels);
  const values = await tensor.data<DType>(undefined, options.signal ? { signal: options.signal } : {});
  const plane = height * width;
  const data = new Uint8ClampedArray(4 * plane).fill(255);
  const [pixelStep, channelStep] = layout === "chw" ? [1, plane] : [channels, 1];
  const bytes = dtype === "bool" ? 255 : 1;
  for (let at = 0; at < plane; at += 1) {
    order.forEach((to, c) => {
      const v = Number(values[at * pixelStep + c * channelStep]);
      data[4 * at + to] = by ? (v - (by.plus[c] as number)) / (by.times[c] as number) : v * bytes;
    });
    if (channels === 1) data[4 * at + 1] = data[4 * at + 2] = data[4 * at] as number;
  }
  return typeof ImageData === "undefined" ? { data, width, height } : (new ImageData(data, width, height) as Pixels & { data: Uint8ClampedArray });
}

/** Draws a tensor as `toImageData` reads it, on a canvas that takes its size; on a new one if none is given. */
export async function toCanvas<C extends AnyCanvas = AnyCanvas>(tensor: Tensor, canvas?: C, options: PictureOptions = {}): Promise<C> {
  const picture = await toImageData(tensor, options);
  const onto = (canvas ?? newCanvas(picture.width, picture.height)) as HTMLCanvasElement;
  if (onto.width !== picture.width) onto.width = picture.width;
  if (onto.height !== picture.height) onto.height = picture.height;
  const context = onto.getContext?.("2d");
  if (!context) throw new ValueError("E_VALUE", "toCanvas needs a canvas with a 2d context");
  context.putImageData(picture as ImageData, 0, 0);
  return onto as unknown as C;
}

/** The file of a tensor's picture: PNG unless `type` says `image/jpeg` or `image/webp`; `quality` is from 0 to 1. Only in pages and workers. */
export async function toBlob(tensor: Tensor, options: PictureOptions & { type?: string; quality?: number } = {}): Promise<Blob> {
  const { type = "image/png", quality, ...how } = options;
  const canvas = newCanvas(1, 1);
  await toCanvas(tensor, canvas, how);
  const settings = { type, ...(quality !== undefined && { quality }) };
  const blob = canvas.convertToBlob
    ? await canvas.convertToBlob(settings)
    : await new Promise<Blob | null>((done) => (canvas as unknown as HTMLCanvasElement).toBlob(done, type, quality));
  if (!blob || blob.type !== type) throw new UnsupportedError("E_UNSUPPORTED", `this browser writes no ${type}`);
  return blob;
}
