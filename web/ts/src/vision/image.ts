// Converts pictures to tensors and tensors to pictures.
import { loadChunk } from "../chunks.js";
import { type Device, type Host, startedHost } from "../device.js";
import type { DType, TypedArray } from "../dtype.js";
import { UnsupportedError, ValueError } from "../errors.js";
import type { FetchOptions } from "../progress.js";
import { Tensor } from "../tensor.js";
import type { Placement } from "./boxes.js";
import { type PictureGeometry, affine, geometryOf, layoutOf, channelOrder, pictureShapeOf } from "./geometry.js";
import { type ImageSource, type Pixels, type Rgba, readDrawable, fromMemory, newCanvas, toDrawable } from "./pixels.js";
import { type Resample, resize } from "./resize.js";

/** One number for all channels, or one per channel. */
export type PerChannel = number | readonly number[];

/** How the numbers of a tensor represent colours. */
export interface ColourOptions {
  /**
   * Channel order: `rgb` (default), `bgr` as in OpenCV, `grey` for one channel (ITU-R 601), `rgba` with transparency.
   */
  channels?: "rgb" | "bgr" | "grey" | "rgba";
  /**
   * Factor on the bytes, before mean and std. Default: 1/255 for floats, and 1 for integers, which accept nothing else.
   */
  scale?: number;
  /** Subtracted from each channel after scaling. Default: 0. Most ImageNet models use `[0.485, 0.456, 0.406]`. */
  mean?: PerChannel;
  /** Divides each channel after that. Default: 1. Most ImageNet models use `[0.229, 0.224, 0.225]`. */
  std?: PerChannel;
}

/** Options for converting a picture to a tensor. */
export interface ImageOptions extends ColourOptions, FetchOptions {
  /** Height and width of the tensor; one number for a square. Default: the picture's size. */
  size?: number | readonly [height: number, width: number];
  /**
   * How a picture of another aspect ratio fits: `fill` (default) stretches it, `cover` covers the size and crops the
   * excess, `contain` shows all of it and pads with the background.
   */
  fit?: "fill" | "cover" | "contain";
  /**
   * With `cover`: the length of the shorter side before the centre is cropped, as in torchvision's `Resize(256)`,
   * `CenterCrop(224)`.
   */
  shortSide?: number;
  /** With `contain`: the position of the picture. Default: `center`. */
  align?: "center" | "start";
  /** The colour of padding and behind transparent pixels: red, green and blue from 0 to 255. Default: black. */
  background?: readonly [number, number, number];
  /** The resampling filter. Default: `bilinear`. Results equal Pillow's byte for byte. */
  resample?: Resample;
  /** Uses only this part of the picture, in its own pixels. */
  crop?: { x: number; y: number; width: number; height: number };
  /** The axis order. Default: `nchw`. Those without `n` have no batch axis. */
  layout?: "nchw" | "nhwc" | "chw" | "hwc";
  /** Default: `f32`. */
  dtype?: DType;
  device?: Device;
  /**
   * Whether a picture that the browser can draw (element, canvas, bitmap, frame or file) is copied directly to a WebGPU
   * device and resized there, without a copy through the host. Default: true on hardware GPUs. Bytes may then differ by
   * one from Pillow's.
   */
  gpu?: boolean;
}

/** Options for converting a tensor to a picture: the options that made the tensor are inverted. */
export interface PictureOptions extends ColourOptions {
  /** The position of the channels, if the shape is ambiguous. */
  layout?: "chw" | "hwc";
  signal?: AbortSignal;
}

/** An element or an `OffscreenCanvas`. */
export interface AnyCanvas {
  width: number;
  height: number;
}

/**
 * Converts a picture to a tensor `[1, 3, height, width]` of f32 from 0 to 1, or as the options say. Fails with
 * `E_FORMAT` for files that are no pictures, `E_UNSUPPORTED` where the host cannot decode them, `E_FETCH` and
 * `E_VALUE`. For a model in the page's worker `imageInput` converts the picture there.
 */
export async function fromImage(source: ImageSource, options: ImageOptions = {}): Promise<Tensor> {
  return (await fitImage(source, options)).tensor;
}

const loadGpu = (): Promise<typeof import("./gpu.js")> => loadChunk("gpu", () => import("./gpu.js"));

/**
 * Like `fromImage`, and gives the picture's placement in the tensor, by which `scaleBoxes` maps detections back to the
 * picture.
 */
export async function fitImage(source: ImageSource, options: ImageOptions = {}): Promise<{ tensor: Tensor; placement: Placement }> {
  const order = channelOrder(options.channels);
  const drawable = await toDrawable(source, options);
  try {
    const host = drawable && gpuHost(options);
    if (host) {
      const geometry = geometryOf(drawable, options);
      const tensor = await (await loadGpu()).pictureOnGpu(drawable, geometry, order, options, host);
      if (tensor) return { tensor, placement: geometry.placement };
    }
    const picture = drawable ? readDrawable(drawable) : fromMemory(source as Pixels);
    const geometry = geometryOf(picture, options);
    const pixels = resizeAndPlace(order.length === 4 ? picture : blendBackground(picture, options.background), geometry, options);
    return { tensor: toTensor(pixels, order, options), placement: geometry.placement };
  } finally {
    drawable?.close?.();
  }
}

/** The WebGPU device to which a picture is copied directly, if any. */
function gpuHost({ gpu, device }: ImageOptions): Host | undefined {
  if (gpu === false) return undefined;
  const host = (device as Host | undefined) ?? startedHost();
  return host?.kind === "webgpu" && (gpu || !host.software) && !host.raw.lost() ? host : undefined;
}

/** `fitImage` with the whole picture centred in a grey square, as detectors of the YOLO family expect. */
export function letterbox(
  source: ImageSource,
  options: ImageOptions & { size: NonNullable<ImageOptions["size"]> },
): Promise<{ tensor: Tensor; placement: Placement }> {
  return fitImage(source, { fit: "contain", background: [114, 114, 114], ...options });
}

/** Blends transparent pixels with a background, if there are any. */
function blendBackground(from: Rgba, background: readonly number[] = [0, 0, 0]): Rgba {
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

/** Resizes and places the picture. */
function resizeAndPlace(from: Rgba, geometry: PictureGeometry, { resample = "bilinear", background = [0, 0, 0] }: ImageOptions): Rgba {
  const { part, w, h, width, height, left, top } = geometry;
  const scaled = resize(from, part, w, h, resample);
  return w === width && h === height ? scaled : placeOnBackground(scaled, width, height, left, top, background);
}

/** Places a picture on a background of another size. */
function placeOnBackground(from: Rgba, width: number, height: number, left: number, top: number, background: readonly number[]): Rgba {
  const data = new Uint8ClampedArray(4 * width * height);
  new Uint32Array(data.buffer).fill(new Uint32Array(Uint8ClampedArray.of(...background, 255).buffer)[0] as number);
  const [x0, x1] = [Math.max(0, left), Math.min(width, left + from.width)];
  for (let y = Math.max(0, top); y < Math.min(height, top + from.height); y += 1) {
    const row = 4 * ((y - top) * from.width + x0 - left);
    data.set(from.data.subarray(row, row + 4 * (x1 - x0)), 4 * (y * width + x0));
  }
  return { data, width, height };
}

function toTensor({ data, width, height }: Rgba, order: readonly number[], options: ImageOptions): Tensor {
  const { dtype = "f32", device } = options;
  const { channelsFirst, batch } = layoutOf(options);
  const channels = order.length;
  const plane = width * height;
  const transform = affine(dtype, options, channels);
  const out: TypedArray = transform ? new Float32Array(channels * plane) : new Uint8Array(channels * plane);
  const [pixelStep, channelStep] = channelsFirst ? [1, plane] : [channels, 1];
  const grey = options.channels === "grey";
  order.forEach((from, c) => {
    const [times, plus] = [transform?.times[c] ?? 1, transform?.plus[c] ?? 0];
    for (let at = 0, outIdx = c * channelStep; at < plane; at += 1, outIdx += pixelStep) {
      const i = 4 * at;
      // Pillow's weights for grey
      const [r, g, b] = [data[i], data[i + 1], data[i + 2]] as unknown as [number, number, number];
      const v = grey ? (19595 * r + 38470 * g + 7471 * b + 0x8000) >> 16 : (data[i + from] as number);
      out[outIdx] = v * times + plus;
    }
  });
  const shape = channelsFirst ? [channels, height, width] : [height, width, channels];
  return new Tensor(out, batch ? [1, ...shape] : shape, { dtype, ...(device && { device }) });
}

/**
 * Converts a tensor `[1, c, h, w]`, `[c, h, w]`, `[h, w, c]` or `[h, w]` with 1, 3 or 4 channels to a picture: floats
 * from 0 to 1, integers from 0 to 255, or as the options say. Values out of range are clamped. Where there is no
 * `ImageData`, as in Node, gives an object of the same form.
 */
export async function toImageData(tensor: Tensor, options: PictureOptions = {}): Promise<Pixels & { data: Uint8ClampedArray }> {
  const { dtype, shape } = tensor;
  const { channels, height, width, channelsFirst, order } = pictureShapeOf(shape, options);
  const transform = affine(dtype, options, channels);
  const values = await tensor.data<DType>(undefined, options.signal ? { signal: options.signal } : {});
  const plane = height * width;
  const data = new Uint8ClampedArray(4 * plane).fill(255);
  const [pixelStep, channelStep] = channelsFirst ? [1, plane] : [channels, 1];
  const bytes = dtype === "bool" ? 255 : 1;
  for (let at = 0; at < plane; at += 1) {
    order.forEach((to, c) => {
      const v = Number(values[at * pixelStep + c * channelStep]);
      data[4 * at + to] = transform ? (v - (transform.plus[c] as number)) / (transform.times[c] as number) : v * bytes;
    });
    if (channels === 1) data[4 * at + 1] = data[4 * at + 2] = data[4 * at] as number;
  }
  return typeof ImageData === "undefined" ? { data, width, height } : (new ImageData(data, width, height) as Pixels & { data: Uint8ClampedArray });
}

/**
 * Draws a tensor (interpreted as by `toImageData`) on a canvas, which takes its size; on a new canvas if none is given.
 * With `gpu`, a tensor on WebGPU goes to the canvas without leaving the GPU, if the canvas has no context other than
 * `webgpu`; `getImageData` cannot read such a canvas.
 */
export async function toCanvas<C extends AnyCanvas = AnyCanvas>(tensor: Tensor, canvas?: C, options: PictureOptions & { gpu?: boolean } = {}): Promise<C> {
  if (options.gpu && tensor.device?.kind === "webgpu") {
    const { height, width } = pictureShapeOf(tensor.shape, options);
    const target = (canvas ?? newCanvas(width, height)) as C;
    if (await (await loadGpu()).showOnGpu(tensor, target, options)) return target;
    canvas = target;
  }
  const picture = await toImageData(tensor, options);
  const target = (canvas ?? newCanvas(picture.width, picture.height)) as HTMLCanvasElement;
  if (target.width !== picture.width) target.width = picture.width;
  if (target.height !== picture.height) target.height = picture.height;
  const context = target.getContext?.("2d");
  if (!context) throw new ValueError("E_VALUE", "toCanvas needs a canvas with a 2d context");
  context.putImageData(picture as ImageData, 0, 0);
  return target as unknown as C;
}

/**
 * Encodes a tensor as an image file: PNG, or `type` `image/jpeg` or `image/webp`; `quality` is from 0 to 1. Only in
 * pages and workers.
 */
export async function toBlob(tensor: Tensor, options: PictureOptions & { type?: string; quality?: number } = {}): Promise<Blob> {
  const { type = "image/png", quality, ...pictureOptions } = options;
  const canvas = newCanvas(1, 1);
  await toCanvas(tensor, canvas, pictureOptions);
  const settings = { type, ...(quality !== undefined && { quality }) };
  const blob = canvas.convertToBlob
    ? await canvas.convertToBlob(settings)
    : await new Promise<Blob | null>((done) => (canvas as unknown as HTMLCanvasElement).toBlob(done, type, quality));
  if (!blob || blob.type !== type) throw new UnsupportedError("E_UNSUPPORTED", `this browser writes no ${type}`);
  return blob;
}
