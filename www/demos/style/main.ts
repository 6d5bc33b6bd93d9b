// Style transfer on the site's drawing, the visitor's picture, or the camera. Changing the style or the mix repaints
// immediately.
import { el } from "../../src/demo/page";
import { TaskDemo } from "../../src/demo/task";
import { site } from "../../src/demo/site";
import { bitmap, files, onCamera, paint, penOf } from "../../src/demo/widgets";
import { hills } from "../../src/demo/drawn";
import { paint as paintIn } from "./code.js";

const SIZE = 256;
const STYLES = 26;
const demo = new TaskDemo("models/style_multistyle26/recipe.json");
const source = el<HTMLCanvasElement>("source");
const pen = penOf(source);

/** Draws the central square of a picture at the network's size. */
function place(image: CanvasImageSource, width: number, height: number): void {
  const side = Math.min(width, height);
  pen.imageSmoothingQuality = "high";
  pen.drawImage(image, (width - side) / 2, (height - side) / 2, side, side, 0, 0, SIZE, SIZE);
}

const chosen = (id: string): number => Number(el(id).querySelector<HTMLInputElement>("input:checked")?.value);

async function once(signal: AbortSignal): Promise<number> {
  const [a, b, mix] = [chosen("style-a"), chosen("style-b"), Number(el<HTMLInputElement>("mix").value) / 100];
  const { value: image, ms } = await demo.perform(signal, (how) => paintIn(source, { a, b, mix, ...how }));
  paint(el<HTMLCanvasElement>("painted"), image as ImageData);
  el("painted-text").textContent = mix > 0 ? `Style ${a + 1} with ${Math.round(100 * mix)} % of style ${b + 1}` : `Style ${a + 1}`;
  demo.took(ms, "frame");
  demo.cost();
  return ms;
}

let again = false;

/** Paints, and repeats if something changed meanwhile. */
async function repaint(): Promise<void> {
  if (demo.busy) {
    again = true;
    return;
  }
  await demo.work("Painting", async (signal) => {
    do {
      again = false;
      await once(signal);
    } while (again && !signal.aborted);
    return "Painted.";
  });
}

async function take(from: File): Promise<void> {
  try {
    const image = await bitmap(from);
    place(image, image.width, image.height);
    image.close();
  } catch (error) {
    demo.say(`That failed: ${(error as Error).message}`);
    return;
  }
  await repaint();
}

/**
 * The styles as radio buttons, each with its rendering of the drawing; `npm run thumbnails` makes the strip of these.
 */
function swatches(id: string, first: number): void {
  const strip = `url(${new URL("thumbs/styles.webp", site)})`;
  el(id).querySelector(".swatches")?.replaceChildren(...Array.from({ length: STYLES }, (_, at) => {
    const [label, input, picture] = [document.createElement("label"), document.createElement("input"), document.createElement("i")];
    Object.assign(input, { type: "radio", name: id, value: String(at), checked: at === first, ariaLabel: `Style ${at + 1}` });
    Object.assign(picture.style, { backgroundImage: strip, backgroundPosition: `${(100 * at) / (STYLES - 1)}% 0` });
    label.append(input, picture);
    return label;
  }));
}

swatches("style-a", 7);
swatches("style-b", 13);
for (const id of ["style-a", "style-b", "mix"]) el(id).addEventListener("input", () => void repaint());
el("paint").addEventListener("click", () => void repaint());
onCamera(demo, 320, async (video, signal) => {
  place(video, video.videoWidth, video.videoHeight);
  return once(signal);
});
files("picture", "drop", (file) => void take(file));
place(hills(SIZE, SIZE), SIZE, SIZE);
