// Widgets that several demos use: files, the camera and microphone, charts.
import { type Demo, el } from "./page";
import { site } from "./site";

/** Calls `take` with files that are selected or dropped: the first of them, and all. */
export function files(input: string, zone: string | null, take: (file: File, all: File[]) => void): void {
  const field = el<HTMLInputElement>(input);
  const given = (list: FileList | null | undefined): void => {
    const all = [...(list ?? [])];
    if (all[0]) take(all[0], all);
  };
  field.addEventListener("change", () => {
    given(field.files);
    field.value = "";
  });
  if (!zone) return;
  const area = el(zone);
  area.addEventListener("dragover", (event) => {
    event.preventDefault();
    area.classList.add("over");
  });
  area.addEventListener("dragleave", () => area.classList.remove("over"));
  area.addEventListener("drop", (event) => {
    event.preventDefault();
    area.classList.remove("over");
    given(event.dataTransfer?.files);
  });
}

/** Reads a picture of the visitor, reduced to at most this size. */
export async function bitmap(from: File, most = 1024): Promise<ImageBitmap> {
  const image = await createImageBitmap(from).catch(() => {
    throw new Error(`${from.name} is not a picture this browser can read`);
  });
  const scale = Math.min(1, most / Math.max(image.width, image.height));
  if (scale === 1) return image;
  const [resizeWidth, resizeHeight] = [Math.round(image.width * scale), Math.round(image.height * scale)];
  return createImageBitmap(image, { resizeWidth, resizeHeight, resizeQuality: "high" });
}

/** Fetches a file of the site. */
export async function sample(path: string, signal?: AbortSignal): Promise<Blob> {
  const response = await fetch(new URL(path, site), signal ? { signal } : {});
  if (!response.ok) throw new Error(`${path} could not be fetched: status ${response.status}`);
  return response.blob();
}

/**
 * One of the site's photographs. They are stored as planes of red, green and blue bytes, one picture after the other.
 */
export async function planes(path: string, which: number, side: number, signal?: AbortSignal): Promise<ImageData> {
  const bytes = new Uint8Array(await (await sample(path, signal)).arrayBuffer());
  const area = side * side;
  const image = new ImageData(side, side);
  for (let at = 0; at < area; at += 1) {
    for (let c = 0; c < 3; c += 1) image.data[4 * at + c] = bytes[(3 * which + c) * area + at] as number;
    image.data[4 * at + 3] = 255;
  }
  return image;
}

/** What draws on a canvas whose pixels are read: it lies in the processor's memory, since a picture on the GPU is blank once the browser's GPU process ends. */
export const penOf = (canvas: HTMLCanvasElement): CanvasRenderingContext2D =>
  canvas.getContext("2d", { willReadFrequently: true }) as CanvasRenderingContext2D;

/** Shows one of the site's small pictures on a canvas until a picture is chosen. */
export function poster(canvas: HTMLCanvasElement, path: string): void {
  const image = new Image();
  image.onload = () => {
    if (!canvas.dataset.painted) penOf(canvas).drawImage(image, 0, 0, canvas.width, canvas.height);
  };
  image.src = new URL(path, site).href;
}

export function paint(canvas: HTMLCanvasElement, image: ImageBitmap | ImageData): void {
  canvas.dataset.painted = "yes";
  if (canvas.width !== image.width || canvas.height !== image.height) [canvas.width, canvas.height] = [image.width, image.height];
  const pen = penOf(canvas);
  if (image instanceof ImageData) pen.putImageData(image, 0, 0);
  else {
    pen.clearRect(0, 0, canvas.width, canvas.height);
    pen.drawImage(image, 0, 0);
  }
}

/** A colour of the page's theme, for canvases. */
export function colour(name: string): string {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

/** The charts that are displayed, to be redrawn when the theme changes. */
const plots = new Map<HTMLCanvasElement, () => void>();
addEventListener("themechange", () => plots.forEach((draw) => draw()));

/** Draws a line through values from 0 to `least`, or to the largest of them, over a faint grid. */
export function plot(canvas: HTMLCanvasElement, values: readonly number[], least: number, count: number): void {
  for (const each of plots.keys()) if (!each.isConnected) plots.delete(each);
  plots.set(canvas, () => plot(canvas, values, least, count));
  const top = values.reduce((most, v) => Math.max(most, v), least);
  const c = canvas.getContext("2d") as CanvasRenderingContext2D;
  const { width, height } = canvas;
  c.clearRect(0, 0, width, height);
  c.strokeStyle = colour("--line");
  c.lineWidth = 1;
  for (let at = 1; at < 4; at += 1) {
    c.beginPath();
    c.moveTo(0, Math.round((height * at) / 4) + 0.5);
    c.lineTo(width, Math.round((height * at) / 4) + 0.5);
    c.stroke();
  }
  if (values.length === 0) return;
  const across = (at: number) => (at / Math.max(1, count - 1)) * (width - 6) + 3;
  const up = (v: number) => height - 5 - (v / top) * (height - 10);
  const point = (v: number, at: number): [number, number] => [across(at), up(v)];
  c.beginPath();
  values.forEach((v, at) => (at === 0 ? c.moveTo(...point(v, at)) : c.lineTo(...point(v, at))));
  c.strokeStyle = colour("--accent");
  c.lineWidth = 3;
  c.lineJoin = "round";
  c.stroke();
  c.lineTo(point(0, values.length - 1)[0], height);
  c.lineTo(3, height);
  c.globalAlpha = 0.12;
  c.fillStyle = colour("--accent");
  c.fill();
  c.globalAlpha = 1;
}

/** The reason, in words, why a camera or microphone is not available. */
export function refused(error: unknown, what: string): Error {
  const { name } = error as { name?: string };
  if (name === "NotAllowedError") return new Error(`the ${what} was not allowed; allow it in the browser's address bar`);
  if (name === "NotFoundError") return new Error(`there is no ${what}`);
  if (name === "NotReadableError") return new Error(`the ${what} is used by something else`);
  return error instanceof Error ? error : new Error(String(error));
}

/** The part of a demo that is used here: its status line and Stop button. */
type Page = Pick<Demo<object>, "work" | "say">;

/** Handles the camera button: `look` processes each frame and returns the milliseconds it took. */
export function onCamera(demo: Page, size: number, look: (video: HTMLVideoElement, signal: AbortSignal) => Promise<number>): void {
  const watch = async (signal: AbortSignal): Promise<string> => {
    let frames = 0;
    return camera(size, signal, async (video) => {
      const ms = await look(video, signal);
      frames += 1;
      if (frames % 10 === 1) demo.say(`Camera: ${(1000 / Math.max(1, ms)).toFixed(1)} frames a second. The frames stay in this page.`);
    });
  };
  el("camera").addEventListener("click", () => void demo.work("Asking for the camera", watch));
}

/** Handles a picture that the visitor selects or drops; `take` need not close it. */
export function onPicture(demo: Page, take: (image: ImageBitmap) => Promise<void>): void {
  const told = (error: Error): void => demo.say(`That failed: ${error.message}`);
  files("picture", "drop", (file) => void bitmap(file).then((image) => take(image).finally(() => image.close()), told));
}

/** Passes frames of the camera to `use` until Stop is pressed or the page is hidden. */
async function camera(size: number, signal: AbortSignal, use: (video: HTMLVideoElement) => Promise<void>): Promise<string> {
  if (!navigator.mediaDevices) throw new Error("the camera needs a secure page (https or localhost)");
  const stream = await navigator.mediaDevices.getUserMedia({ video: { width: size, height: size } }).catch((error) => {
    throw refused(error, "camera");
  });
  const video = document.createElement("video");
  try {
    video.srcObject = stream;
    video.muted = video.playsInline = true;
    await video.play();
    while (!signal.aborted && !document.hidden) {
      await use(video);
      await new Promise((done) => requestAnimationFrame(done));
    }
    return "The camera is off.";
  } catch (error) {
    if (signal.aborted) return "The camera is off.";
    throw error;
  } finally {
    for (const track of stream.getTracks()) track.stop();
  }
}

/** Gives the microphone's stream to `use`, and ends it when that is done. */
export async function withMicrophone(signal: AbortSignal, use: (stream: MediaStream) => Promise<void>): Promise<string> {
  if (!navigator.mediaDevices) throw new Error("the microphone needs a secure page (https or localhost)");
  const stream = await navigator.mediaDevices.getUserMedia({ audio: true }).catch((error) => {
    throw refused(error, "microphone");
  });
  try {
    await use(stream);
    return "The microphone is off.";
  } catch (error) {
    if (signal.aborted) return "The microphone is off.";
    throw error;
  } finally {
    for (const track of stream.getTracks()) track.stop();
  }
}

/**
 * Records from the microphone at 16,000 samples per second until Stop; ten times per second `use` receives the new
 * samples.
 */
export function microphone(signal: AbortSignal, use: (samples: Float32Array) => Promise<void>): Promise<string> {
  return withMicrophone(signal, async (stream) => {
    // of few demos alone
    const { listen } = await import("gradloom/audio");
    for await (const samples of listen(stream, { signal })) {
      if (document.hidden) break;
      await use(samples);
    }
  });
}

/** Decodes a sound file to one channel at 16,000 samples per second. */
export async function sound(from: Blob, name: string): Promise<Float32Array> {
  const context = new OfflineAudioContext(1, 16_000, 16_000);
  const decoded = await context.decodeAudioData(await from.arrayBuffer()).catch(() => {
    throw new Error(`${name} is not a sound this browser can read`);
  });
  return decoded.getChannelData(0);
}
