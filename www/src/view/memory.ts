// Memory over time: shows each piece of memory that launches use from its first to its last use.
import { type Trace, amount } from "../trace";

interface Piece {
  buffer: number;
  offset: number;
  bytes: number;
  first: number;
  last: number;
}

const size = (bytes: number): string => `${amount(bytes).replace(/[kMG]?$/, " $&")}B`;

const SVG = "http://www.w3.org/2000/svg";

/**
 * The live ranges of values: a piece of memory holds one value from its write to the last launch that reads it; weights
 * are only read.
 */
export function pieces(trace: Trace): Piece[] {
  const open = new Map<string, Piece>();
  const all: Piece[] = [];
  trace.launches.forEach(({ name, memory }, at) => {
    const params = trace.kernels.get(name)?.[0]?.params ?? [];
    memory.forEach((place, slot) => {
      const key = `${place.buffer}@${place.offset}+${place.bytes}`;
      const role = params[slot] ?? "";
      // in a copy the first buffer is the destination
      const written = params.length > 0 ? /, written$/.test(role) : slot === 0;
      let piece = open.get(key);
      if (!piece || written) {
        piece = { ...place, first: at, last: at };
        open.set(key, piece);
        all.push(piece);
      }
      piece.last = at;
    });
  });
  return all;
}

/** Draws the map, and states the total. */
export function memoryMap(pane: HTMLElement, trace: Trace): void {
  pane.replaceChildren();
  const all = pieces(trace);
  const text = document.createElement("p");
  pane.append(text);
  if (all.length === 0) {
    text.textContent = "No memory was used.";
    return;
  }
  const sizes = new Map<number, number>();
  const shared = new Map<number, Set<number>>();
  for (const { buffer, offset, bytes } of all) {
    sizes.set(buffer, Math.max(sizes.get(buffer) ?? 0, offset + bytes));
    shared.set(buffer, (shared.get(buffer) ?? new Set()).add(offset));
  }
  const valuesIn = (buffer: number): number => shared.get(buffer)?.size ?? 0;
  const order = [...sizes.keys()].sort((a, b) => valuesIn(b) - valuesIn(a) || (sizes.get(b) ?? 0) - (sizes.get(a) ?? 0));
  const total = [...sizes.values()].reduce((a, b) => a + b, 0);
  const values = all.reduce((sum, { bytes }) => sum + bytes, 0);
  text.textContent =
    `${order.length} allocation${order.length > 1 ? "s" : ""}, ${size(total)} in all, held ${all.length} values of ${size(values)}. ` +
    "Left to right: launches. Top to bottom: addresses. Values that do not live at the same time share memory.";
  const height = 420;
  // each allocation gets at least a few pixels
  const share = (buffer: number): number => 5 + ((height - 5 * order.length) * (sizes.get(buffer) ?? 0)) / total;
  const top = new Map<number, number>();
  let y = 0;
  for (const buffer of order) {
    top.set(buffer, y);
    y += Math.max(2, share(buffer)) + 2;
  }
  const steps = trace.launches.length;
  const chart = document.createElementNS(SVG, "svg");
  const view = { viewBox: `0 0 1000 ${y}`, preserveAspectRatio: "none", class: "memory", role: "img" };
  for (const [name, value] of Object.entries(view)) chart.setAttribute(name, value);
  chart.setAttribute("aria-label", text.textContent);
  const add = (x: number, at: number, width: number, tall: number, tone: string, title: string): void => {
    const bar = document.createElementNS(SVG, "rect");
    for (const [name, value] of Object.entries({ x, y: at, width, height: tall, class: tone })) bar.setAttribute(name, String(value));
    bar.append(Object.assign(document.createElementNS(SVG, "title"), { textContent: title }));
    chart.append(bar);
  };
  for (const buffer of order) {
    const title = `allocation ${buffer}: ${size(sizes.get(buffer) as number)}`;
    add(0, top.get(buffer) as number, 1000, Math.max(2, share(buffer)), "rail", title);
  }
  all.forEach(({ buffer, offset, bytes, first, last }, at) => {
    const whole = sizes.get(buffer) as number;
    const tall = Math.max(2, share(buffer));
    const from = (1000 * first) / steps;
    const title = `allocation ${buffer}, from byte ${offset}: ${size(bytes)}, launches ${first + 1} to ${last + 1}`;
    const low = (top.get(buffer) as number) + (tall * offset) / whole;
    add(from, low, Math.max(1, (1000 * (last + 1 - first)) / steps - 0.5), Math.max(1, (tall * bytes) / whole - 0.4), `tone${at % 3}`, title);
  });
  pane.append(chart);
}
