// Views of a run's kernels and launches.
import { highlight } from "../highlight.js";
import { type Kernel, type Trace, amount, time } from "../trace";

const el = (name: string, classes: string, text = ""): HTMLElement => {
  const made = document.createElement(name);
  if (classes) made.className = classes;
  made.textContent = text;
  return made;
};

/** Code in a scrollable box that is reachable by keyboard. */
export function code(text: string, label: string): HTMLElement {
  const pre = el("pre", "source");
  pre.tabIndex = 0;
  pre.setAttribute("role", "region");
  pre.setAttribute("aria-label", label);
  pre.innerHTML = highlight(text);
  return pre;
}

export function facts(kernel: Kernel): HTMLElement {
  const list = el("dl", "facts");
  const add = (name: string, value: string): void => list.append(el("dt", "", name), el("dd", "", value));
  add("Launch", kernel.grid);
  add("Work", `${amount(kernel.flops)} operations, ${amount(kernel.bytes)} bytes`);
  if (kernel.estimate !== undefined) add("Estimate", `${time(kernel.estimate)}, bound by ${kernel.bound}`);
  add("Opts", kernel.opts || "none");
  kernel.params.forEach((each) => add(...(each.split(": ", 2) as [string, string])));
  return list;
}

/** A list of the kernels of a run; each opens to its code. */
export function kernelList(pane: HTMLElement, trace: Trace): void {
  const list = trace.launched();
  const total = list.reduce((sum, each) => sum + each.us, 0);
  pane.replaceChildren();
  if (list.length === 0) pane.append(el("p", "soft", "Nothing was computed."));
  for (const { kernels, name, count, us } of list) {
    const [kernel] = kernels;
    const box = el("details", "kernel");
    const head = el("summary", "");
    const bar = el("i", "part");
    bar.style.width = `${total > 0 ? Math.max(2, (100 * us) / total) : 0}%`;
    const per = (n: number, unit: string): string => {
      const rate = (n * count) / us / 1e3;
      return rate < 0.01 ? "" : ` · ${rate.toFixed(2)} ${unit}/s`;
    };
    const rate = kernel && kernels.length === 1 && us > 0 ? per(kernel.flops, "GFLOP") + per(kernel.bytes, "GB") : "";
    head.append(el("code", "", name), el("span", "soft", `${time(us)}${count > 1 ? ` in ${count} launches` : ""}${rate}`), bar);
    box.append(head);
    // filled on first opening, since a model has hundreds of kernels
    box.addEventListener("toggle", () => {
      if (box.childElementCount > 1) return;
      for (const each of kernels) box.append(facts(each), code(each.code || "no code", `Code of ${name}`));
      if (!kernel) box.append(el("p", "soft", "A copy."));
    });
    pane.append(box);
  }
}

/** The launches in order, as a row of bars whose widths are proportional to their times. */
export function timeline(pane: HTMLElement, trace: Trace): void {
  pane.replaceChildren();
  const { launches } = trace;
  if (launches.length === 0) {
    pane.append(el("p", "soft", "Nothing was launched."));
    return;
  }
  const total = launches.reduce((sum, { us }) => sum + us, 0);
  const count = `${launches.length} launch${launches.length > 1 ? "es" : ""}, ${time(total)} in all`;
  pane.append(el("p", "soft", `${count}. Each was waited for, which takes longer than running on.`));
  const shown = launches.slice(-400);
  const all = shown.reduce((sum, { us }) => sum + us, 0);
  const colours = new Map<string, number>();
  const chart = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  chart.setAttribute("viewBox", "0 0 1000 60");
  chart.setAttribute("preserveAspectRatio", "none");
  chart.setAttribute("class", "timeline");
  chart.setAttribute("role", "img");
  chart.setAttribute("aria-label", "Launches in order, as wide as they took");
  let x = 0;
  for (const { name, us } of shown) {
    if (!colours.has(name)) colours.set(name, colours.size);
    const bar = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    const width = (1000 * us) / Math.max(all, 1e-9);
    const tone = `tone${(colours.get(name) as number) % 6}`;
    const sizes = { x, y: 0, width: Math.max(0.5, width - 0.6), height: 60, class: tone };
    for (const [key, value] of Object.entries(sizes)) bar.setAttribute(key, String(value));
    const title = document.createElementNS("http://www.w3.org/2000/svg", "title");
    title.textContent = `${name}: ${time(us)}`;
    bar.append(title);
    chart.append(bar);
    x += width;
  }
  pane.append(chart);
  const list = el("ol", "launches");
  for (const { name, us } of shown.slice(0, 60)) {
    const row = el("li", "");
    const key = el("i", `tone${(colours.get(name) as number) % 6}`);
    row.append(key, el("code", "", name), el("span", "soft", time(us)));
    list.append(row);
  }
  pane.append(list);
  if (shown.length > 60) pane.append(el("p", "soft", `and ${shown.length - 60} more`));
}
