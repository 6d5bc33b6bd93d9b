// Fitting a picture: a network is fitted to the site's drawing or the visitor's picture, and then rendered at four
// times the size.
import { Demo, el } from "../../src/demo/page";
import { hills } from "../../src/demo/drawn";
import { bitmap, files, paint, penOf, plot } from "../../src/demo/widgets";
import type { Api } from "./worker";

const SIDE = 64;
const LARGE = 256;
/** The number of training steps; `?steps=` sets fewer, for a quicker run. */
const STEPS = Number(new URL(location.href).searchParams.get("steps")) || 400;
const demo = new Demo<Api>(new Worker(new URL("./worker.ts", import.meta.url), { type: "module" }));
const source = el<HTMLCanvasElement>("source");
const pen = penOf(source);

function place(image: CanvasImageSource, width: number, height: number): void {
  const side = Math.min(width, height);
  pen.imageSmoothingQuality = "high";
  pen.drawImage(image, (width - side) / 2, (height - side) / 2, side, side, 0, 0, SIDE, SIDE);
}

/** Shows colours from 0 to 1 as a picture. */
function show(colours: Float32Array, side: number): void {
  const image = new ImageData(side, side);
  for (let at = 0; at < side * side; at += 1) {
    for (let c = 0; c < 3; c += 1) image.data[4 * at + c] = 255 * (colours[3 * at + c] as number);
    image.data[4 * at + 3] = 255;
  }
  paint(el<HTMLCanvasElement>("fitted"), image);
}

async function fit(): Promise<void> {
  await demo.work("Fitting", async (signal) => {
    const { data } = pen.getImageData(0, 0, SIDE, SIDE);
    const colours = Float32Array.from({ length: 3 * SIDE * SIDE }, (_, i) => (data[4 * Math.floor(i / 3) + (i % 3)] as number) / 255);
    const losses: number[] = [];
    const { steps, loss } = await demo.ask("fit", { colours, side: SIDE, steps: STEPS }, {
      signal,
      onEvent(event) {
        if (!("step" in event)) return;
        losses.push(event.loss as number);
        demo.took(event.ms as number, "step");
        demo.measure(event.step / event.steps);
        if (event.picture) show(event.picture as Float32Array, SIDE);
        plot(el<HTMLCanvasElement>("loss"), losses, losses[0] as number, STEPS);
        el("loss-text").textContent = `Step ${event.step} of ${STEPS}: loss ${losses.at(-1)?.toFixed(5)}`;
      },
    });
    show(await demo.ask("draw", { side: LARGE }), LARGE);
    const decibels = (-10 * Math.log10(loss)).toFixed(1);
    el("fitted-text").textContent = `The network, drawn ${LARGE} by ${LARGE}: 4,995 numbers, ${decibels} dB from the picture`;
    return `Fitted in ${steps} steps, ${decibels} dB.`;
  });
}

el("fit").addEventListener("click", () => void fit());
files("picture", "drop", (file) => void bitmap(file).then((image) => {
  place(image, image.width, image.height);
  image.close();
  return fit();
}, (error: Error) => demo.say(`That failed: ${error.message}`)));
place(hills(SIDE, SIDE), SIDE, SIDE);
plot(el<HTMLCanvasElement>("loss"), [], 1, 2);
