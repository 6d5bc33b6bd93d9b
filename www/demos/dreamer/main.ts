// Digits from noise: the network trains here, shows samples during training, and then draws whichever digit is
// requested.
import { Demo, el } from "../../src/demo/page";
import { paint, plot } from "../../src/demo/widgets";
import type { Api } from "./worker";

const SIDE = 28;
const COLUMNS = 10;
/** The number of training steps; `?steps=` sets fewer, for a quicker run. */
const STEPS = Number(new URL(location.href).searchParams.get("steps")) || 1500;
const demo = new Demo<Api>(new Worker(new URL("./worker.ts", import.meta.url), { type: "module" }), () => (el<HTMLButtonElement>("draw").disabled = true));
const canvas = el<HTMLCanvasElement>("drawn");

/** Shows pictures [n, 784] of values from -1 to 1 in rows of ten, enlarged twofold. */
async function show(pictures: Float32Array): Promise<void> {
  const rows = pictures.length / (SIDE * SIDE) / COLUMNS;
  const image = new ImageData(COLUMNS * SIDE, rows * SIDE);
  image.data.fill(255);
  for (let i = 0; i < pictures.length; i += 1) {
    const [picture, y, x] = [Math.floor(i / (SIDE * SIDE)), Math.floor(i / SIDE) % SIDE, i % SIDE];
    const at = (Math.floor(picture / COLUMNS) * SIDE + y) * COLUMNS * SIDE + (picture % COLUMNS) * SIDE + x;
    image.data.fill(127.5 * (1 + Math.max(-1, Math.min(1, pictures[i] as number))), 4 * at, 4 * at + 3);
  }
  const large = await createImageBitmap(image, { resizeWidth: 2 * image.width, resizeHeight: 2 * image.height, resizeQuality: "pixelated" });
  paint(canvas, large);
  large.close();
}

el("train").addEventListener("click", () => void demo.work("Fetching the digits", async (signal) => {
  const losses: number[] = [];
  const { steps, loss } = await demo.ask("train", { steps: STEPS }, {
    signal,
    onEvent(event) {
      if (!("step" in event)) return;
      losses.push(event.loss as number);
      demo.took(event.ms as number, "step");
      demo.measure(event.step / event.steps);
      if (event.pictures) {
        void show(event.pictures as Float32Array);
        el("drawn-text").textContent = `What it draws after ${event.step} steps`;
      }
      plot(el<HTMLCanvasElement>("loss"), losses, losses[0] as number, STEPS);
      el("loss-text").textContent = `Step ${event.step} of ${STEPS}: loss ${losses.at(-1)?.toFixed(4)}`;
      demo.say(`Training: step ${event.step} of ${STEPS}`);
    },
  });
  el<HTMLButtonElement>("draw").disabled = false;
  return `Trained ${steps} steps, loss ${loss.toFixed(4)}. Ask it for digits.`;
}));

async function draw(): Promise<void> {
  await demo.work("Drawing", async (signal) => {
    const { value } = el<HTMLSelectElement>("digit");
    await demo.ask("draw", { count: 20, digit: value === "" ? undefined : Number(value) }, {
      signal,
      onEvent(event) {
        if (!("step" in event)) return;
        void show(event.pictures as Float32Array);
        demo.measure(event.step / event.steps);
        el("drawn-text").textContent = `Move ${event.step} of ${event.steps}`;
      },
    });
    return "Drawn.";
  });
}
el("draw").addEventListener("click", () => void draw());
el("digit").addEventListener("change", () => {
  if (!el<HTMLButtonElement>("draw").disabled) void draw();
});
plot(el<HTMLCanvasElement>("loss"), [], 1, 2);
void show(Float32Array.from({ length: 20 * SIDE * SIDE }, () => Math.random() * 2 - 1));
