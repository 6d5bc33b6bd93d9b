// Shared by the pages of all demos: the device selection, the status line, progress, the Stop button, and the line with
// the cost.
import type { DeviceKind } from "gradloom";
import { type Asked, type Asks, Engine } from "./engine";
import type { Event, Own } from "./serve";

/** An element that the page must have. */
export function el<T extends HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no #${id}`);
  return found as T;
}

const WORDS: Record<string, string> = {
  download: "Downloading",
  device: "Starting the device",
  parse: "Reading the model",
  compile: "Compiling",
  run: "Running",
};

export const milliseconds = (n: number): string => (n < 10 ? `${n.toFixed(1)} ms` : n < 10_000 ? `${Math.round(n)} ms` : `${(n / 1000).toFixed(1)} s`);
const megabytes = (n: number): string => (n < 1e6 ? `${Math.round(n / 1e3)} kB` : `${(n / 1e6).toFixed(1)} MB`);

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[sorted.length >> 1] ?? 0;
}

export class Demo<A extends object> {
  readonly engine: Asks<A>;
  readonly #status = el("status");
  readonly #bar = el<HTMLProgressElement>("progress");
  readonly #stop = el<HTMLButtonElement>("stop");
  readonly #form = el<HTMLFormElement>("device");
  readonly #changed: () => void;
  #control: AbortController | undefined;
  #times: number[] = [];
  #what = "run";
  #emulated = false;

  /** `changed` is called when another device is selected; what was made on the previous one is lost. */
  constructor(worker: Worker | Asks<A>, changed: () => void = () => {}) {
    this.engine = worker instanceof Worker ? new Engine<A>(worker) : worker;
    this.#changed = changed;
    this.#stop.addEventListener("click", () => this.#control?.abort());
    void this.#start();
  }

  get busy(): boolean {
    return this.#control !== undefined;
  }

  say(text: string): void {
    if (this.#status.textContent !== text) this.#status.textContent = text;
  }

  /** Sets the progress bar to a fraction, or to indeterminate for null. */
  measure(part: number | null): void {
    if (part === null) this.#bar.removeAttribute("value");
    else this.#bar.value = part;
  }

  /** Asks the worker and shows its progress. */
  ask: Asks<A>["ask"] = async (name, what, options: Asked = {}) => {
    const onEvent = (event: Event): void => {
      if ("progress" in event) this.progress(event.progress as { phase: string; loaded: number; total: number });
      else options.onEvent?.(event);
    };
    return this.engine.ask(name, what, { ...options, onEvent });
  };

  protected progress({ phase, loaded, total }: { phase: string; loaded: number; total: number }): void {
    const amount = phase === "download" && total ? `: ${(loaded / 1e6).toFixed(1)} of ${(total / 1e6).toFixed(1)} MB` : "";
    if (!this.busy) return;
    this.say(`${WORDS[phase] ?? phase}${amount}`);
    this.measure(total ? loaded / total : null);
  }

  /** Runs a demo's work: shows the bar, disables other buttons, stops on Stop, and displays errors as text. */
  async work(start: string, body: (signal: AbortSignal) => Promise<string>): Promise<void> {
    if (this.#control) return;
    this.#control = new AbortController();
    const others = [...document.querySelectorAll<HTMLButtonElement | HTMLInputElement>("main button, #device input, main input[type=file]")];
    const free = others.filter((each) => !each.disabled && each !== this.#stop && !("free" in each.dataset));
    for (const each of free) each.disabled = true;
    this.#bar.hidden = this.#stop.hidden = false;
    this.measure(null);
    this.say(start);
    try {
      const end = await body(this.#control.signal);
      this.cost();
      this.say(end);
    } catch (error) {
      const { name, message, code, hint } = error as { name: string; message: string; code?: string; hint?: string };
      this.say(name === "AbortError" ? "Stopped." : `That failed: ${message}${hint ? ` (${hint})` : ""}${code ? ` [${code}]` : ""}`);
    } finally {
      this.#bar.hidden = this.#stop.hidden = true;
      for (const each of free) each.disabled = false;
      this.#control = undefined;
    }
  }

  /** Records a duration for the line of costs; `what` is its name there, e.g. "step". */
  took(ms: number, what = "run"): void {
    this.#what = what;
    this.#times.push(ms);
    if (this.#times.length > 200) this.#times.splice(1, 1);
  }

  /** Shows the cost so far: the device, the times, the kernels, the bytes. */
  cost(): void {
    const { cost } = this.engine;
    if (!cost) return;
    const [first, ...later] = this.#times;
    const gpu = this.#emulated ? "WebGPU, emulated by the processor" : "WebGPU";
    const parts = [cost.device === "webgpu" ? gpu : `WebAssembly, ${cost.threads} thread${cost.threads > 1 ? "s" : ""}`];
    if (first !== undefined && later.length > 0) parts.push(`${milliseconds(median(later))} a ${this.#what}, the first ${milliseconds(first)}`);
    else if (first !== undefined) parts.push(`${milliseconds(first)} for the first ${this.#what}`);
    const all = cost.compiled + cost.kept;
    const kept = cost.kept === 0 ? "" : cost.compiled === 0 ? ", kept from an earlier visit" : `, ${cost.kept} of them kept from earlier`;
    if (all > 0) parts.push(`${all} kernels${kept}${cost.compiled > 0 ? `, compiled in ${milliseconds(cost.compileMs)}` : ""}`);
    if (cost.bytes > 0) parts.push(`${megabytes(cost.bytes)} downloaded`);
    el("cost").textContent = parts.join(" · ");
  }

  #radio(kind: DeviceKind): HTMLInputElement {
    return this.#form.querySelector(`[value=${kind}]`) as HTMLInputElement;
  }

  async #use(device: DeviceKind | "auto"): Promise<void> {
    await this.work("Starting the device", async () => {
      this.#times = [];
      this.#changed();
      const own = this.engine as unknown as Asks<Own>;
      const cost = await own.ask("use", device);
      this.#radio(cost.device).checked = true;
      if (this.#emulated) warn(cost.device);
      const threads = cost.device === "wasm" ? ` with ${cost.threads} thread${cost.threads > 1 ? "s" : ""}` : "";
      return `Ready: ${cost.device === "webgpu" ? "WebGPU" : "WebAssembly"}${threads}.`;
    });
  }

  async #start(): Promise<void> {
    try {
      const list = await (this.engine as unknown as Asks<Own>).ask("devices");
      for (const { kind, available, reason, software } of list) {
        this.#radio(kind).disabled = !available;
        if (kind !== "webgpu") continue;
        const note = el("device-note");
        if (!available) note.textContent = `There is no WebGPU here (${reason}), so the processor computes: the same results, only slower.`;
        this.#emulated = available && software;
      }
      this.#form.addEventListener("change", () => {
        const kind = new FormData(this.#form).get("device") as DeviceKind;
        try {
          sessionStorage.setItem("device", kind);
        } catch {
          // blocked storage: each page starts with its own choice
        }
        void this.#use(kind);
      });
      const wanted = new URL(location.href).searchParams.get("device") ?? remembered();
      const known = list.find(({ kind, available }) => kind === wanted && available);
      await this.#use(known?.kind ?? "auto");
    } catch (error) {
      this.say(`The page could not start: ${(error as Error).message}`);
    }
  }
}

/** Shows a warning if a GPU that is emulated on the CPU is selected. */
function warn(device: DeviceKind): void {
  const note = el("device-note");
  note.classList.toggle("soft", device !== "webgpu");
  note.textContent = device === "webgpu"
    ? "This GPU is emulated by the processor: WebAssembly is faster here."
    : "The GPU here is emulated by the processor, so WebAssembly is the faster choice.";
}

function remembered(): string | null {
  try {
    return sessionStorage.getItem("device");
  } catch {
    return null;
  }
}
