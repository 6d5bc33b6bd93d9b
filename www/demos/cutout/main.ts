// Cutting people out: of a picture, or live before the camera, and what they then stand before.
import { el } from "../../src/demo/page";
import { TaskDemo } from "../../src/demo/task";
import { onCamera, onPicture, paint } from "../../src/demo/widgets";
import { cutOut } from "./code.js";

const demo = new TaskDemo("models/selfie_segmentation/recipe.json");
const [source, cut] = [el<HTMLCanvasElement>("source"), el<HTMLCanvasElement>("cut")];
let found: ImageData | undefined;

/** The backdrop, and the person before it. */
async function compose(): Promise<void> {
  if (!found) return;
  const person = await createImageBitmap(found);
  [cut.width, cut.height] = [person.width, person.height];
  const pen = cut.getContext("2d") as CanvasRenderingContext2D;
  const { value } = el<HTMLSelectElement>("backdrop");
  if (value === "blur") {
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
  const { value: { image, share }, ms } = await demo.perform(signal, (how) => cutOut(source, how));
  found = image as ImageData;
  await compose();
  el("share").textContent = `The person takes ${Math.round(100 * share)} % of the picture`;
  demo.took(ms, "picture");
  demo.cost();
  return ms;
}

async function run(): Promise<void> {
  await demo.work("Cutting out", async (signal) => {
    await once(signal);
    return "Cut out.";
  });
}

el("backdrop").addEventListener("input", () => void compose());
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
