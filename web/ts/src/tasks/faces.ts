// Face detection with BlazeFace (Bazarevsky et al. 2019, arXiv:1907.05047), whose outputs are offsets from anchors on
// several grids.
import { FormatError } from "../errors.js";
import { type Box, overlap, scaleBoxes } from "../vision/boxes.js";
import { fitImage } from "../vision/image.js";
import type { ImageSource } from "../vision/pixels.js";
import { type TaskOptions, openedOf, imageOptionsOf, inputNameOf, runAll } from "./recipe.js";

/** A detected face. */
export interface Face {
  /** In pixels of the given picture. */
  box: Box;
  score: number;
  /** Right eye, left eye, nose, mouth, right ear and left ear, from the person's own point of view. */
  points: [x: number, y: number][];
}

/**
 * Parameters from the recipe: the cell size of each grid in pixels (a size that is listed several times has more
 * anchors per cell), and the side of the model's input.
 */
interface Grids {
  strides: readonly number[];
  side: number;
  boxes: string;
  scores: string;
}

/** Anchor positions in the order of the model's rows: cell by cell, with all grids of one cell size together. */
function anchors({ strides, side }: Grids): [number, number][] {
  const out: [number, number][] = [];
  for (const stride of new Set(strides)) {
    const cells = Math.ceil(side / stride);
    // two anchors for each time that a cell size is listed
    const anchorsPerCell = 2 * strides.filter((other) => other === stride).length;
    for (let at = 0; at < cells * cells * anchorsPerCell; at += 1) {
      const cell = Math.floor(at / anchorsPerCell);
      out.push([((cell % cells) + 0.5) * stride, (Math.floor(cell / cells) + 0.5) * stride]);
    }
  }
  return out;
}

/**
 * Detects faces in a picture, best first. Detections that overlap by more than `iou` (default 0.3) are merged to their
 * mean, weighted by score, as in MediaPipe.
 */
export async function detectFaces(source: ImageSource, options: TaskOptions & { score?: number; iou?: number }): Promise<Face[]> {
  const opened = openedOf(options);
  const { more, boxes: limits = {}, name } = opened.recipe;
  const { score: minScore = limits.score ?? 0.5, iou = limits.iou ?? 0.3 } = options;
  const grids = more as unknown as Grids;
  const { tensor, placement } = await fitImage(source, imageOptionsOf(opened, options));
  const all = await runAll(opened, { [inputNameOf(opened)]: tensor }, options);
  try {
    const [rows, logits] = [all[grids.boxes], all[grids.scores]];
    const anchorPoints = anchors(grids);
    if (!rows || !logits || rows.shape[1] !== anchorPoints.length || logits.shape[1] !== anchorPoints.length) {
      throw new FormatError("E_FORMAT", `${name} has no \`${grids.boxes}\` and \`${grids.scores}\` of ${anchorPoints.length} rows`);
    }
    const width = rows.shape[2] as number;
    const [numbers, scores] = [await rows.data("f32"), await logits.data("f32")];
    const found: Candidate[] = [];
    anchorPoints.forEach((anchor, at) => {
      const score = 1 / (1 + Math.exp(-(scores[at] as number)));
      if (score < minScore) return;
      const row = numbers.subarray(at * width, (at + 1) * width);
      const [x, y, w, h] = [(row[0] as number) + anchor[0], (row[1] as number) + anchor[1], row[2] as number, row[3] as number];
      const points = Array.from(row.subarray(4), (v, i) => v + (anchor[i % 2] as number));
      found.push({ score, numbers: [x - w / 2, y - h / 2, x + w / 2, y + h / 2, ...points] });
    });
    return mergeOverlapping(found, iou).map(({ score, numbers }) => {
      // convert each point like a box of size zero
      const pairs = Array.from({ length: numbers.length / 2 - 2 }, (_, i) => numbers.slice(2 * i + 4, 2 * i + 6));
      const [box, ...points] = scaleBoxes([boxOf(numbers), ...pairs.map((p) => boxOf([...p, ...p]))], placement) as [Box, ...Box[]];
      return { box, score, points: points.map(([px, py]): [number, number] => [px, py]) };
    });
  } finally {
    for (const t of Object.values(all)) t.dispose();
  }
}

/** A detection before merging: the coordinates of its box, followed by those of its points. */
interface Candidate {
  score: number;
  numbers: number[];
}

const boxOf = ([a = 0, b = 0, c = 0, d = 0]: readonly number[]): Box => [a, b, c, d];

/** Merges each group of overlapping detections: the best score, and the mean of the coordinates weighted by score. */
function mergeOverlapping(found: readonly Candidate[], iou: number): Candidate[] {
  const out: Candidate[] = [];
  let rest = [...found].sort((a, b) => b.score - a.score);
  for (let best = rest[0]; best; best = rest[0]) {
    const first = best;
    const group = rest.filter((each) => each === first || overlap(boxOf(each.numbers), boxOf(first.numbers)) > iou);
    const sum = group.reduce((all, { score }) => all + score, 0);
    const mean = first.numbers.map((_, i) => group.reduce((all, { score, numbers }) => all + score * (numbers[i] as number), 0) / sum);
    out.push({ score: first.score, numbers: mean });
    rest = rest.filter((each) => !group.includes(each));
  }
  return out;
}
