// The small GPT: training with a live curve, and what it writes as it learns.
import { Demo, el } from "../../src/demo/page";
import { plot } from "../../src/demo/widgets";
import { SONNETS } from "./sonnets";
import type { Api } from "./worker";

/** The number of training steps; `?steps=` sets fewer, for a quicker run. */
const STEPS = Number(new URL(location.href).searchParams.get("steps")) || 360;
const LEAST = 200;
const demo = new Demo<Api>(new Worker(new URL("./worker.ts", import.meta.url), { type: "module" }));
const field = el<HTMLTextAreaElement>("text");
field.value = SONNETS;

el("train").addEventListener("click", () => void demo.work("Reading", async (signal) => {
  const text = field.value;
  if (text.length < LEAST) throw new Error(`the text needs ${LEAST} letters at least`);
  const losses: number[] = [];
  const { steps, loss, text: written } = await demo.ask("train", { text, steps: STEPS }, {
    signal,
    onEvent(event) {
      if (!("step" in event)) return;
      losses.push(event.loss as number);
      demo.took(event.ms as number, "step");
      demo.measure(event.step / event.steps);
      plot(el<HTMLCanvasElement>("loss"), losses, losses[0] as number, STEPS);
      el("loss-text").textContent = `Step ${event.step} of ${STEPS}: loss ${losses.at(-1)?.toFixed(2)}`;
      if (event.text) el("written").textContent = event.text as string;
    },
  });
  el("written").textContent = written;
  return `Trained ${steps} steps: loss ${loss.toFixed(2)}.`;
}));
plot(el<HTMLCanvasElement>("loss"), [], 1, 2);
