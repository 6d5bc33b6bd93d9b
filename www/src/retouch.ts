// A picture cut out or enlarged: a file of the user's, or the drawn sample of the style demo, small.
import { ask } from "./protocol";
import { el, files, show, timing, work } from "./ui";

type Task = "removeBackground" | "upscale";

const DONE: Record<Task, string> = { removeBackground: "Cut out.", upscale: "Enlarged." };
/** Larger pictures are made so large first: the enlarged one has four times as many pixels. */
const MOST = 1024;
const SAMPLE = 96;
let chosen: File | undefined;

async function bitmap(task: Task): Promise<ImageBitmap> {
  if (!chosen) return createImageBitmap(el<HTMLCanvasElement>("source"), { resizeWidth: SAMPLE, resizeHeight: SAMPLE, resizeQuality: "high" });
  const image = await createImageBitmap(chosen).catch(() => {
    throw new Error(`${chosen?.name} is not a picture this browser can read`);
  });
  const scale = Math.min(1, (task === "upscale" ? MOST / 2 : MOST) / Math.max(image.width, image.height));
  if (scale === 1) return image;
  const [resizeWidth, resizeHeight] = [Math.round(image.width * scale), Math.round(image.height * scale)];
  return createImageBitmap(image, { resizeWidth, resizeHeight, resizeQuality: "high" });
}

async function run(task: Task): Promise<void> {
  await work(task === "upscale" ? "Enlarging" : "Cutting out", async (signal) => {
    const { picture, timing: took } = await ask<"picture">({ kind: "picture", task, source: await bitmap(task) }, { onEvent: show, signal });
    const canvas = el<HTMLCanvasElement>("retouched");
    [canvas.width, canvas.height] = [picture.width, picture.height];
    (canvas.getContext("2d") as CanvasRenderingContext2D).putImageData(picture, 0, 0);
    el("retouched-text").textContent = `${picture.width} by ${picture.height} pixels`;
    timing("retouch-timing", took);
    return DONE[task];
  });
}

export function retouch(): void {
  el("cutout").addEventListener("click", () => void run("removeBackground"));
  el("enlarge").addEventListener("click", () => void run("upscale"));
  files("retouch", "retouch-drop", (file) => {
    chosen = file;
    void run("removeBackground");
  });
}
