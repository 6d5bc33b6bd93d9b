// Faces: of a photograph, a picture of the visitor's, or live before the camera, with a portrait cut out of each.
import { el } from "../../src/demo/page";
import { TaskDemo } from "../../src/demo/task";
import { colour, onCamera, onPicture, paint, planes } from "../../src/demo/widgets";
import { draw, facesOf } from "./code.js";

const demo = new TaskDemo("models/blazeface_short/recipe.json");
const source = el<HTMLCanvasElement>("source");
/** At most so many portraits. */
const MOST = 12;

/** The boxes over the picture, and each face for itself, with a little around it. */
async function once(image: CanvasImageSource & { width: number; height: number }, signal: AbortSignal): Promise<{ count: number; ms: number }> {
  const { value: faces, ms } = await demo.perform(signal, (how) => facesOf(image, how));
  demo.took(ms, "picture");
  demo.cost();
  const portraits = faces.slice(0, MOST).map(({ box: [left, top, right, bottom] }) => {
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = 160;
    const side = 1.5 * Math.max(right - left, bottom - top);
    const [x, y] = [(left + right - side) / 2, (top + bottom - side) / 2 - side * 0.08];
    canvas.getContext("2d")?.drawImage(image, x, y, side, side, 0, 0, 160, 160);
    const item = document.createElement("li");
    item.append(canvas);
    return item;
  });
  el("faces").replaceChildren(...portraits);
  draw(source, faces, colour("--accent"), colour("--on-accent"));
  const sure = faces.map(({ score }) => `${Math.round(100 * score)} %`).join(", ");
  el("faces-text").textContent = faces.length === 0 ? "There is no face in it" : `${faces.length} ${faces.length === 1 ? "face" : "faces"}: ${sure} sure`;
  return { count: faces.length, ms };
}

const find = (show: (signal: AbortSignal) => Promise<void>): Promise<void> => demo.work("Looking for faces", async (signal) => {
  await show(signal);
  const copy = await createImageBitmap(source);
  const { count } = await once(copy, signal);
  copy.close();
  return `Found ${count} ${count === 1 ? "face" : "faces"}.`;
});

el("sample").addEventListener("click", () => void find(async (signal) => paint(source, await planes("data/astronaut.bin", 0, 320, signal))));
onCamera(demo, 480, async (video, signal) => {
  const frame = await createImageBitmap(video);
  paint(source, frame);
  const { ms } = await once(frame, signal);
  frame.close();
  return ms;
});
onPicture(demo, (image) => find(async () => paint(source, image)));
