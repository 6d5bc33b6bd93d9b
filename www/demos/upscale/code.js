// A picture in twice its size.
import { upscale } from "gradloom/tasks";

/**
 * `picture` is a bitmap, an element, a file, an address ..; `onTile` is called for each tile of large ones.
 * @param {any} picture
 * @typedef {Partial<import("gradloom/tasks").TaskOptions>} Options
 * @param {Options & { onTile?: (done: number, all: number) => void }} options
 */
export function enlarge(picture, { model = "models/esrgan_slim_x2/recipe.json", ...options } = {}) {
  return upscale(picture, { model, ...options }); // ImageData
}
