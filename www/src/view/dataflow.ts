// The graph of what was launched: each launch, with the values that it reads and who wrote them.
import { type Trace, amount, counted, time } from "../trace";

/** A launch. */
interface Node {
  name: string;
  said: string;
  /** The launches whose results this one reads. */
  sources: Set<Node>;
  layer: number;
  x: number;
  tone: number;
}

/** The most launches that are drawn. */
const SHOWN = 24;
/** Sizes of the drawing, in its own units. */
const [WIDTH, HEIGHT, GAP_X, GAP_Y] = [172, 44, 12, 34];
/** The most characters of a name that fit. */
const NAME_LENGTH = 21;
const SVG = "http://www.w3.org/2000/svg";

/** The last launches, in order, with what they read. */
function nodesOf(trace: Trace): Node[] {
  const tones = new Map<string, number>();
  // the latest first
  const written: { buffer: number; start: number; end: number; node: Node }[] = [];
  return trace.launches.slice(-SHOWN).map(({ name, us, memory }) => {
    const params = trace.kernels.get(name)?.at(-1)?.params ?? [];
    // in a copy the first buffer is the destination
    const isWritten = (slot: number): boolean => (params.length > 0 ? /written$/.test(params[slot] ?? "") : slot === 0);
    const isRead = (slot: number): boolean => (params.length > 0 ? !/, written$/.test(params[slot] ?? "") : slot > 0);
    const sources = new Set<Node>();
    let bytesBefore = 0;
    memory.forEach(({ buffer, offset, bytes }, slot) => {
      if (!isRead(slot)) return;
      const writer = written.find((each) => each.buffer === buffer && each.start < offset + bytes && offset < each.end);
      if (writer) sources.add(writer.node);
      else bytesBefore += bytes;
    });
    if (!tones.has(name)) tones.set(name, tones.size);
    const said = bytesBefore > 0 ? `${time(us)}, ${amount(bytesBefore).replace(/[kMG]?$/, " $&B")} given` : time(us);
    const layer = Math.max(-1, ...[...sources].map((each) => each.layer)) + 1;
    const node: Node = { name, said, sources, layer, x: 0, tone: (tones.get(name) as number) % 6 };
    memory.forEach(({ buffer, offset, bytes }, slot) => {
      if (isWritten(slot)) written.unshift({ buffer, start: offset, end: offset + bytes, node });
    });
    return node;
  });
}

/** The launches by how many others have to run before them. */
function layersOf(nodes: readonly Node[]): Node[][] {
  const layers: Node[][] = [];
  for (const node of nodes) (layers[node.layer] ??= []).push(node);
  return layers;
}

/** Places the nodes, each near the middle of what it reads; returns the width of all. */
function place(layers: readonly Node[][]): number {
  const columns = Math.max(...layers.map(({ length }) => length));
  const width = columns * (WIDTH + GAP_X) - GAP_X;
  const middle = (nodes: readonly Node[]): number | undefined =>
    nodes.length > 0 ? nodes.reduce((sum, { x }) => sum + x, 0) / nodes.length : undefined;
  for (const layer of layers) {
    const wanted = new Map(layer.map((node, at) => [node, middle([...node.sources]) ?? (at * width) / layer.length]));
    layer.sort((a, b) => (wanted.get(a) as number) - (wanted.get(b) as number));
    const step = width / layer.length;
    layer.forEach((node, at) => (node.x = at * step + (step - WIDTH) / 2));
  }
  return width;
}

const svg = (name: string, attributes: Readonly<Record<string, string | number>>, text = ""): SVGElement => {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  made.textContent = text;
  return made;
};

const shortened = (name: string): string => (name.length > NAME_LENGTH ? `${name.slice(0, NAME_LENGTH - 1)}…` : name);

/** Draws the graph of a run's last launches. */
export function dataflow(pane: HTMLElement, trace: Trace): void {
  pane.replaceChildren();
  const text = Object.assign(document.createElement("p"), { className: "soft" });
  pane.append(text);
  const count = trace.launches.length;
  if (count === 0) {
    text.textContent = "Nothing was launched.";
    return;
  }
  const which = count > SHOWN ? `The last ${SHOWN} of ${count.toLocaleString("en")} launches` : counted(count, "launch");
  text.textContent = `${which}: arrows lead from who wrote a value to who reads it, and what was in memory before is given.`;
  const nodes = nodesOf(trace);
  const layers = layersOf(nodes);
  const width = place(layers);
  const y = ({ layer }: Node): number => layer * (HEIGHT + GAP_Y) + 2;
  const height = layers.length * (HEIGHT + GAP_Y) - GAP_Y + 4;
  const words = nodes.map(({ name, sources }) => {
    const from = [...sources].map((each) => each.name);
    return from.length > 0 ? `${name} reads ${from.join(" and ")}` : name;
  });
  const chart = svg("svg", {
    viewBox: `-2 0 ${width + 4} ${height}`, class: "dataflow", role: "img", "aria-label": `Launches and what they read: ${words.join("; ")}`,
  });
  chart.style.width = `${width + 4}px`;
  for (const node of nodes) {
    for (const source of node.sources) {
      const [x1, y1, x2, y2] = [source.x + WIDTH / 2, y(source) + HEIGHT, node.x + WIDTH / 2, y(node)];
      const bend = Math.max(18, (y2 - y1) / 2);
      chart.append(svg("path", { d: `M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2 - 7}`, class: "flow" }));
      chart.append(svg("path", { d: `M${x2 - 4} ${y2 - 8}h8l-4 7z`, class: "arrow" }));
    }
  }
  for (const node of nodes) {
    const group = svg("g", { transform: `translate(${node.x} ${y(node)})`, class: "launch" });
    group.append(svg("title", {}, `${node.name}: ${node.said}`));
    group.append(svg("rect", { width: WIDTH, height: HEIGHT, rx: 8 }), svg("rect", { y: 8, width: 4, height: HEIGHT - 16, rx: 2, class: `tone${node.tone}` }));
    group.append(svg("text", { x: 14, y: 19, class: "title" }, shortened(node.name)), svg("text", { x: 14, y: 35 }, node.said));
    chart.append(group);
  }
  const box = Object.assign(document.createElement("div"), { className: "scroll", tabIndex: 0 });
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", "Graph of the launches");
  box.append(chart);
  pane.append(box);
}
