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
  const lines = found.map(({ score }, at) => ({ box: boxes[at] as Box, score }));
  return lines.sort((a, b) => a.box[1] - b.box[1] || a.box[0] - b.box[0]);
}

/** The connected components of a probability map, grown. */
export function connectedComponents(map: Float32Array, width: number, { threshold, score, least, grow }: DetectorConfig): TextBox[] {
  const visited = new Uint8Array(map.length);
  const stack = new Int32Array(map.length);
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
      count += 1;
      if (x > 0) visit(at - 1);
      if (x + 1 < width) visit(at + 1);
      if (at >= width) visit(at - width);
      if (at + width < map.length) visit(at + width);
    }
    const [w, h] = [right - left, bottom - top];
    if (Math.min(w, h) < least || sum / count < score) continue;
    const margin = (w * h * grow) / (2 * (w + h));
    found.push({ box: [left - margin, top - margin, right + margin, bottom + margin], score: sum / count });
  }
  return found;
}
