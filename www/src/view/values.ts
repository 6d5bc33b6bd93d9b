// Views of a run's results: tensors as tables or pictures, curves that grow, text.
import type { Item } from "../sandbox/messages";
import { colour, plot } from "../demo/widgets";

function short(v: number): string {
  if (Number.isInteger(v)) return String(v);
  return Math.abs(v) >= 1e5 || Math.abs(v) < 1e-4 ? v.toExponential(1) : String(Number(v.toPrecision(3)));
}

/** The largest table that is shown as numbers. */
const TABLE = { rows: 12, columns: 8 };

function element<K extends keyof HTMLElementTagNameMap>(name: K, classes: string, text = ""): HTMLElementTagNameMap[K] {
  const made = document.createElement(name);
  if (classes) made.className = classes;
  made.textContent = text;
  return made;
}

/** A colour as red, green and blue. */
function rgb(name: string): [number, number, number] {
  const pen = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true }) as OffscreenCanvasRenderingContext2D;
  pen.fillStyle = colour(name);
  pen.fillRect(0, 0, 1, 1);
  const [r, g, b] = pen.getImageData(0, 0, 1, 1).data;
  return [r as number, g as number, b as number];
}

/** Renders numbers as a picture, from the card's colour (lowest) to the accent colour (highest). */
export function heat(values: Float32Array, width: number, height: number): ImageData {
  const image = new ImageData(width, height);
  let [low, high] = [Infinity, -Infinity];
  for (const v of values) if (Number.isFinite(v)) [low, high] = [Math.min(low, v), Math.max(high, v)];
  const [from, to] = [rgb("--sunk"), rgb("--accent")];
  for (let at = 0; at < width * height; at += 1) {
    const part = high > low ? ((values[at] as number) - low) / (high - low) : 0.5;
    for (let c = 0; c < 3; c += 1) image.data[4 * at + c] = (from[c] as number) + part * ((to[c] as number) - (from[c] as number));
    image.data[4 * at + 3] = 255;
  }
  return image;
}

/**
 * Renders a tensor `[h, w, 3 or 4]` or `[3, h, w]`, or those with a batch of one, as a colour picture; undefined for
 * other shapes. Values range from 0 to 1 or to 255.
 */
function picture(values: Float32Array, given: readonly number[]): ImageData | undefined {
  const shape = given.length === 4 && given[0] === 1 ? given.slice(1) : given;
  if (shape.length !== 3) return undefined;
  const first = shape[0] === 3;
  if (!first && shape[2] !== 3 && shape[2] !== 4) return undefined;
  const [h, w, channels] = first ? [shape[1], shape[2], 3] : shape;
  const [height, width, count] = [h as number, w as number, channels as number];
  const scale = values.some((v) => v > 1.5) ? 1 : 255;
  const image = new ImageData(width, height);
  for (let at = 0; at < width * height; at += 1) {
    for (let c = 0; c < 3; c += 1) image.data[4 * at + c] = scale * (values[first ? c * width * height + at : at * count + c] as number);
    image.data[4 * at + 3] = 255;
  }
  return image;
}

function canvasOf(image: ImageData, label: string): HTMLCanvasElement {
  const canvas = element("canvas", image.width < 128 ? "shown pixels" : "shown");
  [canvas.width, canvas.height] = [image.width, image.height];
  // small pictures are enlarged without smoothing
  if (image.width < 128) canvas.style.width = `${Math.min(320, image.width * Math.max(2, Math.floor(240 / image.width)))}px`;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", label);
  (canvas.getContext("2d") as CanvasRenderingContext2D).putImageData(image, 0, 0);
  return canvas;
}

function table(values: Float32Array, rows: number, columns: number, flat: boolean): HTMLElement {
  const made = element("table", "numbers");
  let [low, high] = [Math.min(...values), Math.max(...values)];
  if (high === low) [low, high] = [low - 1, high + 1];
  for (let r = 0; r < rows; r += 1) {
    const row = made.insertRow();
    if (!flat) row.append(Object.assign(element("th", "", String(r)), { scope: "row" }));
    for (let c = 0; c < columns; c += 1) {
      const v = values[r * columns + c] as number;
      const cell = row.insertCell();
      cell.textContent = short(v);
      cell.style.setProperty("--part", `${Math.round((42 * (v - low)) / (high - low))}%`);
    }
  }
  const box = element("div", "scroll");
  box.append(made);
  return box;
}

function tensor({ title, shape, dtype, values }: Item & { kind: "tensor" }): HTMLElement {
  const figure = element("figure", "value");
  const kind = `${dtype} [${shape.join(", ")}]`;
  const caption = element("figcaption", "");
  if (title) caption.append(element("b", "", title), " ");
  caption.append(element("span", "soft", kind));
  figure.append(caption);
  const image = picture(values, shape);
  const columns = shape.at(-1) ?? 1;
  const rows = columns === 0 ? 0 : values.length / columns;
  if (values.length === 0) figure.append(element("p", "", "no elements"));
  else if (image) figure.append(canvasOf(image, `${title || "A picture"}: ${kind}`));
  else if (values.length === 1) figure.append(element("output", "one", short(values[0] as number)));
  else if (rows <= TABLE.rows && columns <= TABLE.columns) figure.append(table(values, rows, columns, shape.length < 2));
  else if (shape.length < 2) {
    const canvas = element("canvas", "shown curve");
    [canvas.width, canvas.height] = [640, 200];
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${title || "Values"} from ${short(Math.min(...values))} to ${short(Math.max(...values))}`);
    figure.append(canvas);
    const low = Math.min(0, ...values);
    plot(canvas, Array.from(values, (v) => v - low), Math.max(...values) - low || 1, values.length);
  } else figure.append(canvasOf(heat(values, columns, rows), `${title || "Values"}: ${kind}, darker for less`));
  return figure;
}

/** The result pane, to which items are added as they arrive. */
export class Values {
  readonly #pane: HTMLElement;
  readonly #curves = new Map<string, { values: number[]; canvas: HTMLCanvasElement; text: HTMLElement; due: boolean }>();
  #lines: HTMLElement | undefined;

  constructor(pane: HTMLElement) {
    this.#pane = pane;
  }

  clear(): void {
    this.#pane.replaceChildren();
    this.#curves.clear();
    this.#lines = undefined;
  }

  add(item: Item): void {
    if (item.kind === "point") return this.#point(item.name, item.value);
    if (item.kind === "text") {
      if (!this.#lines || this.#lines !== this.#pane.lastElementChild) this.#pane.append((this.#lines = element("pre", "lines")));
      if (this.#lines.childElementCount < 400) this.#lines.append(element("span", item.level, `${item.text}\n`));
      return;
    }
    if (item.kind === "tensor") this.#pane.append(tensor(item));
    else {
      const figure = element("figure", "value");
      if (item.title) figure.append(element("figcaption", "", item.title));
      figure.append(canvasOf(item.image, item.title || "A picture"));
      this.#pane.append(figure);
    }
  }

  #point(name: string, value: number): void {
    let curve = this.#curves.get(name);
    if (!curve) {
      const figure = element("figure", "value");
      const caption = element("figcaption", "");
      const text = element("span", "soft");
      caption.append(element("b", "", name), " ", text);
      const canvas = element("canvas", "shown curve");
      [canvas.width, canvas.height] = [640, 200];
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", `The curve of ${name}`);
      figure.append(caption, canvas);
      this.#pane.append(figure);
      this.#curves.set(name, (curve = { values: [], canvas, text, due: false }));
    }
    const own = curve;
    own.values.push(value);
    if (own.due) return;
    own.due = true;
    requestAnimationFrame(() => {
      own.due = false;
      own.text.textContent = `${short(own.values.at(-1) as number)} after ${own.values.length}`;
      plot(own.canvas, own.values, Math.max(1e-9, ...own.values), own.values.length);
    });
  }
}
