// Faces and things: of a photograph, a picture of the visitor's, or live before the camera, with a portrait cut out of each.
import { el } from "../../src/demo/page";
import { TaskDemo } from "../../src/demo/task";
import { colour, onCamera, onPicture, paint, planes, poster } from "../../src/demo/widgets";
import { draw, facesOf, thingsOf } from "./code.js";

const demo = new TaskDemo("models/blazeface_short/recipe.json");
const source = el<HTMLCanvasElement>("source");
const look = el<HTMLSelectElement>("look");
/** At most so many portraits. */
const MOST = 12;
/** The picture without boxes; not there for the camera, whose next one comes anyhow. */
let picture: ImageBitmap | undefined;

/** How many there are, in words. */
const counted = (count: number): string => `${count} ${look.value}${count === 1 ? "" : "s"}`;

interface Found {
  box: readonly [number, number, number, number];
  score: number;
  label?: string | undefined;
}

/** What the visitor looks for, in a picture, and the milliseconds it took. */
function find(image: CanvasImageSource, signal: AbortSignal): Promise<{ value: Found[]; ms: number }> {
  if (look.value === "face") return demo.perform(signal, (how) => facesOf(image, how));
  return demo.perform(signal, (how) => thingsOf(image, how), "models/ssd_mobilenet_v2/recipe.json");
}

/** A part of a picture in a square, with what lies around it. */
function portrait(image: CanvasImageSource, { box: [left, top, right, bottom] }: Found): HTMLElement {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 160;
  // faces have a little more around them: hair above
  const [wider, higher] = look.value === "face" ? [1.5, 0.08] : [1, 0];
  const side = wider * Math.max(right - left, bottom - top);
  const [x, y] = [(left + right - side) / 2, (top + bottom - side) / 2 - side * higher];
  canvas.getContext("2d")?.drawImage(image, x, y, side, side, 0, 0, 160, 160);
  const item = document.createElement("li");
  item.append(canvas);
  return item;
}

/** The boxes over the picture, and each thing for itself. */
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
