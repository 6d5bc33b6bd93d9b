// What tasks are given, in a form that can be sent to the page's worker: pictures as bitmaps, which are handed over without a look at their
// pixels; sounds as samples; files by their address or as they are. And what only a page can read, for the worker.
import type { AudioBufferLike, AudioSource } from "../audio/sound.js";
import type { FileSource } from "../progress.js";
import type { ImageSource, Pixels } from "../vision/pixels.js";
import { copied } from "./copies.js";

/** An address as the worker must have it, whose own place is another. */
export const absolute = (address: string | URL): string => new URL(address, globalThis.location?.href).href;

const kindOf = (value: unknown): string => Object.prototype.toString.call(value).slice(8, -1);

/** A file: by its address, as it is, or as a copy of its bytes. */
export async function fileFor(source: FileSource, signal?: AbortSignal): Promise<unknown> {
  if (typeof source === "string" || source instanceof URL) return absolute(source);
  if (source instanceof Uint8Array) return copied(source, signal);
  if (source instanceof ArrayBuffer) return copied(new Uint8Array(source), signal);
  return source;
}

/** A bitmap of what an element shows, in the size that it is read in; undefined where there is none, or none of that size. */
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

const SHOWN = new Set(["HTMLImageElement", "HTMLVideoElement", "HTMLCanvasElement", "OffscreenCanvas", "ImageBitmap"]);

/** A picture. What has no bitmap is read here, which also says what is wrong with it. */
export async function pictureFor(source: ImageSource, signal?: AbortSignal): Promise<unknown> {
  const kind = kindOf(source);
  if (typeof source === "string" || source instanceof URL || source instanceof Blob || source instanceof ArrayBuffer || source instanceof Uint8Array) {
    return fileFor(source, signal);
  }
  if (kind === "VideoFrame") return (source as VideoFrame).clone();
  const bitmap = SHOWN.has(kind) ? await bitmapOf(source, kind).catch(() => undefined) : undefined;
  return bitmap ?? pixelsFor(source, signal);
}

/** The pixels of a picture, read in this thread. */
export async function pixelsFor(source: ImageSource, signal?: AbortSignal): Promise<Pixels> {
  const { readPixels } = await import("../vision/pixels.js");
  const { data, width, height } = await readPixels(source, signal ? { signal } : {});
  return { data: data === (source as Pixels).data ? await copied(data, signal) : data, width, height };
}

/** A sound: the samples of what has some. */
export async function soundFor(source: AudioSource, signal?: AbortSignal): Promise<unknown> {
  const { numberOfChannels, sampleRate, channels } = (source ?? {}) as Partial<AudioBufferLike> & { channels?: unknown };
  const all = (list: readonly Float32Array[]): Promise<Float32Array[]> => Promise.all(list.map((samples) => copied(samples, signal)));
  if (typeof numberOfChannels === "number" && typeof sampleRate === "number") {
    const buffer = source as AudioBufferLike;
    return { sampleRate, channels: await all(Array.from({ length: numberOfChannels }, (_, c) => buffer.getChannelData(c))) };
  }
  const isSound = Array.isArray(channels) && channels.every((each) => each instanceof Float32Array);
  return isSound ? { sampleRate, channels: await all(channels) } : fileFor(source as FileSource, signal);
}

/** For the worker: a picture of a file that only a page has a decoder for. */
export async function pictureOfFile(file: Blob): Promise<ImageBitmap> {
  return (await import("../vision/pixels.js")).decodeBlob(file);
}

/** For the worker, which has no decoder of sounds: the samples of a file, at a rate. */
export async function soundOfFile(bytes: Uint8Array<ArrayBuffer>, sampleRate: number): Promise<{ channels: Float32Array[]; sampleRate: number }> {
  const { decodeSound } = await import("../audio/sound.js");
  const buffer = await decodeSound(bytes, sampleRate);
  const channels = Array.from({ length: buffer.numberOfChannels }, (_, c) => buffer.getChannelData(c));
  return { channels: await Promise.all(channels.map((samples) => copied(samples))), sampleRate: buffer.sampleRate };
}
