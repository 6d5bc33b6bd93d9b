// File types by content. What the network is fed is Magika's own recipe: the first and the last 1,024 bytes, each from a block
// of 4,096 with white space stripped from the outer end, and 256 where there is nothing.
import magika from "./magika.json";
import { ask } from "./protocol";
import { el, files, show, timing, work } from "./ui";

const { blockSize, edge, padding, smallest } = magika;
const SPACE = new Set([9, 10, 11, 12, 13, 32]);

function strip(bytes: Uint8Array, start: boolean, end: boolean): Uint8Array {
  let [from, to] = [0, bytes.length];
  while (start && from < to && SPACE.has(bytes[from] as number)) from += 1;
  while (end && to > from && SPACE.has(bytes[to - 1] as number)) to -= 1;
  return bytes.subarray(from, to);
}

/** The 2,048 numbers for a file; null for one too small to tell. */
export function features(first: Uint8Array, last: Uint8Array, size: number): Int32Array | null {
  const whole = size <= blockSize;
  const begin = strip(first, true, whole).subarray(0, edge);
  const end = strip(last, whole, true).slice(-edge);
  const out = new Int32Array(2 * edge).fill(padding);
  out.set(begin);
  out.set(end, 2 * edge - end.length);
  return size < smallest || out[smallest - 1] === padding ? null : out;
}

async function tell(file: Blob, name: string): Promise<void> {
  await work(`Looking at ${name}`, async (signal) => {
    const list = el("kinds");
    list.replaceChildren();
    const block = async (from: number, to: number): Promise<Uint8Array> => new Uint8Array(await file.slice(from, to).arrayBuffer());
    const data = features(await block(0, blockSize), await block(Math.max(0, file.size - blockSize), file.size), file.size);
    if (!data) return `${name} is too small to tell.`;
    const inputs = { bytes: { data, shape: [1, 2 * edge] } };
    const done = await ask<"run">({ kind: "run", model: "magika", inputs }, { onEvent: show, signal });
    const p = done.outputs.target_label?.data as Float32Array;
    const best = [...p.keys()].sort((a, b) => (p[b] as number) - (p[a] as number)).slice(0, 3);
    for (const at of best) {
      const [label, description] = magika.labels[at] as [string, string];
      const item = document.createElement("li");
      item.textContent = `${description} (${label}): ${(100 * (p[at] as number)).toFixed(1)} %`;
      list.append(item);
    }
    timing("files-timing", done.timing);
    const top = best[0] as number;
    const [label, description] = magika.labels[top] as [string, string];
    const needed = (magika.thresholds as Record<string, number>)[label] ?? magika.threshold;
    return (p[top] as number) >= needed ? `${name}: ${description}.` : `${name}: not sure, perhaps ${description}.`;
  });
}

export function kinds(): void {
  files("file", "file-drop", (file) => void tell(file, file.name));
  el("file-sample").addEventListener("click", () => {
    const script = document.querySelector<HTMLScriptElement>("script[src]")?.src ?? location.href;
    void fetch(script).then(async (response) => tell(await response.blob(), "This page's code"));
  });
}
