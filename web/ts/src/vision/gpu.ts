// Pictures on WebGPU without a copy through the host. In: the browser's image is copied to a texture, then to a buffer,
// which becomes a tensor; it is cropped, resized and normalised with the same filter weights as in `image.ts`. Out: a
// tensor is drawn to a canvas.
import type { GpuBuffer, Host } from "../device.js";
import { join } from "../parts.js";
import { Tensor, tidy } from "../tensor.js";
import { type Form, affine, layoutOf, pictureForm } from "./form.js";
import type { AnyCanvas, ImageOptions, PictureOptions } from "./image.js";
import type { Shown } from "./pixels.js";
import { BITS, isExact, nearestOf, tapsOf } from "./resize.js";

interface Destroyed {
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
  createTexture(how: object): Destroyed;
  createBuffer(how: object): GpuBuffer & Destroyed;
  createCommandEncoder(): Encoder;
  pushErrorScope(filter: "validation"): void;
  popErrorScope(): Promise<unknown>;
}

/** WebGPU's usage flags of textures and buffers. */
const [TEXTURE_COPY_SRC, TEXTURE_COPY_DST, RENDER_ATTACHMENT] = [1, 2, 16];
const [COPY_SRC, COPY_DST, STORAGE] = [4, 8, 128];
/** Alignment, in pixels, of texture rows in a buffer. */
const ROW = 64;
const FORMAT = "rgba8unorm";

const pitchOf = (width: number): number => Math.ceil(width / ROW) * ROW;

/** Converts a picture to a tensor; undefined if the browser does not give it to the GPU. */
export async function pictureOnGpu(
  seen: Shown,
  form: Form,
  order: readonly number[],
  options: ImageOptions,
  host: Host,
): Promise<Tensor | undefined> {
  const { width, height } = seen;
  const gpu = host.raw.gpu() as Gpu;
  const bytes = 4 * pitchOf(width) * height;
  if (!(bytes > 0) || isTooLarge(width, height, host)) return undefined;
  await join(host.engine, "share");
  // Chromium's software renderer (148) crashes on a video frame used directly; a bitmap of the frame stays on the GPU,
  // too
  const image = seen.moves ? await createImageBitmap(seen.image) : seen.image;
  gpu.pushErrorScope("validation");
  const texture = gpu.createTexture({ size: [width, height], format: FORMAT, usage: TEXTURE_COPY_SRC | TEXTURE_COPY_DST | RENDER_ATTACHMENT });
  const buffer = gpu.createBuffer({ size: bytes, usage: STORAGE | COPY_SRC | COPY_DST });
  const copied = (): boolean => {
    try {
      gpu.queue.copyExternalImageToTexture({ source: image }, { texture, premultipliedAlpha: false, colorSpace: "srgb" }, [width, height]);
    } catch {
      return false; // the element is of another kind or another origin; reading it on the host reports which
    }
    const encoder = gpu.createCommandEncoder();
    encoder.copyTextureToBuffer({ texture }, { buffer, bytesPerRow: 4 * pitchOf(width) }, [width, height]);
    gpu.queue.submit([encoder.finish()]);
    return true;
  };
  const there = copied();
  const refused = gpu.popErrorScope();
  let tensor: Tensor | undefined;
  try {
    if (!there) return undefined;
    const raw = Tensor.fromGPUBuffer(buffer, [height, pitchOf(width), 4], "u8", { device: host });
    try {
      tensor = tidy(() => coloured(placed(raw.narrow(1, 0, width).cast("f32"), seen, form, order, options), order, options));
      // realise now, since the buffer is read only here
      await tensor.realize(options.signal ? { signal: options.signal } : {});
    } finally {
      raw.dispose();
    }
    if (!(await refused)) return tensor;
    tensor.dispose();
    return undefined;
  } catch (error) {
    tensor?.dispose();
    throw error;
  } finally {
    refused.catch(() => {});
    if (seen.moves) (image as ImageBitmap).close();
    texture.destroy();
    buffer.destroy();
  }
}

/** A tensor of per-channel numbers, along the last axis. */
const row = (numbers: readonly number[], device: Host): Tensor => new Tensor(Float32Array.from(numbers), [numbers.length], { device });

/** Resizes and places the picture: byte values as floats, `[height, width, channels]`. */
function placed(pixels: Tensor, seen: Shown, form: Form, order: readonly number[], options: ImageOptions): Tensor {
  const { background = [0, 0, 0], resample = "bilinear" } = options;
  const { part, w, h, width, height, left, top } = form;
  const device = pixels.device as Host;
  const clear = order.length === 4;
  const behind = row(clear ? [...background, 255] : background, device);
  let x = pixels;
  if (!clear) {
    x = pixels.narrow(2, 0, 3);
    if (!seen.opaque) {
      const alpha = pixels.narrow(2, 3, 1).div(255);
      x = x.mul(alpha).add(behind.mul(alpha.neg().add(1))).round();
    }
  }
  const along = (from: Tensor, axis: number, start: number, length: number, inputs: number, size: number): Tensor => {
    if (isExact(start, length, inputs, size)) return from;
    const taps = tapsOf(resample, start, length, size);
    const chosen = (index: Int32Array): Tensor => from.indexSelect(axis, new Tensor(index, null, { device }));
    if (!taps) return chosen(Int32Array.from({ length: size }, (_, at) => nearestOf(at, start, length, size, inputs)));
    const { first, weights, width: count } = taps;
    const taken = chosen(Int32Array.from(weights, (_, at) => Math.min(inputs - 1, (first[Math.floor(at / count)] as number) + (at % count))));
    const shares = new Tensor(Float32Array.from(weights, (n) => n / 2 ** BITS), [size, count, ...new Array<number>(2 - axis).fill(1)], { device });
    const apart = taken.reshape([...taken.shape.slice(0, axis), size, count, ...taken.shape.slice(axis + 1)]);
    return apart.mul(shares).sum(axis + 1).add(0.5).floor().clamp(0, 255);
  };
  x = along(x, 1, part.x, part.width, seen.width, w);
  x = along(x, 0, part.y, part.height, seen.height, h);
  if (w === width && h === height) return x;
  const cut = (from: Tensor, axis: number, at: number, size: number, room: number): Tensor =>
    from.narrow(axis, Math.max(0, -at), Math.min(size, room - at) - Math.max(0, -at));
  x = cut(cut(x, 0, top, h, height), 1, left, w, width);
  const [above, beside] = [Math.max(0, top), Math.max(0, left)];
  const around = [[above, height - above - (x.shape[0] as number)], [beside, width - beside - (x.shape[1] as number)], [0, 0]] as const;
  return x.sub(behind).pad(around).add(behind);
}

/** Converts byte values to the requested channels, scale and dtype. */
function coloured(x: Tensor, order: readonly number[], options: ImageOptions): Tensor {
  const { dtype = "f32", channels } = options;
  const device = x.device as Host;
  let colours = order[0] === 2 ? x.flip(2) : x;
  if (channels === "grey") colours = x.mul(row([19595, 38470, 7471], device)).sum(2, true).add(0x8000).div(65536).floor();
  const by = affine(dtype, options, order.length);
  if (by) colours = colours.mul(row(by.times, device)).add(row(by.plus, device));
  const { first, batch } = layoutOf(options);
  if (first) colours = colours.permute([2, 0, 1]);
  return (batch ? colours.unsqueeze(0) : colours).cast(dtype).contiguous();
}

interface GpuContext {
  configure(how: object): void;
  getCurrentTexture(): object;
}

/** Draws a tensor on a canvas; false if the canvas already has another kind of context. */
export async function showOnGpu(tensor: Tensor, canvas: AnyCanvas, options: PictureOptions): Promise<boolean> {
  const { channels, height, width, first, order } = pictureForm(tensor.shape, options);
  const host = tensor.device as Host;
  const context = (canvas as { getContext?(kind: string): unknown }).getContext?.("webgpu") as GpuContext | null | undefined;
  if (!context || isTooLarge(width, height, host)) return false;
  const by = affine(tensor.dtype, options, channels);
  using bytes = tidy(() => {
    const planes = tensor.reshape(first ? [channels, height, width] : [height, width, channels]).cast("f32");
    let x = first ? planes.permute([1, 2, 0]) : planes;
    if (by) x = x.sub(row(by.plus, host)).div(row(by.times, host));
    else if (tensor.dtype === "bool") x = x.mul(255);
    x = x.clamp(0, 255).round();
    if (channels === 1) x = x.expand([height, width, 3]);
    else if (order[0] === 2) x = x.flip(2);
    if (channels < 4) x = x.pad([[0, 0], [0, 0], [0, 1]], "constant", 255);
    // canvases hold premultiplied alpha
    else x = x.mul(x.narrow(2, 3, 1).div(255).mul(row([1, 1, 1, 0], host)).add(row([0, 0, 0, 1], host))).round();
    return x.pad([[0, 0], [0, pitchOf(width) - width], [0, 0]]).cast("u8").contiguous();
  });
  const { buffer, offset } = await bytes.gpuBuffer(options.signal ? { signal: options.signal } : {});
  const device = host.raw.gpu() as Gpu;
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  context.configure({ device, format: FORMAT, usage: TEXTURE_COPY_DST | RENDER_ATTACHMENT, alphaMode: channels === 4 ? "premultiplied" : "opaque" });
  const encoder = device.createCommandEncoder();
  encoder.copyBufferToTexture({ buffer, offset, bytesPerRow: 4 * pitchOf(width) }, { texture: context.getCurrentTexture() }, [width, height]);
  device.queue.submit([encoder.finish()]);
  return true;
}

function isTooLarge(width: number, height: number, host: Host): boolean {
  const { maxTextureDimension2D } = (host.raw.gpu() as Gpu).limits;
  return Math.max(width, height) > maxTextureDimension2D || 4 * pitchOf(width) * height > host.maxBufferBytes;
}
