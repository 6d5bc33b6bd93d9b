// The page of the cells: they grow, are damaged by the pointer, and heal. The pointer's damage is sent to the worker
// with the next steps.
import { Demo, el } from "../../src/demo/page";
import { colour } from "../../src/demo/widgets";
import type { Api } from "./worker";

const canvas = el<HTMLCanvasElement>("world");
const { width, height } = canvas;
const area = width * height;
/** The radius of the pointer's damage in cells, and steps per displayed frame. */
const [REACH, STEPS] = [2.2, 2];
const demo = new Demo<Api>(new Worker(new URL("./worker.ts", import.meta.url), { type: "module" }), () => reset());
let keep = new Float32Array(area).fill(1);
let plant = new Float32Array(area);
let [fresh, done, drawing] = [true, 0, false];

/** Starts with an empty world and a seed in its middle at the next step. */
function reset(): void {
  [fresh, done] = [true, 0];
  keep.fill(1);
  plant.fill(0);
  plant[(height >> 1) * width + (width >> 1)] = 1;
}

/** Shows where the seed is before anything has been computed. */
function showSeed(): void {
  const pen = canvas.getContext("2d") as CanvasRenderingContext2D;
  pen.fillStyle = colour("--ink");
  pen.fillRect(width >> 1, height >> 1, 1, 1);
}

async function step(steps: number): Promise<void> {
  const asked = { width, height, keep, plant, steps, fresh };
  [keep, plant, fresh] = [new Float32Array(area).fill(1), new Float32Array(area), false];
  const { pixels, alive, away, ms } = await demo.ask("step", asked);
  canvas.getContext("2d")?.putImageData(new ImageData(pixels as Uint8ClampedArray<ArrayBuffer>, width, height), 0, 0);
  done += steps;
  if (steps > 0) demo.took(ms, "picture of two steps");
  el("world-text").textContent = `Step ${done}: ${alive} cells live, the middle is ${away.toFixed(4)} from the moth`;
}

/** Sends the changes made while growth is paused to the worker, and shows the result. */
async function show(): Promise<void> {
  if (demo.busy || drawing) return;
  drawing = true;
  try {
    await step(0);
  } catch (error) {
    demo.say(`That failed: ${(error as Error).message}`);
  } finally {
    drawing = false;
  }
}

/** Damages the cells around a position. */
function hurt(x: number, y: number, reach: number): void {
  for (let i = 0; i < area; i += 1) if (Math.hypot((i % width) + 0.5 - x, Math.floor(i / width) + 0.5 - y) < reach) keep[i] = 0;
}

/** Damages the cells under a pressed button or a finger, which may not move at all. */
function press(event: PointerEvent): void {
  if (event.buttons === 0) return;
  const box = canvas.getBoundingClientRect();
  hurt(((event.clientX - box.left) / box.width) * width, ((event.clientY - box.top) / box.height) * height, REACH);
  void show();
}

canvas.addEventListener("pointerdown", press);
canvas.addEventListener("pointermove", press);
el("grow").addEventListener("click", () => void demo.work("Fetching the cells", async (signal) => {
  demo.say("Growing. Drag over the cells to hurt them.");
  while (!signal.aborted && !document.hidden) {
    await step(STEPS);
    if (done % 100 < STEPS) demo.cost();
    await new Promise((next) => requestAnimationFrame(next));
  }
  return `Stopped after ${done} steps.`;
}));
el("again").addEventListener("click", () => {
  reset();
  void show();
});
el("hurt").addEventListener("click", () => {
  hurt(width / 2 + 14 * (Math.random() - 0.5), height / 2 + 10 * (Math.random() - 0.5), 2 * REACH);
  void show();
});
el("plant").addEventListener("click", () => {
  plant[Math.floor(5 + Math.random() * (height - 10)) * width + Math.floor(5 + Math.random() * (width - 10))] = 1;
  void show();
});
reset();
showSeed();
