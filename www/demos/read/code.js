// What is written in a picture.
import { detectText, readText } from "gradloom/tasks";

/**
 * Where the lines of a picture are.
 * @param {any} picture
 * @param {Partial<import("gradloom/tasks").TaskOptions>} options
 */
export function linesOf(picture, { model = "models/ppocrv4_det/recipe.json", ...options } = {}) {
  return detectText(picture, { model, ...options }); // [{ box, score }]
}

/**
 * What is written in these lines, each told as soon as it is read, and all of them as a text.
 * @param {any} picture
 * @param {Partial<import("gradloom/tasks").ReadTextOptions>} options
 */
export function read(picture, { model = "models/ppocrv4_rec/recipe.json", ...options } = {}) {
  return readText(picture, { model, ...options });
}
