// Detects faces and objects in a photograph, the visitor's picture, or the live camera, and cuts out a portrait of
// each.
import { el } from "../../src/demo/page";
import { TaskDemo } from "../../src/demo/task";
import { colour, onCamera, onPicture, paint, planes, poster } from "../../src/demo/widgets";
import { draw, facesOf, thingsOf } from "./code.js";

const demo = new TaskDemo("models/blazeface_short/recipe.json");
const source = el<HTMLCanvasElement>("source");
const look = el<HTMLSelectElement>("look");
/** The most portraits that are shown. */
const MOST = 12;
/** The picture without boxes; undefined for the camera, which supplies the next frame anyway. */
let picture: ImageBitmap | undefined;

/** The number of detections in words. */
const counted = (count: number): string => `${count} ${look.value}${count === 1 ? "" : "s"}`;

interface Found {
  box: readonly [number, number, number, number];
  score: number;
  label?: string | undefined;
}

/** Runs the selected detector on a picture; gives the detections and the time in milliseconds. */
function find(image: CanvasImageSource, signal: AbortSignal): Promise<{ value: Found[]; ms: number }> {
  if (look.value === "face") return demo.perform(signal, (how) => facesOf(image, how));
  return demo.perform(signal, (how) => thingsOf(image, how), "models/ssd_mobilenet_v2/recipe.json");
}

/** Cuts a square around a detection out of a picture. */
function portrait(image: CanvasImageSource, { box: [left, top, right, bottom] }: Found): HTMLElement {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 160;
  // faces get some margin, especially above for the hair
  const [wider, higher] = look.value === "face" ? [1.5, 0.08] : [1, 0];
  const side = wider * Math.max(right - left, bottom - top);
  const [x, y] = [(left + right - side) / 2, (top + bottom - side) / 2 - side * higher];
  canvas.getContext("2d")?.drawImage(image, x, y, side, side, 0, 0, 160, 160);
  const item = document.createElement("li");
  item.append(canvas);
  return item;
}

/** Draws the boxes over the picture, and a portrait of each detection. */
async function once(image: CanvasImageSource, signal: AbortSignal): Promise<{ count: number; ms: number }> {
  const { value: found, ms } = await find(image, signal);
  demo.took(ms, "picture");
  demo.cost();
  el("faces").replaceChildren(...found.slice(0, MOST).map((each) => portrait(image, each)));
  draw(source, found, colour("--accent"), colour("--on-accent"));
  const sure = found.map(({ label = "", score }) => `${label} ${Math.round(100 * score)} %`.trim()).join(", ");
  el("faces-text").textContent = found.length === 0 ? `There is no ${look.value} in it` : `${counted(found.length)}: ${sure} sure`;
  return { count: found.length, ms };
}

const show = (given: () => Promise<ImageBitmap | ImageData>): Promise<void> => demo.work(`Looking for ${look.value}s`, async (signal) => {
  paint(source, await given());
  picture = await createImageBitmap(source);
  const { count } = await once(picture, signal);
  return `Found ${counted(count)}.`;
});

el("sample").addEventListener("click", () => void show(() => planes("data/astronaut.bin", 0, 320)));
el("cat").addEventListener("click", () => void show(() => planes("data/photographs.bin", 0, 224)));
look.addEventListener("input", () => {
  const shown = picture;
  if (shown && !demo.busy) void show(async () => shown);
});
onCamera(demo, 480, async (video, signal) => {
  picture = undefined;
  const frame = await createImageBitmap(video);
  paint(source, frame);
  const { ms } = await once(frame, signal);
  frame.close();
  return ms;
});
onPicture(demo, (image) => show(async () => image));
poster(source, "thumbs/astronaut.webp");
