// Style transfer: a drawn sample, a picture of the user's, or the camera.
import { type Timing, ask } from "./protocol";
import { el, files, refused, say, show, timing, work } from "./ui";

const SIZE = 256;
const STYLES = 26;
const source = el<HTMLCanvasElement>("source");
const painted = el<HTMLCanvasElement>("painted");
const pen = source.getContext("2d", { willReadFrequently: true }) as CanvasRenderingContext2D;

/** Hills under an evening sky: nobody's picture but ours. */
function sample(): void {
  const sky = pen.createLinearGradient(0, 0, 0, 170);
  sky.addColorStop(0, "#27408b");
  sky.addColorStop(1, "#f6a35c");
  pen.fillStyle = sky;
  pen.fillRect(0, 0, SIZE, SIZE);
  pen.fillStyle = "#ffe9a8";
  pen.beginPath();
  pen.arc(180, 105, 24, 0, 7);
  pen.fill();
  for (const [base, height, rate, fill] of [[150, 30, 0.021, "#5b5f97"], [180, 24, 0.033, "#3c6e57"], [212, 14, 0.05, "#24452f"]] as const) {
    pen.fillStyle = fill;
    pen.beginPath();
    pen.moveTo(0, SIZE);
    for (let x = 0; x <= SIZE; x += 2) pen.lineTo(x, base - height * Math.sin(x * rate + base) - 6 * Math.sin(x * 0.11));
    pen.lineTo(SIZE, SIZE);
    pen.fill();
  }
  pen.fillStyle = "#7a2e1d";
  pen.fillRect(52, 176, 34, 30);
  pen.fillStyle = "#c8553d";
  pen.beginPath();
  pen.moveTo(46, 178);
  pen.lineTo(69, 156);
  pen.lineTo(92, 178);
  pen.fill();
}

/** The middle square of a picture, at the network's size. */
function place(image: CanvasImageSource, width: number, height: number): void {
  const side = Math.min(width, height);
  pen.drawImage(image, (width - side) / 2, (height - side) / 2, side, side, 0, 0, SIZE, SIZE);
}

function weights(): Float32Array {
  const value = (id: string): number => Number(el<HTMLSelectElement | HTMLInputElement>(id).value);
  const mix = value("mix") / 100;
  const w = new Float32Array(STYLES);
  const [a, b] = [value("style-a"), value("style-b")];
  w[a] = (w[a] as number) + 1 - mix;
  w[b] = (w[b] as number) + mix;
  return w;
}

async function paint(signal: AbortSignal): Promise<Timing> {
  const rgba = pen.getImageData(0, 0, SIZE, SIZE).data;
  const plane = SIZE * SIZE;
  const image = new Float32Array(3 * plane);
  for (let at = 0; at < plane; at += 1) for (let c = 0; c < 3; c += 1) image[c * plane + at] = (rgba[4 * at + c] as number) / 255;
  const inputs = { image: { data: image, shape: [1, 3, SIZE, SIZE] }, style_weights: { data: weights(), shape: [STYLES] } };
  const done = await ask<"run">({ kind: "run", model: "style_multistyle26", inputs }, { onEvent: show, signal });
  const out = done.outputs.stylized?.data as Float32Array;
  const result = new ImageData(SIZE, SIZE);
  for (let at = 0; at < plane; at += 1) {
    for (let c = 0; c < 3; c += 1) result.data[4 * at + c] = 255 * (out[c * plane + at] as number);
    result.data[4 * at + 3] = 255;
  }
  (painted.getContext("2d") as CanvasRenderingContext2D).putImageData(result, 0, 0);
  el("painted-text").textContent = `Painted in style ${Number(el<HTMLSelectElement>("style-a").value) + 1}`;
  timing("style-timing", done.timing);
  return done.timing;
}

async function take(file: File): Promise<void> {
  await work("Reading the picture", async (signal) => {
    const image = await createImageBitmap(file).catch(() => {
      throw new Error(`${file.name} is not a picture this browser can read`);
    });
    place(image, image.width, image.height);
    image.close();
    await paint(signal);
    return "Painted.";
  });
}

/** Frames of the camera until Stop, or until the page is hidden. */
async function camera(signal: AbortSignal): Promise<string> {
  if (!navigator.mediaDevices) throw new Error("the camera needs a secure page (https or localhost)");
  const stream = await navigator.mediaDevices.getUserMedia({ video: { width: 320, height: 320 } }).catch((error) => {
    throw refused(error, "camera");
  });
  const video = document.createElement("video");
  try {
    video.srcObject = stream;
    video.muted = video.playsInline = true;
    await video.play();
    let frames = 0;
    while (!signal.aborted && !document.hidden) {
      place(video, video.videoWidth, video.videoHeight);
      const { p50 } = await paint(signal);
      frames += 1;
      if (frames % 10 === 1) say(`Camera: ${(1000 / Math.max(1, p50)).toFixed(1)} frames a second. The frames stay in this page.`);
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

export function pictures(): void {
  sample();
  for (const [id, chosen] of [["style-a", 7], ["style-b", 13]] as const) {
    const list = el<HTMLSelectElement>(id);
    for (let at = 0; at < STYLES; at += 1) list.append(new Option(`Style ${at + 1}`, String(at), at === chosen, at === chosen));
  }
  el("style-run").addEventListener("click", () => void work("Painting", async (signal) => {
    await paint(signal);
    return "Painted.";
  }));
  el("camera").addEventListener("click", () => void work("Asking for the camera", camera));
  files("picture", "picture-drop", (file) => void take(file));
}
