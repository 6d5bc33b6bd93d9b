// The digit reader: training with a live curve, then reading what is drawn.
import { Demo, el } from "../../src/demo/page";
import { penOf, plot } from "../../src/demo/widgets";
import type { Api } from "./worker";

const SIDE = 28;
const pad = el<HTMLCanvasElement>("pad");
const pen = penOf(pad);
const result = el("digit");
let trained = false;

function clear(): void {
  pen.fillStyle = "#000";
  pen.fillRect(0, 0, pad.width, pad.height);
  result.textContent = trained ? "Draw a digit." : "Train first, then draw a digit.";
}

/** The drawing in the form of the training data: the ink scaled to 20 by 20, centred by mass in 28 by 28. */
function pixels(): Float32Array | null {
  const { width, height } = pad;
  const ink = pen.getImageData(0, 0, width, height).data;
  let [left, top, right, bottom] = [width, height, -1, -1];
  for (let y = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1) {
      if ((ink[4 * (y * width + x)] as number) < 40) continue;
      [left, right, top, bottom] = [Math.min(left, x), Math.max(right, x), Math.min(top, y), Math.max(bottom, y)];
    }
  }
  if (right < 0) return null;
  const [w, h] = [right - left + 1, bottom - top + 1];
  const scale = 20 / Math.max(w, h);
  const draw = (dx: number, dy: number): Uint8ClampedArray => {
    const small = new OffscreenCanvas(SIDE, SIDE).getContext("2d", { willReadFrequently: true }) as OffscreenCanvasRenderingContext2D;
    small.fillRect(0, 0, SIDE, SIDE);
    small.imageSmoothingQuality = "high";
    small.drawImage(pad, left, top, w, h, (SIDE - w * scale) / 2 + dx, (SIDE - h * scale) / 2 + dy, w * scale, h * scale);
    return small.getImageData(0, 0, SIDE, SIDE).data;
  };
  const first = draw(0, 0);
  let [mass, mx, my] = [0, 0, 0];
  for (let at = 0; at < SIDE * SIDE; at += 1) {
    const v = first[4 * at] as number;
    mass += v;
    mx += v * (at % SIDE);
    my += v * Math.floor(at / SIDE);
  }
  if (mass === 0) return null;
  const middle = (SIDE - 1) / 2;
  const moved = draw(Math.round(middle - mx / mass), Math.round(middle - my / mass));
  return Float32Array.from({ length: SIDE * SIDE }, (_, at) => (moved[4 * at] as number) / 255);
}

let reading = false;

async function read(): Promise<void> {
  if (!trained || demo.busy || reading) return;
  const image = pixels();
  if (!image) {
    result.textContent = "There is nothing to read on the pad.";
    return;
  }
  reading = true;
  try {
    const probabilities = await demo.ask("read", { pixels: image });
    chances(probabilities);
    const best = probabilities.indexOf(Math.max(...probabilities));
    result.textContent = `That is a ${best} (${Math.round(100 * (probabilities[best] as number))} %).`;
  } catch (error) {
    result.textContent = `That failed: ${(error as Error).message}`;
  } finally {
    reading = false;
  }
}

let at: [number, number] | null = null;

function line(to: [number, number]): void {
  const [x, y] = at ?? to;
  pen.strokeStyle = "#fff";
  pen.lineWidth = 22;
  pen.lineCap = pen.lineJoin = "round";
  pen.beginPath();
  pen.moveTo(x, y);
  pen.lineTo(...to);
  pen.stroke();
  at = to;
}

function where(event: PointerEvent): [number, number] {
  const box = pad.getBoundingClientRect();
  return [((event.clientX - box.left) / box.width) * pad.width, ((event.clientY - box.top) / box.height) * pad.height];
}

function keyboard(): void {
  let [x, y, down] = [140, 50, false];
  pad.addEventListener("keydown", (event) => {
    const moves: Record<string, [number, number]> = { ArrowLeft: [-14, 0], ArrowRight: [14, 0], ArrowUp: [0, -14], ArrowDown: [0, 14] };
    const move = moves[event.key];
    if (move) [x, y] = [Math.min(266, Math.max(14, x + move[0])), Math.min(266, Math.max(14, y + move[1]))];
    else if (event.key === " ") {
      down = !down;
      at = null;
      result.textContent = down ? "The pen is down: arrows draw, space lifts it." : "The pen is up.";
    } else return;
    event.preventDefault();
    if (down) line([x, y]);
    else if (!move) void read();
  });
}

/** Shows a bar for each digit's probability. */
function chances(probabilities: readonly number[]): void {
  const rows = probabilities.map((p, digit) => {
    const row = document.createElement("div");
    const bar = document.createElement("i");
    bar.style.height = `${Math.max(2, 100 * p)}%`;
    row.append(bar, String(digit));
    return row;
  });
  el("chances").replaceChildren(...rows);
}

const demo = new Demo<Api>(new Worker(new URL("./worker.ts", import.meta.url), { type: "module" }), () => {
  // training starts from scratch on another device
  trained = false;
  clear();
});

const STEPS = Number(new URL(location.href).searchParams.get("steps") ?? 500);
const curve = el<HTMLCanvasElement>("loss");
let losses: number[] = [];
const draw = (): void => plot(curve, losses, 2.4, STEPS);

clear();
keyboard();
chances(new Array(10).fill(0));
draw();
addEventListener("themechange", draw);
el("clear").addEventListener("click", clear);
pad.addEventListener("pointerdown", (event) => {
  pad.setPointerCapture(event.pointerId);
  at = null;
  line(where(event));
});
pad.addEventListener("pointermove", (event) => {
  if (!pad.hasPointerCapture(event.pointerId)) return;
  // browsers join the moves of a frame to one event; where the page is busy, corners would be cut off
  const moves = event.getCoalescedEvents?.() ?? [];
  for (const move of moves.length > 0 ? moves : [event]) line(where(move));
});
pad.addEventListener("pointerup", () => void read());
el("train").addEventListener("click", () => {
  losses = [];
  void demo.work("Compiling the training step", async (signal) => {
    const done = await demo.ask("train", { steps: STEPS }, {
      signal,
      onEvent: (event) => {
        if (!("step" in event)) return;
        const { step, steps, loss, ms } = event as { step: number; steps: number; loss: number; ms: number };
        losses.push(loss);
        demo.took(ms, "step");
        demo.measure(step / steps);
        draw();
        el("loss-text").textContent = `Step ${step} of ${steps}: loss ${loss.toFixed(3)}`;
        if (step % 50 === 1) demo.say(`Training: step ${step} of ${steps}`);
      },
    });
    trained = true;
    clear();
    return `Trained ${done.steps} steps in ${done.seconds.toFixed(1)} s: reads ${(100 * done.accuracy).toFixed(1)} % of the test digits right.`;
  });
});
