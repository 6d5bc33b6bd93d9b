// A picture in twice its size.
import { upscale } from "gradloom/tasks";

/**
 * `picture` is a bitmap, an element, a file, an address ..; of large ones, `onTile` hears of each tile.
 * @param {any} picture
 * @typedef {Partial<import("gradloom/tasks").TaskOptions>} Options
 * @param {Options & { onTile?: (done: number, all: number) => void }} options
 */
export function enlarge(picture, { model = "models/esrgan_slim_x2/recipe.json", ...options } = {}) {
  return upscale(picture, { model, ...options }); // ImageData
}
