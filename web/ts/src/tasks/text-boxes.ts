// Text detection by differentiable binarization (Liao et al. 2020). The model gives each pixel's probability to belong
// to the shrunken core of a line of text. The connected components, grown back by the amount that training shrank them,
// are the lines.
import { ValueError } from "../errors.js";
import type { Box } from "../vision/boxes.js";
import { scaleBoxes } from "../vision/boxes.js";
import { fitImage } from "../vision/image.js";
import { type ImageSource, readPixels } from "../vision/pixels.js";
import { type TaskOptions, imageOptionsOf, inputNameOf, openedOf, runModel } from "./recipe.js";

/** A detected line of text. */
export interface TextBox {
  /** In pixels of the given picture. */
  box: Box;
  /** The mean probability over the core of the line. */
  score: number;
  /**
   * For lines that are not horizontal and straight: at `t` from -1 at the left of the box to 1 at its right, the line is
   * `rise * t + bend * t * t` pixels lower than in the middle.
   */
  curve?: LineCurve;
}

/** The course of a line, in pixels. */
export type LineCurve = readonly [rise: number, bend: number];

/** How far a line is from where it is in the middle, at most above and at most below. */
export function reachOf([rise, bend]: LineCurve): [above: number, below: number] {
  const turn = bend === 0 ? 1 : Math.max(-1, Math.min(1, -rise / (2 * bend)));
  const ends = [-1, 1, turn].map((t) => rise * t + bend * t * t);
  return [Math.min(0, ...ends), Math.max(0, ...ends)];
}

interface DetectorConfig {
  /** The most pixels of the longer side of the model's input, and the number of which both sides are multiples. */
  longest: number;
  multiple: number;
  /**
   * Pixels with a probability above `threshold` are text. Components with a mean below `score`, or whose shorter side
   * is below `least` pixels, are dropped.
   */
  threshold: number;
  score: number;
  least: number;
  /** A component's bounding box grows on each side by its area divided by its perimeter, times this factor. */
  grow: number;
}

/** Detects horizontal lines of text in a picture, from top to bottom and left to right. */
export async function detectText(source: ImageSource, options: TaskOptions): Promise<TextBox[]> {
  const opened = openedOf(options);
  const config: DetectorConfig = {
    longest: 960, multiple: 32, threshold: 0.3, score: 0.5, least: 3, grow: 1.6, ...(opened.recipe.more as Partial<DetectorConfig> | undefined),
  };
  const pixels = await readPixels(source, options);
  const scale = Math.min(1, config.longest / Math.max(pixels.width, pixels.height));
  const inputSide = (n: number): number => Math.max(1, Math.round((n * scale) / config.multiple)) * config.multiple;
  const size = [inputSide(pixels.height), inputSide(pixels.width)] as const;
  const { tensor, placement } = await fitImage(pixels, { ...imageOptionsOf(opened, options), size });
  using out = await runModel(opened, { [inputNameOf(opened)]: tensor }, options);
  const [height, width] = size;
  if (out.size !== height * width) throw new ValueError("E_VALUE", `a map of text is [1, 1, ${height}, ${width}], not [${out.shape.join(", ")}]`);
  const found = connectedComponents(await out.data(), width, config);
  const boxes = scaleBoxes(found.map(({ box }) => box), placement);
  const lines = found.map(({ score, curve, box: from }, at) => {
    const box = boxes[at] as Box;
    const scale = (box[3] - box[1]) / (from[3] - from[1]);
    return { box, score, ...(curve && { curve: [curve[0] * scale, curve[1] * scale] as const }) };
  });
  return lines.sort((a, b) => a.box[1] - b.box[1] || a.box[0] - b.box[0]);
}

/** The connected components of a probability map, grown. */
export function connectedComponents(map: Float32Array, width: number, { threshold, score, least, grow }: DetectorConfig): TextBox[] {
  const visited = new Uint8Array(map.length);
  const stack = new Int32Array(map.length);
  const members = new Int32Array(map.length);
  const found: TextBox[] = [];
  for (let start = 0; start < map.length; start += 1) {
    if (visited[start] || !((map[start] as number) > threshold)) continue;
    let [left, top, right, bottom, sum, count] = [width, map.length, 0, 0, 0, 0];
    let stackSize = 0;
    const visit = (at: number): void => {
      if (visited[at] || !((map[at] as number) > threshold)) return;
      visited[at] = 1;
      stack[stackSize++] = at;
    };
    visit(start);
    while (stackSize > 0) {
      const at = stack[--stackSize] as number;
      const [x, y] = [at % width, Math.floor(at / width)];
      [left, right, top, bottom] = [Math.min(left, x), Math.max(right, x + 1), Math.min(top, y), Math.max(bottom, y + 1)];
      sum += map[at] as number;
      members[count++] = at;
      if (x > 0) visit(at - 1);
      if (x + 1 < width) visit(at + 1);
      if (at >= width) visit(at - width);
      if (at + width < map.length) visit(at + width);
    }
    if (Math.min(right - left, bottom - top) < least || sum / count < score) continue;
    const { curve, from, to } = bandOf(members.subarray(0, count), width, { left, right, top, bottom });
    const [w, h] = [right - left, to - from];
    const margin = (w * h * grow) / (2 * (w + h));
    if (!curve) {
      found.push({ box: [left - margin, from - margin, right + margin, to + margin], score: sum / count });
      continue;
    }
    const wider = 1 + (2 * margin) / w;
    const grown: LineCurve = [curve[0] * wider, curve[1] * wider * wider];
    const [above, below] = reachOf(grown);
    found.push({ box: [left - margin, from - margin + above, right + margin, to + margin + below], score: sum / count, curve: grown });
  }
  return found;
}

/**
 * The course of a component, as a parabola of least squares, and its upper and lower edge in the middle. There is no course
 * for components that are not long, or that leave the horizontal by less than a quarter of their height.
 */
function bandOf(
  members: Int32Array,
  width: number,
  { left, right, top, bottom }: { left: number; right: number; top: number; bottom: number },
): { curve?: LineCurve; from: number; to: number } {
  const [middle, half] = [(left + right - 1) / 2, (right - left) / 2];
  const place = (at: number): [t: number, y: number] => [((at % width) - middle) / half, Math.floor(at / width)];
  // sums of powers of t, and of their products with y
  const [t, ty] = [new Float64Array(5), new Float64Array(3)];
  for (const at of members) {
    const [x, y] = place(at);
    for (let k = 0, power = 1; k < 5; k += 1, power *= x) {
      t[k] = (t[k] as number) + power;
      if (k < 3) ty[k] = (ty[k] as number) + power * (y - top);
    }
  }
  const [s0, s1, s2, s3, s4] = t as unknown as [number, number, number, number, number];
  const [y0, y1, y2] = ty as unknown as [number, number, number];
  // the normal equations without the constant
  const [a, b, d] = [s0 * s2 - s1 * s1, s0 * s3 - s1 * s2, s0 * s4 - s2 * s2];
  const [u, v] = [s0 * y1 - s1 * y0, s0 * y2 - s2 * y0];
  const determinant = a * d - b * b;
  if (!(determinant > 1e-9 * a * d)) return { from: top, to: bottom };
  const curve: LineCurve = [(u * d - v * b) / determinant, (v * a - u * b) / determinant];
  let [from, to] = [Infinity, -Infinity];
  for (const at of members) {
    const [x, y] = place(at);
    const level = y - curve[0] * x - curve[1] * x * x;
    [from, to] = [Math.min(from, level), Math.max(to, level + 1)];
  }
  const [above, below] = reachOf(curve);
  return right - left < 3 * (to - from) || below - above < (to - from) / 4 ? { from: top, to: bottom } : { curve, from, to };
}
