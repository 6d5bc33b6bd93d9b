// Cutting people out of a picture or the live camera, and composing them with a backdrop.
import { el } from "../../src/demo/page";
import { TaskDemo } from "../../src/demo/task";
import { onCamera, onPicture, paint, penOf, planes, poster } from "../../src/demo/widgets";
import { cutLine, cutOut } from "./code.js";

const demo = new TaskDemo("models/selfie_segmentation/recipe.json");
const [source, cut] = [el<HTMLCanvasElement>("source"), el<HTMLCanvasElement>("cut")];
const before = el<HTMLSelectElement>("backdrop");
/** Whether a sticker is selected, which needs a sharp edge from a segmentation network with a recipe of its own. */
const isSticker = (): boolean => before.value === "sticker";
let found: ImageData | undefined;

/** Draws the backdrop and the person in front of it. */
async function compose(): Promise<void> {
  if (!found) return;
  const person = await createImageBitmap(found);
  [cut.width, cut.height] = [person.width, person.height];
  const pen = cut.getContext("2d") as CanvasRenderingContext2D;
  const { value } = before;
  if (value === "sticker") {
    // the rim: the person's shape in white, drawn at offsets on a circle
    const rim = Math.max(2, cut.width / 80);
    pen.clearRect(0, 0, cut.width, cut.height);
    for (let at = 0; at < 24; at += 1) pen.drawImage(person, rim * Math.sin((at * Math.PI) / 12), rim * Math.cos((at * Math.PI) / 12));
    pen.globalCompositeOperation = "source-in";
    pen.fillStyle = "#fff";
    pen.fillRect(0, 0, cut.width, cut.height);
    pen.globalCompositeOperation = "source-over";
  } else if (value === "blur") {
    pen.filter = `blur(${Math.round(cut.width / 40)}px)`;
    pen.drawImage(source, 0, 0);
    pen.filter = "none";
  } else if (value === "woven") {
    pen.fillStyle = "#20222c";
    pen.fillRect(0, 0, cut.width, cut.height);
    pen.lineWidth = 10;
    for (let x = 0; x < cut.width + 20; x += 20) {
      for (let y = 0; y < cut.height + 20; y += 20) {
        const over = (x / 20 + y / 20) % 2 === 0;
        pen.fillStyle = over ? "#d3451d" : "#e9e3d4";
        if (over) pen.fillRect(x - 9, y - 5, 18, 10);
        else pen.fillRect(x - 5, y - 9, 10, 18);
      }
    }
  } else pen.clearRect(0, 0, cut.width, cut.height);
  pen.drawImage(person, 0, 0);
  person.close();
}

async function once(signal: AbortSignal): Promise<number> {
  const picture = penOf(source).getImageData(0, 0, source.width, source.height);
  const { value: { image, share }, ms } = isSticker()
    ? await demo.perform(signal, (how) => cutLine(picture, how), "models/selfie_segmentation/segment.json")
    : await demo.perform(signal, (how) => cutOut(picture, how));
  found = image as ImageData;
  await compose();
  el("share").textContent = `The person takes ${Math.round(100 * share)} % of the picture`;
  demo.took(ms, "picture");
  demo.cost();
  return ms;
}

async function run(show?: (signal: AbortSignal) => Promise<void>): Promise<void> {
  await demo.work("Cutting out", async (signal) => {
    await show?.(signal);
    await once(signal);
    return "Cut out.";
  });
}

let wasSticker = false;
before.addEventListener("input", () => {
  const isOther = isSticker() !== wasSticker;
  wasSticker = isSticker();
  // another kind of edge needs another run of the network; the camera runs it anyway
  if (isOther && found && !demo.busy) void run();
  else void compose();
});
el("sample").addEventListener("click", () => void run(async (signal) => paint(source, await planes("data/astronaut.bin", 0, 320, signal))));
onCamera(demo, 480, async (video, signal) => {
  const frame = await createImageBitmap(video);
  paint(source, frame);
  frame.close();
  return once(signal);
});
onPicture(demo, async (image) => {
  paint(source, image);
  await run();
});
poster(source, "thumbs/astronaut.webp");
