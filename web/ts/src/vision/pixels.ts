// Reads pictures from elements, files or memory as RGBA bytes. Independent of tensors.
import { loadChunk } from "../chunks.js";
import { DeviceError, FormatError, GradloomError, UnsupportedError, ValueError } from "../errors.js";
import { type FetchOptions, readSource } from "../progress.js";

/** The type of a DOM class, or `never` if the program's type libraries lack it. */
export type DomInstance<Name extends string> = typeof globalThis extends { [Key in Name]: { prototype: infer T } } ? T : never;

/** Pixels in memory, row by row from the top: an `ImageData`, or any object of its form. */
export interface Pixels {
  /** RGBA; with `data.length / (width * height)` of 1 or 3 grey or RGB. */
  readonly data: Uint8ClampedArray | Uint8Array;
  readonly width: number;
  readonly height: number;
}

/**
 * The source of a picture. A string is a URL, or in Node also a path; image elements must be loaded, and a video must
 * have a frame. Of a `MediaStream` or `MediaStreamTrack` (a camera, a screen, `captureStream()` of a canvas) the newest frame
 * is taken. Node cannot decode pictures and takes only `Pixels`.
 */
export type ImageSource =
  | DomInstance<"HTMLImageElement">
  | DomInstance<"SVGImageElement">
  | DomInstance<"HTMLVideoElement">
  | DomInstance<"HTMLCanvasElement">
  | DomInstance<"OffscreenCanvas">
  | DomInstance<"ImageBitmap">
  | DomInstance<"VideoFrame">
  | DomInstance<"MediaStream">
  | DomInstance<"MediaStreamTrack">
  | Pixels
  | Blob
  | Uint8Array
  | ArrayBuffer
  | string
  | URL;

/** RGBA bytes of a picture. */
export interface Rgba {
  data: Uint8ClampedArray | Uint8Array;
  width: number;
  height: number;
}

/** @internal */
interface Canvas {
  width: number;
  height: number;
  getContext(kind: "2d", options?: object): CanvasRenderingContext2D | null;
}

/** In a worker: a function of the page that decodes files which the worker cannot. */
export const pageDecoder: { decode?: (file: Blob) => Promise<ImageBitmap> } = {};

/**
 * The class name of a value. By name, so that elements of other windows and classes that the host lacks are recognised
 * too.
 */
const classNameOf = (value: unknown): string => Object.prototype.toString.call(value).slice(8, -1);

/** @internal A canvas that is not displayed. */
export function newCanvas(width: number, height: number): Canvas & { convertToBlob?: OffscreenCanvas["convertToBlob"] } {
  if (typeof OffscreenCanvas !== "undefined") return new OffscreenCanvas(width, height) as unknown as Canvas;
  if (typeof document !== "undefined") return Object.assign(document.createElement("canvas"), { width, height });
  const hint = "decode pictures with a library such as sharp and give { data, width, height }";
  throw new UnsupportedError("E_UNSUPPORTED", "there is no canvas here", { hint });
}

/** @internal A picture that a browser can draw, at its original size. */
export interface Drawable {
  image: CanvasImageSource;
  width: number;
  height: number;
  /** Whether it has no transparent pixels. */
  opaque: boolean;
  /** Whether it is a frame of a video. */
  isVideo?: boolean;
  /** Frees the picture, if it was created here. */
  close?: () => void;
}

/** Whether a value of this class is a stream or track; those of a canvas or a screen have classes of their own. */
const isStreamClass = (className: string): boolean => /MediaStream(Track)?$/.test(className);

/** Whether a canvas has lost its contents, as when the GPU's process ends: until the browser restores it, it reads as blank. */
function isLostCanvas(canvas: OffscreenCanvas): boolean {
  try {
    return canvas.getContext("2d")?.isContextLost?.() === true;
  } catch {
    return false; // another thread draws it
  }
}

/** Reads the pixels of a source at its original size. */
export async function readPixels(source: ImageSource, options: FetchOptions): Promise<Rgba> {
  const drawable = await toDrawable(source, options);
  try {
    return drawable ? readDrawable(drawable) : fromMemory(source as Pixels);
  } finally {
    drawable?.close?.();
  }
}

const BITMAP_SOURCES = new Set(["HTMLImageElement", "HTMLVideoElement", "HTMLCanvasElement", "OffscreenCanvas", "ImageBitmap"]);

/**
 * Reads a picture again after a GPU was lost while it was used. Gives its pixels if the GPU's process may have
 * held it, else the source itself. `loss` is thrown if the picture may be lost as well. Seen in Chromium 148: when that
 * process ends, the canvases and bitmaps that it held read as transparent, and its frames as black, without any error.
 */
export async function readAfterLoss(source: ImageSource, loss: unknown, options: FetchOptions): Promise<ImageSource> {
  const kind = classNameOf(source);
  const isFilm = /^Video|^HTMLVideo/.test(kind) || isStreamClass(kind);
  if (!isFilm && !BITMAP_SOURCES.has(kind)) return source;
  const { data, width, height } = await readPixels(source, options);
  if (data.some((v, at) => v !== 0 && !(isFilm && at % 4 === 3))) return { data, width, height };
  throw loss;
}

/** @internal Converts a source to something that the browser can draw, decoding files. Undefined for pixels in memory. */
export async function toDrawable(source: ImageSource, options: FetchOptions): Promise<Drawable | undefined> {
  options.signal?.throwIfAborted();
  const kind = classNameOf(source);
  const isInMemory = source instanceof ArrayBuffer || source instanceof Uint8Array;
  if (typeof source === "string" || source instanceof URL || kind === "Blob" || kind === "File" || isInMemory) {
    return decodeFile(source as Blob, options);
  }
  if (isStreamClass(kind)) {
    const { playerOf } = await loadChunk("streams");
    return toDrawable(await playerOf(source as MediaStream, options.signal), options);
  }
  const image = source as CanvasImageSource;
  const drawable = (width: number, height: number, flags: Partial<Drawable> = {}): Drawable => ({ image, width, height, opaque: false, ...flags });
  switch (kind) {
    case "HTMLImageElement": {
      const element = source as HTMLImageElement;
      await element.decode().catch((cause: Error) => {
        const what = `the picture of the element cannot be read: ${element.currentSrc || element.src || "it has no address"}`;
        throw new FormatError("E_FORMAT", what, { cause });
      });
      return drawable(element.naturalWidth, element.naturalHeight);
    }
    case "HTMLVideoElement": {
      const video = source as HTMLVideoElement;
      if (video.readyState < 2) throw new ValueError("E_VALUE", "the video has no frame yet", { hint: "wait for its `loadeddata` event" });
      return drawable(video.videoWidth, video.videoHeight, { opaque: true, isVideo: true });
    }
    case "VideoFrame": {
      const frame = source as VideoFrame;
      // names of formats with an alpha channel contain an A
      return drawable(frame.displayWidth, frame.displayHeight, { opaque: frame.format !== null && !frame.format.includes("A"), isVideo: true });
    }
    case "SVGImageElement": {
      const { width, height } = (source as SVGImageElement).getBoundingClientRect();
      return drawable(Math.round(width), Math.round(height));
    }
    case "HTMLCanvasElement":
    case "OffscreenCanvas":
      if (isLostCanvas(source as OffscreenCanvas)) {
        const hint = "draw it again after its `contextrestored` event";
        throw new DeviceError("E_DEVICE_LOST", "the browser has lost what the canvas held", { hint });
      }
    // falls through
    case "ImageBitmap": {
      const { width, height } = source as ImageBitmap;
      return drawable(width, height);
    }
    default:
      return undefined;
  }
}

async function decodeFile(source: Blob | Uint8Array | ArrayBuffer | string | URL, options: FetchOptions): Promise<Drawable> {
  if (typeof createImageBitmap === "undefined") {
    const hint = "decode pictures with a library such as sharp and give { data, width, height }";
    throw new UnsupportedError("E_UNSUPPORTED", "files of pictures cannot be decoded here: createImageBitmap is missing", { hint });
  }
  const blob = source instanceof Blob ? source : new Blob([(await readSource(source, options)) as Uint8Array<ArrayBuffer>]);
  options.signal?.throwIfAborted();
  const bitmap = await decodeBlob(blob).catch(async (cause: Error) => {
    const name = source instanceof Blob || source instanceof Uint8Array || source instanceof ArrayBuffer ? "the file" : String(source);
    const { detectFormat } = await loadChunk("sniff");
    const format = detectFormat(new Uint8Array(await blob.slice(0, 4096).arrayBuffer()), blob.size);
    const what = `${name} is not a picture that this browser can read${format ? `: it is ${format.what}` : ""}`;
    throw new FormatError("E_FORMAT", what, { cause, ...(format?.hint && { hint: format.hint }) });
  });
  return { image: bitmap, width: bitmap.width, height: bitmap.height, opaque: false, close: () => bitmap.close() };
}

/**
 * Decodes a file. `createImageBitmap` does not decode SVG, and Firefox (seen in 140) rejects photos with an orientation
 * tag: these are decoded by an image element instead.
 */
export async function decodeBlob(blob: Blob): Promise<ImageBitmap> {
  try {
    return await createImageBitmap(blob, { premultiplyAlpha: "none", colorSpaceConversion: "default" });
  } catch (error) {
    if (typeof document === "undefined") {
      const decoding = pageDecoder.decode?.(blob);
      if (!decoding) throw error;
      return decoding.catch(() => {
        throw error;
      });
    }
    const url = URL.createObjectURL(blob);
    try {
      const image = new Image();
      image.src = url;
      await image.decode();
      return await createImageBitmap(image);
    } catch {
      throw error;
    } finally {
      URL.revokeObjectURL(url);
    }
  }
}

/** @internal Reads the pixels of a drawable picture to the host. */
export function readDrawable({ image, width, height }: Drawable): Rgba {
  if (!(width > 0 && height > 0)) throw new ValueError("E_VALUE", `the picture is ${width} x ${height} pixels`);
  const context = newCanvas(width, height).getContext("2d", { willReadFrequently: true, colorSpace: "srgb" });
  if (!context) throw new UnsupportedError("E_UNSUPPORTED", `the browser gives no canvas of ${width} x ${height} pixels`);
  try {
    context.drawImage(image, 0, 0, width, height);
    const { data } = context.getImageData(0, 0, width, height);
    return { data, width, height };
  } catch (cause) {
    if (cause instanceof GradloomError) throw cause;
    const secure = (cause as Error).name === "SecurityError";
    const hint = secure ? 'load it with crossorigin="anonymous" from a server that allows that' : undefined;
    const why = secure ? "it comes from another origin" : (cause as Error).message;
    throw new ValueError("E_VALUE", `the picture cannot be read: ${why}`, { cause, ...(hint && { hint }) });
  }
}

/** Converts pixels in memory to RGBA. */
export function fromMemory(source: Pixels): Rgba {
  const { data, width, height } = (source ?? {}) as Partial<Pixels>;
  if (!(data instanceof Uint8ClampedArray || data instanceof Uint8Array) || !Number.isInteger(width) || !Number.isInteger(height)) {
    const what = "a picture comes from an element, canvas, ImageBitmap, VideoFrame, Blob, URL or { data, width, height } of bytes";
    throw new ValueError("E_VALUE", what);
  }
  const [w, h] = [width as number, height as number];
  const channels = data.length / (w * h);
  if (w < 1 || h < 1 || ![1, 3, 4].includes(channels)) {
    throw new ValueError("E_VALUE", `${data.length} bytes are not 1, 3 or 4 channels of ${w} x ${h} pixels`);
  }
  if (channels === 4) return { data, width: w, height: h };
  const rgba = new Uint8Array(4 * w * h).fill(255);
  for (let at = 0; at < w * h; at += 1) {
    for (let c = 0; c < 3; c += 1) rgba[4 * at + c] = data[channels * at + (channels === 1 ? 0 : c)] as number;
  }
  return { data: rgba, width: w, height: h };
}
