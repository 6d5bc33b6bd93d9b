// The page of `gradloom viz`: shows live what native programs compile and launch. The server sends events whose first
// line is the number of an engine; a program has one engine for each device that it opens.
import { Trace, counted, time } from "./trace";
import { Look } from "./view/look";
import { tabs } from "./view/tabs";

/** The number of most recent launches that are shown. */
const LAUNCHES = 20_000;
/** Milliseconds between two redraws. */
const PAUSE = 500;

interface Run {
  name: string;
  trace: Trace;
  /** Number of launches so far, and their total time in microseconds. */
  launches: number;
  us: number;
  ended: boolean;
}

const get = <T extends HTMLElement>(id: string): T => document.getElementById(id) as T;
const picker = get<HTMLSelectElement>("run");
const look = new Look();
const runs = new Map<string, Run>();
let shown: string | undefined;
let [following, waiting] = [true, false];

function draw(): void {
  waiting = false;
  const run = shown === undefined ? undefined : runs.get(shown);
  get("views").hidden = !run;
  if (!run) return;
  look.show(run.trace);
  const kernels = [...run.trace.kernels.values()].reduce((sum, each) => sum + each.length, 0);
  const kept = run.launches > run.trace.launches.length ? `, the last ${run.trace.launches.length.toLocaleString("en")} of them below` : "";
  get("status").textContent =
    `${run.ended ? "Ended" : "Runs"}: ${counted(kernels, "kernel")} · ${counted(run.launches, "launch")} in ${time(run.us)}${kept}`;
}

/** Schedules a redraw, at most one per interval rather than one per launch. */
function soon(): void {
  if (!waiting) setTimeout(draw, PAUSE);
  waiting = true;
}

function open(id: string): void {
  if (id !== shown) look.begin();
  shown = picker.value = id;
  soon();
}

function name(run: string): void {
  const { name, ended } = runs.get(run) as Run;
  const option = [...picker.options].find(({ value }) => value === run) ?? picker.appendChild(new Option("", run));
  option.text = `${run}: ${name}${ended ? "" : " (runs)"}`;
}

function reset(): void {
  runs.clear();
  picker.replaceChildren();
  shown = undefined;
  following = true;
  get("status").textContent = "Waiting for a program. Start one with VIZ set to this page's address, or give it to gradloom viz.";
  soon();
}

/** Splits an event into its first line and the rest. */
function parts({ data }: MessageEvent<string>): [string, string] {
  const at = data.indexOf("\n");
  return at < 0 ? [data, ""] : [data.slice(0, at), data.slice(at + 1)];
}

const source = new EventSource("events");
source.addEventListener("fresh", reset);
source.addEventListener("begin", (event) => {
  const [id, name_] = parts(event);
  runs.set(id, { name: name_, trace: new Trace(), launches: 0, us: 0, ended: false });
  name(id);
  // show the newest engine until the user selects one
  if (following) open(id);
});
source.addEventListener("told", (event) => {
  const [id, text] = parts(event);
  const run = runs.get(id);
  if (!run) return;
  const { trace } = run;
  const before = trace.launches.length;
  trace.add(text);
  if (trace.launches.length > before) {
    run.launches += 1;
    run.us += trace.launches.at(-1)?.us ?? 0;
    if (trace.launches.length > LAUNCHES) trace.launches.shift();
  }
  if (id === shown) soon();
});
source.addEventListener("end", (event) => {
  const [id] = parts(event);
  const run = runs.get(id);
  if (!run) return;
  run.ended = true;
  name(id);
  if (id === shown) soon();
});
source.addEventListener("error", () => {
  get("status").textContent = "The server is gone: start gradloom viz again.";
});
picker.addEventListener("change", () => {
  following = false;
  open(picker.value);
});
tabs(get("panes"));
