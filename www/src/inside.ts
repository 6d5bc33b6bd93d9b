// The page that shows a compilation: the kernels of a model or of some code, every pass on the way, the memory, and the
// launches.
import { el } from "./demo/page";
import { files } from "./demo/widgets";
import type { Item } from "./sandbox/messages";
import { Sandbox } from "./sandbox/sandbox";
import { Trace, counted, time } from "./trace";
import { Editor } from "./view/editor";
import { Look } from "./view/look";
import { tabs } from "./view/tabs";

const LIMIT = 120_000;
/** The `debug` level: the graph after each pass. */
const LEVEL = 6;

const sandbox = new Sandbox(() => new Worker(new URL("./sandbox/worker.ts", import.meta.url), { type: "module" }), LIMIT);
let trace = new Trace();
const look = new Look(JSON.parse(el("passes").textContent ?? "{}") as Record<string, string>);
const editor = new Editor(el("editor"), () => {});
const picker = el<HTMLSelectElement>("snippet");
const device = el<HTMLSelectElement>("on");
const stop = el<HTMLButtonElement>("stop");
const snippets = JSON.parse(el("snippets").textContent ?? "{}") as Record<string, string>;
let file: Blob | undefined;

const say = (text: string, failed = false): void => {
  el("status").textContent = text;
  el("status").classList.toggle("failed", failed);
};

async function run(): Promise<void> {
  trace = new Trace();
  let [where, said] = ["", ""];
  stop.hidden = false;
  say("Running: compiling every kernel once more to show each pass");
  // a new worker, since kernels that an earlier run compiled would not be reported again
  sandbox.stop("The code changed.");
  const order = { code: editor.value, device: device.value, level: LEVEL, file };
  const watch = {
    started(kind: string, threads: number) {
      where = kind === "webgpu" ? "WebGPU" : `WebAssembly, ${threads} thread${threads > 1 ? "s" : ""}`;
    },
    item(item: Item) {
      if (item.kind === "text") said = item.text;
    },
    log: (text: string) => trace.add(text),
  };
  let end = await sandbox.run(order, watch);
  if ("done" in end) {
    // run again for the times, since the first launch of a kernel includes its compilation
    trace.begin();
    say("Running once more, for the times");
    end = await sandbox.run(order, watch);
  }
  if ("stopped" in end && end.stopped === "The code changed.") return;
  stop.hidden = true;
  look.begin();
  look.show(trace);
  if ("error" in end) say(`${end.error.name}: ${end.error.message}${end.error.hint ? ` (${end.error.hint})` : ""}`, true);
  else if ("stopped" in end) say(end.stopped, true);
  else {
    const us = trace.launches.reduce((sum, launch) => sum + launch.us, 0);
    const made = [...trace.kernels.values()].reduce((sum, each) => sum + each.length, 0);
    say(`Ran: ${counted(made, "kernel")} · ${counted(trace.launches.length, "launch")} in ${time(us)} · ${where}${said ? ` · ${said}` : ""}`);
  }
}

/** Puts code into the editor: a snippet, or what runs a model of the site. */
function pick(name: string): void {
  const [, kind, address] = /^(model|language):(.*)$/.exec(name) ?? [];
  const text = snippets[kind ?? name] ?? "";
  editor.value = address ? text.replace("// `file` is the file chosen above\n", "").replace("load(file", `load("${address}"`) : text;
}

picker.addEventListener("change", () => {
  pick(picker.value);
  void run();
});
files("file", "drop", (given) => {
  file = given;
  editor.value = snippets[/\.gguf$/i.test(given.name) ? "language" : "model"] ?? "";
  el("file-name").textContent = `${given.name}, ${(given.size / 1e6).toFixed(1)} MB`;
  void run();
});
el("run").addEventListener("click", () => void run());
stop.addEventListener("click", () => sandbox.stop("Stopped."));
device.addEventListener("change", () => void run());
tabs(el("panes"));
const asked = new URL(location.href).searchParams.get("device");
if (asked === "wasm" || asked === "webgpu") device.value = asked;
// the code of the home page's editor, if the visitor came from there
try {
  const given = sessionStorage.getItem("look");
  sessionStorage.removeItem("look");
  if (given !== null) editor.value = given;
} catch {
  // blocked storage: the page's own code
}
void run();
