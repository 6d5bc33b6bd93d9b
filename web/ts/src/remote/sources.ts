// Converts the inputs of tasks to a form that can be posted to the worker: pictures as bitmaps, transferred without
// reading their pixels; sounds as samples; files as addresses or as they are. Also decodes for the worker what only a
// page can.
import type { AudioBufferLike, AudioSource } from "../audio/sound.js";
import { loadChunk } from "../chunks.js";
import type { FileSource } from "../progress.js";
import type { ImageSource, Pixels } from "../vision/pixels.js";
import { copyArray } from "./copies.js";

/** Makes an address absolute, since the worker has another base. */
export const absolute = (address: string | URL): string => new URL(address, globalThis.location?.href).href;

const classNameOf = (value: unknown): string => Object.prototype.toString.call(value).slice(8, -1);

/** Converts a file: to its address, unchanged, or to a copy of its bytes. */
export async function fileForWorker(source: FileSource, signal?: AbortSignal): Promise<unknown> {
  if (typeof source === "string" || source instanceof URL) return absolute(source);
  if (source instanceof Uint8Array) return copyArray(source, signal);
  if (source instanceof ArrayBuffer) return copyArray(new Uint8Array(source), signal);
  return source;
}

/** A bitmap of an element at the size at which it is read; undefined if there is none of that size. */
async function bitmapOf(source: object, kind: string): Promise<ImageBitmap | undefined> {
  const sized = async (width: number, height: number): Promise<ImageBitmap | undefined> => {
    const bitmap = await createImageBitmap(source as ImageBitmapSource);
    if (bitmap.width === width && bitmap.height === height) return bitmap;
    bitmap.close();
    return undefined;
  };
  if (kind === "HTMLImageElement") {
    const image = source as HTMLImageElement;
    await image.decode();
    return sized(image.naturalWidth, image.naturalHeight);
  }
  if (kind === "HTMLVideoElement") {
    const video = source as HTMLVideoElement;
    return sized(video.videoWidth, video.videoHeight);
  }
  const { width, height } = source as ImageBitmap;
  return sized(width, height);
}

/** As `isLostCanvas` of `vision/pixels.ts`, which is loaded only to read pixels. */
function isLostCanvas(canvas: OffscreenCanvas): boolean {
  try {
    return canvas.getContext("2d")?.isContextLost?.() === true;
  } catch {
    return false;
  }
}

const BITMAP_SOURCES = new Set(["HTMLImageElement", "HTMLVideoElement", "HTMLCanvasElement", "OffscreenCanvas", "ImageBitmap"]);

/** Converts a picture. If no bitmap can be made, its pixels are read here, which also reports errors. */
export async function pictureForWorker(source: ImageSource, signal?: AbortSignal): Promise<unknown> {
  const kind = classNameOf(source);
  if (typeof source === "string" || source instanceof URL || source instanceof Blob || source instanceof ArrayBuffer || source instanceof Uint8Array) {
    return fileForWorker(source, signal);
  }
  if (/MediaStream(Track)?$/.test(kind)) {
    const { playerOf } = await loadChunk("streams");
    return pictureForWorker(await playerOf(source as MediaStream, signal), signal);
  }
  if (kind === "VideoFrame") return (source as VideoFrame).clone();
  const bitmap = BITMAP_SOURCES.has(kind) ? await bitmapOf(source, kind).catch(() => undefined) : undefined;
  // a canvas that the GPU's process took with it gives a blank bitmap; reading it reports that
  return bitmap && !(/Canvas/.test(kind) && isLostCanvas(source as OffscreenCanvas)) ? bitmap : pixelsForWorker(source, signal);
}

/** Reads the pixels of a picture in this thread. */
export async function pixelsForWorker(source: ImageSource, signal?: AbortSignal): Promise<Pixels> {
  const { readPixels } = await import("../vision/pixels.js");
  const { data, width, height } = await readPixels(source, signal ? { signal } : {});
  return { data: data === (source as Pixels).data ? await copyArray(data, signal) : data, width, height };
}

/** Whether a posted picture is of a kind that the GPU's process may hold. */
export const isOnGpu = (picture: unknown): boolean => ["ImageBitmap", "VideoFrame"].includes(classNameOf(picture));

/** Converts a picture again after a GPU was lost while it was posted; `loss` is thrown if the picture may be lost as well. */
export async function pictureAfterLoss(source: ImageSource, loss: unknown, signal?: AbortSignal): Promise<unknown> {
  const { readAfterLoss } = await import("../vision/pixels.js");
  const found = await readAfterLoss(source, loss, signal ? { signal } : {});
  return found === source ? pictureForWorker(source, signal) : found;
}

/** Converts a sound: audio buffers to their samples, files like other files. */
export async function soundForWorker(source: AudioSource, signal?: AbortSignal): Promise<unknown> {
  const { numberOfChannels, sampleRate, channels } = (source ?? {}) as Partial<AudioBufferLike> & { channels?: unknown };
  const copyAll = (list: readonly Float32Array[]): Promise<Float32Array[]> => Promise.all(list.map((samples) => copyArray(samples, signal)));
  if (typeof numberOfChannels === "number" && typeof sampleRate === "number") {
    const buffer = source as AudioBufferLike;
    return { sampleRate, channels: await copyAll(Array.from({ length: numberOfChannels }, (_, c) => buffer.getChannelData(c))) };
  }
  const isSound = Array.isArray(channels) && channels.every((each) => each instanceof Float32Array);
  return isSound ? { sampleRate, channels: await copyAll(channels) } : fileForWorker(source as FileSource, signal);
}

/** For the worker: decodes a picture for which only a page has a decoder. */
export async function pictureOfFile(file: Blob): Promise<ImageBitmap> {
  return (await import("../vision/pixels.js")).decodeBlob(file);
}

/** For the worker, which has no audio decoder: decodes a file to samples at a rate. */
export async function soundOfFile(bytes: Uint8Array<ArrayBuffer>, sampleRate: number): Promise<{ channels: Float32Array[]; sampleRate: number }> {
  const { decodeSound } = await import("../audio/sound.js");
  const buffer = await decodeSound(bytes, sampleRate);
  const channels = Array.from({ length: buffer.numberOfChannels }, (_, c) => buffer.getChannelData(c));
  return { channels: await Promise.all(channels.map((samples) => copyArray(samples))), sampleRate: buffer.sampleRate };
}
