// What is written in a picture.
import { readText } from "gradloom/tasks";

/**
 * The lines of a picture, each told as soon as it is read, and all of them as a text.
 * @param {any} picture
 * @param {Partial<import("gradloom/tasks").TaskOptions> & { onLine?: (line: import("gradloom/tasks").TextLine) => void }} options
 */
export async function read(picture, { model = "models/ppocrv4_rec/recipe.json", ...options } = {}) {
  return readText(picture, { model, ...options });
}
