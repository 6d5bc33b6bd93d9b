// Boxes around things: their forms, what overlaps, and back from a model's picture to the one that was given.
import { ValueError } from "../errors.js";

/** Corners `[left, top, right, bottom]` in pixels. */
export type Box = readonly [left: number, top: number, right: number, bottom: number];

/** How four numbers mean a box: two corners, a corner and a size, or the middle and a size. */
export type BoxForm = "xyxy" | "xywh" | "cxcywh";

/** Where a picture lies in the one that a model was given, and how large it was. */
export interface Placement {
  /** The picture's own size. */
  width: number;
  height: number;
  /** Pixels of the model's picture for one of the given picture. */
  scaleX: number;
  scaleY: number;
  /** Where the given picture's upper left corner lies in the model's picture; negative where it was cut. */
  left: number;
  top: number;
}

/** Boxes of a flat list, `stride` numbers apart (4 unless told otherwise), as corners. */
export function toBoxes(numbers: ArrayLike<number>, form: BoxForm = "xyxy", stride = 4): Box[] {
  if (numbers.length % stride !== 0) throw new ValueError("E_VALUE", `${numbers.length} numbers are no whole number of boxes of ${stride}`);
  const read: Record<BoxForm, (a: number, b: number, c: number, d: number) => Box> = {
    xyxy: (a, b, c, d) => [a, b, c, d],
    xywh: (a, b, c, d) => [a, b, a + c, b + d],
    cxcywh: (a, b, c, d) => [a - c / 2, b - d / 2, a + c / 2, b + d / 2],
  };
  const make = read[form];
  if (!make) throw new ValueError("E_VALUE", `there is no form \`${String(form)}\` of boxes; there are xyxy, xywh, cxcywh`);
  return Array.from({ length: numbers.length / stride }, (_, at) => {
    const [a, b, c, d] = [0, 1, 2, 3].map((i) => Number(numbers[at * stride + i]));
    return make(a as number, b as number, c as number, d as number);
  });
}

/** Boxes of the model's picture in pixels of the picture that was given, cut at its edges. */
export function scaleBoxes(boxes: readonly Box[], { width, height, scaleX, scaleY, left, top }: Placement): Box[] {
  const clamp = (v: number, most: number): number => Math.min(Math.max(v, 0), most);
  const x = (v: number): number => clamp((v - left) / scaleX, width);
  const y = (v: number): number => clamp((v - top) / scaleY, height);
  return boxes.map(([a, b, c, d]) => [x(a), y(b), x(c), y(d)]);
}

/** What two boxes share, in parts of what they cover together: 0 to 1. */
export function overlap(a: Box, b: Box): number {
  const width = Math.min(a[2], b[2]) - Math.max(a[0], b[0]);
  const height = Math.min(a[3], b[3]) - Math.max(a[1], b[1]);
  if (!(width > 0 && height > 0)) return 0;
  const area = ([l, t, r, bottom]: Box): number => Math.max(0, r - l) * Math.max(0, bottom - t);
  const both = width * height;
  return both / (area(a) + area(b) - both);
}

/** How boxes that mean the same thing are found. */
export interface NmsOptions {
  /** Boxes that overlap more than this are one: 0.45. */
  iou?: number;
  /** Boxes with a lower score are left out: 0. */
  score?: number;
  /** At most so many are kept: 300. */
  max?: number;
  /** The class of each box: boxes of different classes are never one. */
  classes?: ArrayLike<number>;
}

/** Which boxes stay when those that overlap a better one go (non-maximum suppression): their numbers, best first. */
export function nms(boxes: readonly Box[], scores: ArrayLike<number>, options: NmsOptions = {}): number[] {
  const { iou = 0.45, score = 0, max = 300, classes } = options;
  if (scores.length !== boxes.length || (classes && classes.length !== boxes.length)) {
    throw new ValueError("E_VALUE", `nms: ${boxes.length} boxes, ${scores.length} scores${classes ? `, ${classes.length} classes` : ""}`);
  }
  const order = boxes.map((_, at) => at).filter((at) => Number(scores[at]) >= score);
  // equal scores stay in their order
  order.sort((a, b) => Number(scores[b]) - Number(scores[a]) || a - b);
  const kept: number[] = [];
  for (const at of order) {
    if (kept.length >= max) break;
    const rival = kept.some((other) => (!classes || classes[other] === classes[at]) && overlap(boxes[other] as Box, boxes[at] as Box) > iou);
    if (!rival) kept.push(at);
  }
  return kept;
}
