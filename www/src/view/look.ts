// Views of what a run compiled and launched: kernels with their passes, graphs of models, memory, and launches.
import { type Kernel, type Stage, type Trace, counted, time } from "../trace";
import { compared } from "./graph";
import { code, facts, timeline } from "./kernels";
import { memoryMap } from "./memory";

function pane(id: string): HTMLElement {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no #${id}`);
  return found;
}

/** A list of steps, of which the selected one is shown below. */
function steps(names: readonly { name: string; what?: string }[], first: number, show: (at: number) => HTMLElement[]): HTMLElement {
  const box = document.createElement("div");
  const list = document.createElement("ol");
  list.className = "passes";
  const view = document.createElement("div");
  const open = (at: number): void => {
    for (const [i, each] of [...list.querySelectorAll("button")].entries()) each.setAttribute("aria-pressed", String(i === at));
    view.replaceChildren(...show(at));
  };
  names.forEach(({ name, what }, at) => {
    const item = document.createElement("li");
    const button = document.createElement("button");
    button.type = "button";
    button.className = "plain small";
    button.textContent = name;
    if (what) button.title = what;
    button.addEventListener("click", () => open(at));
    item.append(button);
    list.append(item);
  });
  box.append(list, view);
  open(first);
  return box;
}

/** The description of a pass, and the rules that fired in it. */
function told({ what, rules }: Stage): HTMLElement[] {
  const text = document.createElement("p");
  text.className = "soft";
  text.textContent = what;
  if (rules.length === 0) return what ? [text] : [];
  const list = document.createElement("ul");
  list.className = "rules";
  list.setAttribute("aria-label", "Rules that fired");
  for (const { rule, count } of rules) {
    const item = document.createElement("li");
    item.append(Object.assign(document.createElement("code"), { textContent: rule }), count > 1 ? ` × ${count}` : "");
    list.append(item);
  }
  return [text, list];
}

function beside(graphs: HTMLElement[]): HTMLElement {
  const view = document.createElement("div");
  view.className = "beside";
  view.append(...graphs);
  return view;
}

/** The passes of a kernel; the selected one is shown with the graph before and after it. */
function passes(kernel: Kernel): HTMLElement {
  const opts = kernel.graphs.findIndex(({ name }) => name === "opts");
  return steps([...kernel.graphs, { name: "code" }], Math.max(0, opts), (at) => {
    const graph = kernel.graphs[at];
    if (!graph) return [code(kernel.code, `Code of ${kernel.name}`)];
    return [...told(graph), beside(compared(kernel.graphs[at - 1]?.text, graph.text))];
  });
}

/** The views of a page that has their panes: `list`, `kernel`, `graphs`, `memory` and `timeline`. */
export class Look {
  /** The kernel that the user selected. */
  #chosen: string | undefined;
  /** What is displayed, to avoid redrawing unchanged content. */
  #open: Kernel | undefined;
  #passes = -1;
  /** Descriptions of the scheduler's passes, which programs report and pages do not. */
  readonly #words: Readonly<Record<string, string>>;

  constructor(words: Readonly<Record<string, string>> = {}) {
    this.#words = words;
  }

  /** Resets the selection. */
  begin(): void {
    this.#chosen = this.#open = undefined;
    this.#passes = -1;
  }

  show(trace: Trace): void {
    this.#kernels(trace);
    this.#graphs(trace);
    memoryMap(pane("memory"), trace);
    timeline(pane("timeline"), trace);
  }

  #kernels(trace: Trace): void {
    const [list, view] = [pane("list"), pane("kernel")];
    const all = trace.launched().filter((each) => each.kernels.length > 0);
    const most = Math.max(...all.map(({ us }) => us), 1e-9);
    if (all.length === 0) {
      this.#open = undefined;
      view.replaceChildren();
    }
    const open = (at: number): void => {
      const one = all[at];
      if (!one) return;
      [...list.querySelectorAll("button")].forEach((each, i) => each.setAttribute("aria-pressed", String(i === at)));
      if (one.kernels[0] === this.#open) return;
      this.#open = one.kernels[0];
      view.replaceChildren(...one.kernels.flatMap((kernel) => {
        const title = Object.assign(document.createElement("h2"), { textContent: kernel.name });
        return [title, facts(kernel), passes(kernel)];
      }));
    };
    const focused = [...list.querySelectorAll("button")].indexOf(document.activeElement as HTMLButtonElement);
    list.replaceChildren();
    all.forEach(({ kernels: [kernel], name, count, us }, at) => {
      const button = document.createElement("button");
      button.type = "button";
      const bar = document.createElement("i");
      bar.className = "part";
      bar.style.width = `${Math.max(2, (100 * us) / most)}%`;
      const expected = kernel?.estimate === undefined ? "" : ` · expected ${time(kernel.estimate * count)}`;
      const text = document.createElement("span");
      text.textContent = `${time(us)}${count > 1 ? ` in ${count.toLocaleString("en")} launches` : ""}${expected}`;
      button.append(Object.assign(document.createElement("b"), { textContent: name }), text, bar);
      button.addEventListener("click", () => {
        this.#chosen = name;
        open(at);
      });
      const item = document.createElement("li");
      item.append(button);
      list.append(item);
    });
    if (focused >= 0) list.querySelectorAll("button")[focused]?.focus();
    // initially select the kernel with the most work
    const work = all.map(({ kernels: [kernel], count }) => (kernel?.flops ?? 0) * count);
    const chosen = all.findIndex(({ name }) => name === this.#chosen);
    open(chosen >= 0 ? chosen : work.indexOf(Math.max(...work)));
  }

  #graphs(trace: Trace): void {
    if (trace.passes === this.#passes) return;
    this.#passes = trace.passes;
    const heading = (text: string): HTMLElement => Object.assign(document.createElement("h2"), { textContent: text });
    const pane_ = pane("graphs");
    pane_.replaceChildren();
    const { models, schedules } = trace;
    if (models.length > 0) {
      const what = "The graph of a whole model after each pass that changed it, before anything is planned.";
      pane_.append(heading("The model's graph"), paragraph(what), chosen("Model", models, (stages) => stagesOf(stages, this.#words)));
    }
    if (schedules.length === 0) {
      pane_.append(paragraph("Nothing was planned yet."));
      return;
    }
    const what = "What is computed at once: its graph after each pass of the scheduler that changed it, and from the pass lower on its kernels. " +
      "The passes over each kernel are under Kernels.";
    pane_.append(heading("From a graph to kernels"), paragraph(what), chosen("Schedule", schedules, (stages) => stagesOf(stages, this.#words)));
  }
}

function paragraph(text: string): HTMLElement {
  return Object.assign(document.createElement("p"), { className: "soft", textContent: text });
}

/** The stages of a whole graph; the selected one is shown beside the one before it. */
function stagesOf(stages: readonly Stage[], words: Readonly<Record<string, string>>): HTMLElement {
  return steps(stages, Math.min(1, stages.length - 1), (at) => {
    const stage = stages[at] as Stage;
    // `constants` lists values that are computed once, which is no graph to compare with
    const before = stage.name === "constants" ? undefined : stages[at - 1]?.text;
    return [...told({ ...stage, what: stage.what || (words[stage.name] ?? "") }), beside(compared(before, stage.text))];
  });
}

/** The number of kernels of a schedule, once it has some. */
const kernelsOf = (stages: readonly Stage[]): number => (stages.at(-1)?.text.match(/^\/\/ kernel \d+/gm) ?? []).length;

/** One of several groups of stages, at first the last of those with most kernels; a list chooses another one. */
function chosen(label: string, groups: readonly (readonly Stage[])[], show: (stages: readonly Stage[]) => HTMLElement): HTMLElement {
  const box = document.createElement("div");
  const counts = groups.map(kernelsOf);
  const largest = counts.lastIndexOf(Math.max(...counts));
  const view = document.createElement("div");
  view.append(show(groups[largest] as readonly Stage[]));
  if (groups.length > 1) {
    const picker = document.createElement("select");
    picker.setAttribute("aria-label", label);
    counts.forEach((count, at) => {
      picker.append(new Option(`${label} ${at + 1} of ${groups.length}${count > 0 ? `: ${counted(count, "kernel")}` : ""}`, String(at), false, at === largest));
    });
    picker.addEventListener("change", () => view.replaceChildren(show(groups[Number(picker.value)] as readonly Stage[])));
    box.append(picker);
  }
  box.append(view);
  return box;
}
