// Object detection, for two kinds of models: those that output one row per box (YOLO), and those that output offsets
// from anchor boxes on grids (SSD).
import { FormatError, ValueError } from "../errors.js";
import { type Tensor, tidy } from "../tensor.js";
import { type Box, nms, scaleBoxes, toBoxes } from "../vision/boxes.js";
import { fitImage } from "../vision/image.js";
import type { ImageSource } from "../vision/pixels.js";
import { type Opened, type SsdRecipe, type TaskOptions, openedOf, imageOptionsOf, inputNameOf, runAll, runModel } from "./recipe.js";

/** A detected object. */
export interface Found {
  /** In pixels of the given picture. */
  box: Box;
  score: number;
  /** The index and the name of the class. */
  index: number;
  label: string | undefined;
}

/** A detection before non-maximum suppression, in pixels of the model's input. */
interface Candidate {
  box: Box;
  score: number;
  index: number;
}

/** Detects objects in a picture: class, score and box of each, best first. */
export async function detect(source: ImageSource, options: TaskOptions & { score?: number; iou?: number }): Promise<Found[]> {
  const opened = openedOf(options);
  const { boxes: boxOptions = {}, labels } = opened.recipe;
  const minScore = options.score ?? boxOptions.score ?? 0.25;
  const { tensor, placement } = await fitImage(source, imageOptionsOf(opened, options));
  const found = boxOptions.ssd ? await fromGrids(opened, tensor, boxOptions.ssd, minScore, options) : await fromRows(opened, tensor, minScore, options);
  const [boxes, scores, classes] = [found.map(({ box }) => box), found.map(({ score }) => score), found.map(({ index }) => index)];
  const keptIndices = nms(boxes, scores, { classes, iou: options.iou ?? boxOptions.iou ?? 0.45 });
  const scaledBoxes = scaleBoxes(boxes, placement);
  return keptIndices.map((at) => {
    const { score, index } = found[at] as Candidate;
    return { box: scaledBoxes[at] as Box, score, index, label: labels?.[index] };
  });
}

/** The largest of some numbers, and its index. */
function largest(values: Float32Array): [score: number, index: number] {
  let index = 0;
  for (let i = 1; i < values.length; i += 1) if ((values[i] as number) > (values[index] as number)) index = i;
  return [values[index] as number, index];
}

/** Detections of a model whose output rows hold a box followed by a score for each class. */
async function fromRows(opened: Opened, picture: Tensor, minScore: number, options: TaskOptions): Promise<Candidate[]> {
  const { form = "cxcywh", rows: order } = opened.recipe.boxes ?? {};
  using out = await runModel(opened, { [inputNameOf(opened)]: picture }, options);
  if (out.rank !== 3 || out.shape[0] !== 1) throw new ValueError("E_VALUE", `a detector gives [1, numbers, boxes], not [${out.shape.join(", ")}]`);
  using rows = tidy(() => (order === "boxes" ? out.reshape(out.shape.slice(1)) : out.reshape(out.shape.slice(1)).transpose()).contiguous());
  const [count, width] = rows.shape as [number, number];
  const values = await rows.data();
  const found: Candidate[] = [];
  for (let at = 0; at < count; at += 1) {
    const row = values.subarray(at * width, (at + 1) * width);
    const [score, index] = largest(row.subarray(4));
    if (score >= minScore) found.push({ box: toBoxes(row.subarray(0, 4), form)[0] as Box, score, index });
  }
  return found;
}

/** The centre and the size of an anchor box, as fractions of the picture. */
interface Anchor {
  x: number;
  y: number;
  width: number;
  height: number;
}

/**
 * The aspect ratios of the anchors in each cell of a grid. The first grid uses only the first three, the later ones
 * all.
 */
const ASPECTS = [1, 2, 1 / 2, 3, 1 / 3];
/**
 * The factors by which the network's outputs are scaled: the offset of the centre in units of the anchor's size, and
 * the logarithm of the ratio of the sizes. In the order y, x, height, width.
 */
const OFFSET_SCALES = [10, 10, 5, 5] as const;
/**
 * Anchor sizes as fractions of the picture: on the first grid, on the last grid, and the additional smallest one on the
 * first grid.
 */
const [MIN_SCALE, MAX_SCALE, SMALLEST_SCALE] = [0.2, 0.95, 0.1];

/**
 * The anchors of TensorFlow's SSD (Liu et al. 2016, arXiv:1512.02325, and its `ssd_anchor_generator`), grid by grid,
 * cell by cell.
 */
export function anchorsOf(cells: readonly number[]): Anchor[] {
  const scaleOf = (grid: number): number => (grid >= cells.length ? 1 : MIN_SCALE + ((MAX_SCALE - MIN_SCALE) * grid) / Math.max(1, cells.length - 1));
  return cells.flatMap((side, grid) => {
    const scale = scaleOf(grid);
    const anchorShapes: [size: number, aspect: number][] =
      grid === 0
        ? [[SMALLEST_SCALE, 1], [scale, 2], [scale, 1 / 2]]
        : [...ASPECTS.map((aspect): [number, number] => [scale, aspect]), [Math.sqrt(scale * scaleOf(grid + 1)), 1]];
    const cellAnchors = (at: number): Anchor[] => {
      const [x, y] = [((at % side) + 0.5) / side, (Math.floor(at / side) + 0.5) / side];
      return anchorShapes.map(([s, aspect]) => ({ x, y, width: s * Math.sqrt(aspect), height: s / Math.sqrt(aspect) }));
    };
    return Array.from({ length: side * side }, (_, at) => cellAnchors(at)).flat();
  });
}

/**
 * Detections of a model whose output rows hold a box's offsets from its anchor and the logits of classes; the first
 * class is background.
 */
async function fromGrids(opened: Opened, picture: Tensor, ssd: SsdRecipe, minScore: number, options: TaskOptions): Promise<Candidate[]> {
  const { name, image } = opened.recipe;
  const anchors = anchorsOf(ssd.cells);
  const [inputHeight, inputWidth] = [image?.size ?? 300].flat() as [number, number?];
  const all = await runAll(opened, { [inputNameOf(opened)]: picture }, options);
  try {
    const [rows, logits] = [all[ssd.boxes], all[ssd.scores]];
    if (!rows || !logits || rows.shape[1] !== anchors.length || logits.shape[1] !== anchors.length) {
      throw new FormatError("E_FORMAT", `${name} has no \`${ssd.boxes}\` and \`${ssd.scores}\` of ${anchors.length} rows`);
    }
    const [numbers, values] = [await rows.data("f32"), await logits.data("f32")];
    const count = logits.shape[2] as number;
    return anchors.flatMap((anchor, at) => {
      const [logit, classIndex] = largest(values.subarray(at * count + 1, (at + 1) * count));
      const score = 1 / (1 + Math.exp(-logit));
      if (score < minScore) return [];
      const [y, x, h, w] = OFFSET_SCALES.map((offsetScale, i) => (numbers[4 * at + i] as number) / offsetScale) as [number, number, number, number];
      const centre = [anchor.x + x * anchor.width, anchor.y + y * anchor.height] as const;
      const halfSize = [(anchor.width * Math.exp(w)) / 2, (anchor.height * Math.exp(h)) / 2] as const;
      const parts = [centre[0] - halfSize[0], centre[1] - halfSize[1], centre[0] + halfSize[0], centre[1] + halfSize[1]];
      const inputSize = (axis: number): number => (axis % 2 === 0 ? (inputWidth ?? inputHeight) : inputHeight);
      const [left, top, right, bottom] = parts.map((part, i) => part * inputSize(i)) as [number, number, number, number];
      return [{ box: [left, top, right, bottom] as const, score, index: classIndex + 1 }];
    });
  } finally {
    for (const t of Object.values(all)) t.dispose();
  }
}
