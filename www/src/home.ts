// The home page: code that runs while it is typed, and the kernels that it is compiled to.
import type { Api, Row } from "../demos/compare/worker";
import { Engine } from "./demo/engine";
import { el, milliseconds } from "./demo/page";
import { Editor } from "./view/editor";
import { dataflow } from "./view/dataflow";
import { kernelList, timeline } from "./view/kernels";
import { tabs } from "./view/tabs";
import { Values } from "./view/values";
import { Sandbox } from "./sandbox/sandbox";
import { Trace, counted, time } from "./trace";

/** Milliseconds from the last key to a run, and the time limit of a run. */
const PAUSE = 450;
const LIMIT = 30_000;
/** The `debug` level: kernels with their opts and code, launches with their times. */
const LEVEL = 4;

const sandbox = new Sandbox(() => new Worker(new URL("./sandbox/worker.ts", import.meta.url), { type: "module" }), LIMIT);
const trace = new Trace();
const values = new Values(el("result"));
const device = el<HTMLSelectElement>("on");
const stop = el<HTMLButtonElement>("stop");
const picker = el<HTMLSelectElement>("snippet");
const bench = el("bench");

let timer: ReturnType<typeof setTimeout> | undefined;
const editor = new Editor(el("editor"), () => later(PAUSE));

function later(ms: number): void {
  clearTimeout(timer);
  timer = setTimeout(() => void run(), ms);
}

const say = (text: string, failed = false): void => {
  el("status").textContent = text;
  el("status").classList.toggle("failed", failed);
};

async function run(): Promise<void> {
  clearTimeout(timer);
  let where = "";
  let fresh = true;
  trace.begin();
  bench.setAttribute("aria-busy", "true");
  stop.hidden = false;
  say("Running");
  // results of the last run stay until this one shows something
  const clear = (): void => {
    if (fresh) values.clear();
    fresh = false;
  };
  const end = await sandbox.run({ code: editor.value, device: device.value, level: LEVEL }, {
    started(kind, threads) {
      where = kind === "webgpu" ? "WebGPU" : `WebAssembly, ${threads} thread${threads > 1 ? "s" : ""}`;
    },
    item(item) {
      clear();
      values.add(item);
    },
    log: (text) => trace.add(text),
  });
  if ("stopped" in end && end.stopped === "The code changed.") return;
  bench.setAttribute("aria-busy", "false");
  stop.hidden = true;
  clear();
  const kernels = trace.launched();
  el("kernels-count").textContent = kernels.length > 0 ? String(kernels.length) : "";
  kernelList(el("kernels"), trace);
  dataflow(el("graph"), trace);
  timeline(el("timeline"), trace);
  if ("error" in end) {
    const { name, message, hint } = end.error;
    say(`${name}: ${message}${hint ? ` (${hint})` : ""}`, true);
  } else if ("stopped" in end) say(end.stopped, true);
  else {
    const us = trace.launches.reduce((sum, launch) => sum + launch.us, 0);
    const { made } = trace;
    const parts = [`Ran in ${time(end.done * 1e3)}`, where];
    if (kernels.length > 0) parts.push(`${counted(kernels.length, "kernel")}${made > 0 ? `, ${made} compiled now` : ""}`);
    if (trace.launches.length > 0) parts.push(`${counted(trace.launches.length, "launch")} in ${time(us)}`);
    say(parts.join(" · "));
  }
}

const snippets = JSON.parse(el("snippets").textContent ?? "{}") as Record<string, string>;

picker.addEventListener("change", () => {
  editor.value = snippets[picker.value] ?? "";
  void run();
});
device.addEventListener("change", () => {
  trace.kernels.clear();
  void run();
});
el("run").addEventListener("click", () => void run());
stop.addEventListener("click", () => sandbox.stop("Stopped."));
addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) void run();
});
// passes the editor's code to the page that shows its compilation
el("look").addEventListener("click", () => {
  try {
    sessionStorage.setItem("look", editor.value);
  } catch {
    // blocked storage: the other page shows its own code
  }
});
tabs(el("panes"));
const asked = new URL(location.href).searchParams.get("device");
if (asked === "wasm" || asked === "webgpu") device.value = asked;
// load the compiler only once the editor is visible
const seen = new IntersectionObserver((entries) => {
  if (!entries.some((entry) => entry.isIntersecting)) return;
  seen.disconnect();
  void run();
});
seen.observe(bench);

/** Measures two models in both runtimes, in a worker that is started on request. */
async function measure(button: HTMLButtonElement): Promise<void> {
  const body = el("measured").querySelector("tbody") as HTMLTableSectionElement;
  const [end, said] = [el<HTMLButtonElement>("measure-stop"), el("measure-said")];
  const line = (title: string, ...values: number[]): void => {
    const row = body.insertRow();
    row.append(Object.assign(document.createElement("th"), { scope: "row", textContent: title }));
    for (const value of values) row.insertCell().textContent = milliseconds(value);
  };
  while (body.rows.length > 1) body.deleteRow(1);
  const worker = new Worker(new URL("../demos/compare/worker.ts", import.meta.url), { type: "module" });
  const engine = new Engine<Api>(worker);
  const control = new AbortController();
  end.onclick = () => control.abort();
  button.disabled = true;
  end.hidden = false;
  said.textContent = "Fetching onnxruntime-web";
  try {
    const { threads } = await engine.ask("use", "wasm");
    await engine.ask("compare", { only: ["vad", "magika"] }, {
      signal: control.signal,
      onEvent(event) {
        if (!("row" in event)) return;
        const { title, ours, theirs } = event.row as Row;
        line(`${title}, until the first result`, ours.first, theirs.first);
        line(`${title}, each run after it`, ours.again, theirs.again);
      },
    });
    said.textContent = `Measured just now, ${counted(threads, "thread")}.`;
  } catch (error) {
    said.textContent = (error as Error).name === "AbortError" ? "Stopped." : `That failed: ${(error as Error).message}`;
  } finally {
    worker.terminate();
    button.disabled = false;
    end.hidden = true;
  }
}
const ask = document.getElementById("measure") as HTMLButtonElement | null;
ask?.addEventListener("click", () => void measure(ask));
