// The home page: code that runs as one types, and the kernels it became.
import { el } from "./demo/page";
import { Editor } from "./view/editor";
import { kernelList, timeline } from "./view/kernels";
import { tabs } from "./view/tabs";
import { Values } from "./view/values";
import { Sandbox } from "./sandbox/sandbox";
import { Trace, counted, time } from "./trace";

/** Milliseconds: from the last key to a run, and how long a run may take. */
const PAUSE = 450;
const LIMIT = 30_000;
/** Kernels with their opts and code, launches with their times. */
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
  // what the last run shows stays until this one shows something
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
tabs(el("panes"));
const asked = new URL(location.href).searchParams.get("device");
if (asked === "wasm" || asked === "webgpu") device.value = asked;
// a page that is only passed by downloads no compiler
const seen = new IntersectionObserver((entries) => {
  if (!entries.some((entry) => entry.isIntersecting)) return;
  seen.disconnect();
  void run();
});
seen.observe(bench);
