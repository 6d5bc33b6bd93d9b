// A picture in twice its size.
import { upscale } from "gradloom/tasks";

/**
 * `picture` is a bitmap, an element, a file, an address ..; large ones are worked on in tiles, which `onTile` hears of.
 * @param {any} picture
 * @param {Partial<import("gradloom/tasks").TaskOptions> & { onTile?: (done: number, all: number) => void }} options
 */
export function enlarge(picture, { model = "models/esrgan_slim_x2/recipe.json", ...options } = {}) {
  return upscale(picture, { model, ...options }); // ImageData
}
