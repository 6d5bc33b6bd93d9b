// Bounding boxes: their formats, overlap, non-maximum suppression, and mapping from a model's input back to the
// original picture.
import { ValueError } from "../errors.js";

/** Corners `[left, top, right, bottom]` in pixels. */
export type Box = readonly [left: number, top: number, right: number, bottom: number];

/** The format of a box: two corners, a corner and a size, or the centre and a size. */
export type BoxForm = "xyxy" | "xywh" | "cxcywh";

/** The placement of a picture in a model's input. */
export interface Placement {
  /** The original size of the picture. */
  width: number;
  height: number;
  /** Pixels of the model's input per pixel of the original. */
  scaleX: number;
  scaleY: number;
  /** The position of the original's upper left corner in the model's input; negative if it was cropped. */
  left: number;
  top: number;
}

/** Reads boxes from a flat list, `stride` numbers apart (default 4), as corners. */
export function toBoxes(numbers: ArrayLike<number>, form: BoxForm = "xyxy", stride = 4): Box[] {
  if (numbers.length % stride !== 0) throw new ValueError("E_VALUE", `${numbers.length} numbers are no whole number of boxes of ${stride}`);
  const cornerConverters: Record<BoxForm, (a: number, b: number, c: number, d: number) => Box> = {
    xyxy: (a, b, c, d) => [a, b, c, d],
    xywh: (a, b, c, d) => [a, b, a + c, b + d],
    cxcywh: (a, b, c, d) => [a - c / 2, b - d / 2, a + c / 2, b + d / 2],
  };
  const toCorners = cornerConverters[form];
  if (!toCorners) throw new ValueError("E_VALUE", `there is no form \`${String(form)}\` of boxes; there are xyxy, xywh, cxcywh`);
  return Array.from({ length: numbers.length / stride }, (_, at) => {
    const [a, b, c, d] = [0, 1, 2, 3].map((i) => Number(numbers[at * stride + i]));
    return toCorners(a as number, b as number, c as number, d as number);
  });
}

/** Maps boxes from the model's input to pixels of the original picture, clipped at its edges. */
export function scaleBoxes(boxes: readonly Box[], { width, height, scaleX, scaleY, left, top }: Placement): Box[] {
  const clamp = (v: number, max: number): number => Math.min(Math.max(v, 0), max);
  const x = (v: number): number => clamp((v - left) / scaleX, width);
  const y = (v: number): number => clamp((v - top) / scaleY, height);
  return boxes.map(([a, b, c, d]) => [x(a), y(b), x(c), y(d)]);
}

/** The intersection over union of two boxes, from 0 to 1. */
export function overlap(a: Box, b: Box): number {
  const width = Math.min(a[2], b[2]) - Math.max(a[0], b[0]);
  const height = Math.min(a[3], b[3]) - Math.max(a[1], b[1]);
  if (!(width > 0 && height > 0)) return 0;
  const area = ([l, t, r, bottom]: Box): number => Math.max(0, r - l) * Math.max(0, bottom - t);
  const intersection = width * height;
  return intersection / (area(a) + area(b) - intersection);
}

/** Options of `nms`. */
export interface NmsOptions {
  /** The intersection over union above which the lower-scored box is dropped. Default: 0.45. */
  iou?: number;
  /** Boxes with a lower score are dropped. Default: 0. */
  score?: number;
  /** The most boxes to keep. Default: 300. */
  max?: number;
  /** The class of each box; boxes of different classes do not suppress each other. */
  classes?: ArrayLike<number>;
}

/**
 * Non-maximum suppression: drops boxes that overlap a better one. Gives the indices of the remaining boxes, best first.
 */
export function nms(boxes: readonly Box[], scores: ArrayLike<number>, options: NmsOptions = {}): number[] {
  const { iou = 0.45, score = 0, max = 300, classes } = options;
  if (scores.length !== boxes.length || (classes && classes.length !== boxes.length)) {
    throw new ValueError("E_VALUE", `nms: ${boxes.length} boxes, ${scores.length} scores${classes ? `, ${classes.length} classes` : ""}`);
  }
  const order = boxes.map((_, at) => at).filter((at) => Number(scores[at]) >= score);
  // equal scores keep their order
  order.sort((a, b) => Number(scores[b]) - Number(scores[a]) || a - b);
  const kept: number[] = [];
  for (const at of order) {
    if (kept.length >= max) break;
    const isSuppressed = kept.some((other) => (!classes || classes[other] === classes[at]) && overlap(boxes[other] as Box, boxes[at] as Box) > iou);
    if (!isSuppressed) kept.push(at);
  }
  return kept;
}
