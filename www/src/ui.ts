// The parts of the page that all demos share: the status line, progress, the stop button, timing, small helpers.
import type { Answer, Timing, UsedDevice } from "./protocol";

/** An element that the page has. */
export function el<T extends HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no #${id}`);
  return found as T;
}

const status = el("status");
const progress = el<HTMLProgressElement>("progress");
const stopButton = el<HTMLButtonElement>("stop");
let control: AbortController | undefined;

export function say(text: string): void {
  if (status.textContent !== text) status.textContent = text;
}

const WORDS: Record<string, string> = {
  download: "Downloading",
  device: "Starting the device",
  parse: "Reading the model",
  compile: "Compiling",
  run: "Running",
};

/** Shows progress of the work under way. */
export function show(event: Answer): void {
  if (event.kind !== "progress") return;
  const { phase, loaded, total } = event;
  const mega = (n: number): string => (n / 1e6).toFixed(1);
  const amount = phase === "download" && total ? `: ${mega(loaded)} of ${mega(total)} MB` : "";
  say(`${WORDS[phase] ?? phase}${amount}`);
  measure(total ? loaded / total : null);
}

/** The bar: a part done, or null where that is not known. */
export function measure(part: number | null): void {
  if (part === null) progress.removeAttribute("value");
  else progress.value = part;
}

stopButton.addEventListener("click", () => control?.abort());

/** Whether some demo is at work. */
export const isBusy = (): boolean => control !== undefined;

/** Runs a demo's work: the bar shows, other buttons wait, Stop stops, an error is said in words. */
export async function work(start: string, body: (signal: AbortSignal) => Promise<string>): Promise<void> {
  if (control) return;
  control = new AbortController();
  const { signal } = control;
  const others = [...document.querySelectorAll<HTMLButtonElement | HTMLInputElement>("main button, #device input, main input[type=file]")];
  const before = others.map((each) => each.disabled);
  for (const each of others) if (each.id !== "clear") each.disabled = true;
  progress.hidden = stopButton.hidden = false;
  measure(null);
  say(start);
  try {
    say(await body(signal));
  } catch (error) {
    const { name, message, code, hint } = error as { name: string; message: string; code?: string; hint?: string };
    say(name === "AbortError" ? "Stopped." : `That failed: ${message}${hint ? ` (${hint})` : ""}${code ? ` [${code}]` : ""}`);
  } finally {
    progress.hidden = stopButton.hidden = true;
    others.forEach((each, at) => (each.disabled = before[at] as boolean));
    control = undefined;
  }
}

let device: UsedDevice | undefined;

/** The device in use, for the timing lines. */
export function using(used: UsedDevice): void {
  device = used;
}

/** What a run cost, plainly. */
export function timing(id: string, { compile, first, p50, runs }: Timing, what = "run"): void {
  const ms = (n: number): string => (n < 10 ? `${n.toFixed(1)} ms` : `${Math.round(n)} ms`);
  const where = device ? ` on ${device.kind === "webgpu" ? "WebGPU" : `WebAssembly, ${device.threads} thread${device.threads > 1 ? "s" : ""}`}` : "";
  const later = runs > 1 ? `, median of later ${what}s ${ms(p50)}` : "";
  el(id).textContent = `Compile ${ms(compile)}, first ${what} with that ${ms(first)}${later}${where}.`;
}

/** Calls back with files that are chosen, dropped or pasted. */
export function files(input: string, zone: string | null, take: (file: File) => void): void {
  const field = el<HTMLInputElement>(input);
  field.addEventListener("change", () => {
    const file = field.files?.[0];
    if (file) take(file);
    field.value = "";
  });
  if (!zone) return;
  const area = el(zone);
  area.addEventListener("dragover", (event) => {
    event.preventDefault();
    area.classList.add("over");
  });
  area.addEventListener("dragleave", () => area.classList.remove("over"));
  area.addEventListener("drop", (event) => {
    event.preventDefault();
    area.classList.remove("over");
    const file = event.dataTransfer?.files[0];
    if (file) take(file);
  });
}

/** The page's colours, for canvases. */
export function colour(name: string): string {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

/** A line through values from 0 to `top`. */
export function plot(canvas: HTMLCanvasElement, values: readonly number[], top: number, count: number): void {
  const c = canvas.getContext("2d") as CanvasRenderingContext2D;
  const { width, height } = canvas;
  c.clearRect(0, 0, width, height);
  c.strokeStyle = colour("--line");
  c.lineWidth = 1;
  for (let at = 1; at < 4; at += 1) {
    c.beginPath();
    c.moveTo(0, (height * at) / 4);
    c.lineTo(width, (height * at) / 4);
    c.stroke();
  }
  c.strokeStyle = colour("--accent");
  c.lineWidth = 2;
  c.beginPath();
  values.forEach((v, at) => {
    const [x, y] = [(at / Math.max(1, count - 1)) * (width - 4) + 2, height - 4 - (Math.min(v, top) / top) * (height - 8)];
    if (at === 0) c.moveTo(x, y);
    else c.lineTo(x, y);
  });
  c.stroke();
}

/** In words, why a camera or microphone was not to be had. */
export function refused(error: unknown, what: string): Error {
  const { name } = error as { name?: string };
  if (name === "NotAllowedError") return new Error(`the ${what} was not allowed; allow it in the browser's address bar`);
  if (name === "NotFoundError") return new Error(`there is no ${what}`);
  if (name === "NotReadableError") return new Error(`the ${what} is used by something else`);
  return error instanceof Error ? error : new Error(String(error));
}
