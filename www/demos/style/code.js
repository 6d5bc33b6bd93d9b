// A picture painted in two styles at once.
import { stylize } from "gradloom/tasks";

const [MODEL, STYLES] = ["models/style_multistyle26/recipe.json", 26];

/**
 * Paints `picture` (a bitmap, an element, a file ..) in style `a`, mixed with so much (0 to 1) of style `b`.
 * @param {any} picture
 * @param {Partial<import("gradloom/tasks").TaskOptions> & { a?: number, b?: number, mix?: number }} options
 */
export function paint(picture, { a = 7, b = 13, mix = 0, model = MODEL, ...options } = {}) {
  const style = new Array(STYLES).fill(0);
  style[a] += 1 - mix;
  style[b] += mix;
  return stylize(picture, { model, style, ...options }); // ImageData
}
