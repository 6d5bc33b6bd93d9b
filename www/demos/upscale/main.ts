// The upscaler: shows the browser's and the network's enlargement on top of each other, with a slider between them.
import { el } from "../../src/demo/page";
import { TaskDemo } from "../../src/demo/task";
import { bitmap, files, paint } from "../../src/demo/widgets";
import { hills } from "../../src/demo/drawn";
import { enlarge as enlargeIn } from "./code.js";

/** Larger pictures are first reduced to this size: the result has four times as many pixels. */
const MOST = 640;
const demo = new TaskDemo("models/esrgan_slim_x2/recipe.json");
const [before, after] = [el<HTMLCanvasElement>("before"), el<HTMLCanvasElement>("after")];
const slider = el<HTMLInputElement>("slider");
let chosen: ImageBitmap;

function compare(): void {
  after.style.clipPath = `inset(0 0 0 ${slider.value}%)`;
}

function show(image: ImageBitmap, name: string): void {
  chosen = image;
  for (const canvas of [before, after]) [canvas.width, canvas.height] = [2 * image.width, 2 * image.height];
  const pen = before.getContext("2d") as CanvasRenderingContext2D;
  pen.imageSmoothingQuality = "high";
  pen.drawImage(image, 0, 0, before.width, before.height);
  slider.disabled = true;
  el("tag").hidden = true;
  el("sizes").textContent = `${name}, ${image.width} by ${image.height} pixels`;
}

async function enlarge(): Promise<void> {
  await demo.work("Enlarging", async (signal) => {
    const onTile = (done: number, all: number): void => demo.measure(done / all);
    const { value: image, ms } = await demo.perform(signal, (how) => enlargeIn(chosen, { ...how, onTile }));
    paint(after, image as ImageData);
    demo.took(ms, "picture");
    slider.disabled = false;
    el("tag").hidden = false;
    compare();
    el("sizes").textContent = `${chosen.width} by ${chosen.height} pixels became ${image.width} by ${image.height}`;
    return "Enlarged.";
  });
}

slider.addEventListener("input", compare);
el("enlarge").addEventListener("click", () => void enlarge());
files("picture", "drop", (file) => void bitmap(file, MOST).then(
  (image) => {
    show(image, file.name);
    return enlarge();
  },
  (error: Error) => demo.say(`That failed: ${error.message}`),
));
show(await createImageBitmap(hills(160, 120)), "A drawing");
