// Pictures on WebGPU without a copy through the host. In: the browser's image is copied to a texture, then to a buffer,
// which becomes a tensor; it is cropped, resized and normalised with the same filter weights as in `image.ts`. Out: a
// tensor is drawn to a canvas.
import type { GpuBuffer, Host } from "../device.js";
import { loadPart } from "../wasm-parts.js";
import { Tensor, tidy } from "../tensor.js";
import { type PictureGeometry, affine, layoutOf, pictureShapeOf } from "./geometry.js";
import type { AnyCanvas, ImageOptions, PictureOptions } from "./image.js";
import type { Drawable } from "./pixels.js";
import { WEIGHT_BITS, isUnchanged, nearestOf, tapsOf } from "./resize.js";

interface Destroyable {
  destroy(): void;
}
interface Encoder {
  copyTextureToBuffer(from: object, to: object, size: readonly number[]): void;
  copyBufferToTexture(from: object, to: object, size: readonly number[]): void;
  finish(): unknown;
}
/** The part of WebGPU's device that is used here, since the page's type library may lack it. */
interface Gpu {
  readonly limits: { readonly maxTextureDimension2D: number };
  readonly queue: { copyExternalImageToTexture(from: object, to: object, size: readonly number[]): void; submit(list: unknown[]): void };
  createTexture(descriptor: object): Destroyable;
  createBuffer(descriptor: object): GpuBuffer & Destroyable;
  createCommandEncoder(): Encoder;
  pushErrorScope(filter: "validation"): void;
  popErrorScope(): Promise<unknown>;
}

/** WebGPU's usage flags of textures and buffers. */
const [TEXTURE_COPY_SRC, TEXTURE_COPY_DST, RENDER_ATTACHMENT] = [1, 2, 16];
const [COPY_SRC, COPY_DST, STORAGE] = [4, 8, 128];
/** Alignment, in pixels, of texture rows in a buffer. */
const ROW_ALIGNMENT = 64;
const FORMAT = "rgba8unorm";

const rowPixels = (width: number): number => Math.ceil(width / ROW_ALIGNMENT) * ROW_ALIGNMENT;

/** Converts a picture to a tensor; undefined if the browser does not give it to the GPU. */
export async function pictureOnGpu(
  drawable: Drawable,
  geometry: PictureGeometry,
  order: readonly number[],
  options: ImageOptions,
  host: Host,
): Promise<Tensor | undefined> {
  const { width, height } = drawable;
  const gpu = host.raw.gpu() as Gpu;
  const bytes = 4 * rowPixels(width) * height;
  if (!(bytes > 0) || isTooLarge(width, height, host)) return undefined;
  await loadPart(host.engine, "share");
  // Chromium's software renderer (148) crashes on a video frame used directly; a bitmap of the frame stays on the GPU,
  // too
  const image = drawable.isVideo ? await createImageBitmap(drawable.image) : drawable.image;
  gpu.pushErrorScope("validation");
  const texture = gpu.createTexture({ size: [width, height], format: FORMAT, usage: TEXTURE_COPY_SRC | TEXTURE_COPY_DST | RENDER_ATTACHMENT });
  const buffer = gpu.createBuffer({ size: bytes, usage: STORAGE | COPY_SRC | COPY_DST });
  const copyImage = (): boolean => {
    try {
      gpu.queue.copyExternalImageToTexture({ source: image }, { texture, premultipliedAlpha: false, colorSpace: "srgb" }, [width, height]);
    } catch {
      return false; // the element is of another kind or another origin; reading it on the host reports which
    }
    const encoder = gpu.createCommandEncoder();
    encoder.copyTextureToBuffer({ texture }, { buffer, bytesPerRow: 4 * rowPixels(width) }, [width, height]);
    gpu.queue.submit([encoder.finish()]);
    return true;
  };
  const isCopied = copyImage();
  const validationError = gpu.popErrorScope();
  let tensor: Tensor | undefined;
  try {
    if (!isCopied) return undefined;
    const raw = Tensor.fromGPUBuffer(buffer, [height, rowPixels(width), 4], "u8", { device: host });
    try {
      tensor = tidy(() => toChannels(resizeAndPlace(raw.narrow(1, 0, width).cast("f32"), drawable, geometry, order, options), order, options));
      // realise now, since the buffer is read only here
      await tensor.realize(options.signal ? { signal: options.signal } : {});
    } finally {
      raw.dispose();
    }
    if (!(await validationError)) return tensor;
    tensor.dispose();
    return undefined;
  } catch (error) {
    tensor?.dispose();
    throw error;
  } finally {
    validationError.catch(() => {});
    if (drawable.isVideo) (image as ImageBitmap).close();
    texture.destroy();
    buffer.destroy();
  }
}

/** A tensor of per-channel numbers, along the last axis. */
const channelTensor = (numbers: readonly number[], device: Host): Tensor => new Tensor(Float32Array.from(numbers), [numbers.length], { device });

/** Resizes and places the picture: byte values as floats, `[height, width, channels]`. */
function resizeAndPlace(pixels: Tensor, drawable: Drawable, geometry: PictureGeometry, order: readonly number[], options: ImageOptions): Tensor {
  const { background = [0, 0, 0], resample = "bilinear" } = options;
  const { part, w, h, width, height, left, top } = geometry;
  const device = pixels.device as Host;
  const hasAlpha = order.length === 4;
  const backgroundTensor = channelTensor(hasAlpha ? [...background, 255] : background, device);
  let x = pixels;
  if (!hasAlpha) {
    x = pixels.narrow(2, 0, 3);
    if (!drawable.opaque) {
      const alpha = pixels.narrow(2, 3, 1).div(255);
      x = x.mul(alpha).add(backgroundTensor.mul(alpha.neg().add(1))).round();
    }
  }
  const resizeAxis = (from: Tensor, axis: number, start: number, length: number, inputSize: number, size: number): Tensor => {
    if (isUnchanged(start, length, inputSize, size)) return from;
    const taps = tapsOf(resample, start, length, size);
    const select = (index: Int32Array): Tensor => from.indexSelect(axis, new Tensor(index, null, { device }));
    if (!taps) return select(Int32Array.from({ length: size }, (_, at) => nearestOf(at, start, length, size, inputSize)));
    const { first, weights, width: count } = taps;
    const gathered = select(Int32Array.from(weights, (_, at) => Math.min(inputSize - 1, (first[Math.floor(at / count)] as number) + (at % count))));
    const tapWeights = new Tensor(Float32Array.from(weights, (n) => n / 2 ** WEIGHT_BITS), [size, count, ...new Array<number>(2 - axis).fill(1)], { device });
    const grouped = gathered.reshape([...gathered.shape.slice(0, axis), size, count, ...gathered.shape.slice(axis + 1)]);
    return grouped.mul(tapWeights).sum(axis + 1).add(0.5).floor().clamp(0, 255);
  };
  x = resizeAxis(x, 1, part.x, part.width, drawable.width, w);
  x = resizeAxis(x, 0, part.y, part.height, drawable.height, h);
  if (w === width && h === height) return x;
  const cropAxis = (from: Tensor, axis: number, at: number, size: number, limit: number): Tensor =>
    from.narrow(axis, Math.max(0, -at), Math.min(size, limit - at) - Math.max(0, -at));
  x = cropAxis(cropAxis(x, 0, top, h, height), 1, left, w, width);
  const [padTop, padLeft] = [Math.max(0, top), Math.max(0, left)];
  const padding = [[padTop, height - padTop - (x.shape[0] as number)], [padLeft, width - padLeft - (x.shape[1] as number)], [0, 0]] as const;
  return x.sub(backgroundTensor).pad(padding).add(backgroundTensor);
}

/** Converts byte values to the requested channels, scale and dtype. */
function toChannels(x: Tensor, order: readonly number[], options: ImageOptions): Tensor {
  const { dtype = "f32", channels } = options;
  const device = x.device as Host;
  let colours = order[0] === 2 ? x.flip(2) : x;
  if (channels === "grey") colours = x.mul(channelTensor([19595, 38470, 7471], device)).sum(2, true).add(0x8000).div(65536).floor();
  const transform = affine(dtype, options, order.length);
  if (transform) colours = colours.mul(channelTensor(transform.times, device)).add(channelTensor(transform.plus, device));
  const { channelsFirst, batch } = layoutOf(options);
  if (channelsFirst) colours = colours.permute([2, 0, 1]);
  return (batch ? colours.unsqueeze(0) : colours).cast(dtype).contiguous();
}

interface GpuContext {
  configure(descriptor: object): void;
  getCurrentTexture(): object;
}

/** Draws a tensor on a canvas; false if the canvas already has another kind of context. */
export async function showOnGpu(tensor: Tensor, canvas: AnyCanvas, options: PictureOptions): Promise<boolean> {
  const { channels, height, width, channelsFirst, order } = pictureShapeOf(tensor.shape, options);
  const host = tensor.device as Host;
  const context = (canvas as { getContext?(kind: string): unknown }).getContext?.("webgpu") as GpuContext | null | undefined;
  if (!context || isTooLarge(width, height, host)) return false;
  const transform = affine(tensor.dtype, options, channels);
  using bytes = tidy(() => {
    const planes = tensor.reshape(channelsFirst ? [channels, height, width] : [height, width, channels]).cast("f32");
    let x = channelsFirst ? planes.permute([1, 2, 0]) : planes;
    if (transform) x = x.sub(channelTensor(transform.plus, host)).div(channelTensor(transform.times, host));
    else if (tensor.dtype === "bool") x = x.mul(255);
    x = x.clamp(0, 255).round();
    if (channels === 1) x = x.expand([height, width, 3]);
    else if (order[0] === 2) x = x.flip(2);
    if (channels < 4) x = x.pad([[0, 0], [0, 0], [0, 1]], "constant", 255);
    // canvases hold premultiplied alpha
    else x = x.mul(x.narrow(2, 3, 1).div(255).mul(channelTensor([1, 1, 1, 0], host)).add(channelTensor([0, 0, 0, 1], host))).round();
    return x.pad([[0, 0], [0, rowPixels(width) - width], [0, 0]]).cast("u8").contiguous();
  });
  const { buffer, offset } = await bytes.gpuBuffer(options.signal ? { signal: options.signal } : {});
  const device = host.raw.gpu() as Gpu;
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  context.configure({ device, format: FORMAT, usage: TEXTURE_COPY_DST | RENDER_ATTACHMENT, alphaMode: channels === 4 ? "premultiplied" : "opaque" });
  const encoder = device.createCommandEncoder();
  encoder.copyBufferToTexture({ buffer, offset, bytesPerRow: 4 * rowPixels(width) }, { texture: context.getCurrentTexture() }, [width, height]);
  device.queue.submit([encoder.finish()]);
  return true;
}

function isTooLarge(width: number, height: number, host: Host): boolean {
  const { maxTextureDimension2D } = (host.raw.gpu() as Gpu).limits;
  return Math.max(width, height) > maxTextureDimension2D || 4 * rowPixels(width) * height > host.maxBufferBytes;
}
