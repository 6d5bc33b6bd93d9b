// Recognition of file types by content.
import { type FileSource } from "../progress.js";
import { openRanges } from "../ranges.js";
import { Tensor } from "../tensor.js";
import { type Ranked, topK } from "../vision/scores.js";
import { type TaskOptions, openedOf, runModel } from "./recipe.js";

/** A recognised file type. */
export interface FileKind {
  label: string;
  score: number;
  /** Whether the score reaches the model's own threshold for this type. */
  sure: boolean;
  /** The most likely types, best first. */
  all: Ranked[];
}

interface MagikaConfig {
  block: number;
  edge: number;
  padding: number;
  smallest: number;
  threshold: number;
  thresholds: Record<string, number>;
}

const WHITESPACE = new Set([9, 10, 11, 12, 13, 32]);

function strip(bytes: Uint8Array, atStart: boolean, atEnd: boolean): Uint8Array {
  let [from, to] = [0, bytes.length];
  while (atStart && from < to && WHITESPACE.has(bytes[from] as number)) from += 1;
  while (atEnd && to > from && WHITESPACE.has(bytes[to - 1] as number)) to -= 1;
  return bytes.subarray(from, to);
}

/**
 * Recognises the type of a file with Magika, from its first and last bytes without outer white space; only those are
 * read. Undefined for files that are too small.
 */
export async function fileType(source: FileSource, options: TaskOptions & { k?: number }): Promise<FileKind | undefined> {
  const opened = openedOf(options);
  const { labels = [] } = opened.recipe;
  const { block = 4096, edge = 1024, padding = 256, smallest = 8, threshold = 0.5, thresholds = {} } = (opened.recipe.more ?? {}) as Partial<MagikaConfig>;
  const { signal } = options;
  const file = await openRanges(source, { ...(signal && { signal }), ...(options.fetch && { fetch: options.fetch }), cache: false }, () => {});
  const input = new Int32Array(2 * edge).fill(padding);
  try {
    const readRange = (from: number, to: number): Promise<Uint8Array> | Uint8Array =>
      to <= file.head.length ? file.head.subarray(from, to) : file.read(from, to, () => {});
    const whole = file.size <= block;
    const first = strip(await readRange(0, Math.min(block, file.size)), true, whole).subarray(0, edge);
    const last = strip(await readRange(Math.max(0, file.size - block), file.size), whole, true).slice(-edge);
    input.set(first);
    input.set(last, 2 * edge - last.length);
    if (file.size < smallest || input[smallest - 1] === padding) return undefined;
  } finally {
    await file.close();
  }
  const name = opened.recipe.input ?? opened.model?.inputs[0]?.name ?? "";
  const out = await runModel(opened, { [name]: new Tensor(input, [1, 2 * edge]) }, options);
  const all = topK(await out.data(), options.k ?? 3, labels);
  out.dispose();
  const [best] = all as [Ranked];
  const label = best.label ?? String(best.index);
  return { label, score: best.score, sure: best.score >= (thresholds[label] ?? threshold), all };
}
