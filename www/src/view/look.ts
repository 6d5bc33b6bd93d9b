// Views of what a run compiled and launched: kernels with their passes, graphs of models, memory, and launches.
import { type Kernel, type Stage, type Trace, time } from "../trace";
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
  #graphs = -1;

  /** Resets the selection. */
  begin(): void {
    this.#chosen = this.#open = undefined;
    this.#graphs = -1;
  }

  show(trace: Trace): void {
    this.#kernels(trace);
    this.#models(trace);
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

  #models(trace: Trace): void {
    const { graphs } = trace;
    if (graphs.length === this.#graphs) return;
    this.#graphs = graphs.length;
    const text = document.createElement("p");
    text.className = "soft";
    text.textContent = graphs.length === 0
      ? "No pass changed the graph of a whole model: code without a model has none, and many models are left as they are."
      : "The graph of a whole model after each pass that changed it, before kernels are made of it.";
    pane("graphs").replaceChildren(text);
    if (graphs.length === 0) return;
    pane("graphs").append(steps(graphs, 0, (at) => {
      const graph = graphs[at] as Stage;
      return [...told(graph), beside(compared(undefined, graph.text))];
    }));
  }
}
