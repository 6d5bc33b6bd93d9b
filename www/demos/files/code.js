// What kind of file something is, by its content.
import { fileType } from "gradloom/tasks";

/**
 * The likeliest kinds, best first, and whether the best is to be believed; undefined for what is too small.
 * @param {any} file
 * @param {Partial<import("gradloom/tasks").TaskOptions>} options
 */
export function kindOf(file, { model = "models/magika/recipe.json", ...options } = {}) {
  return fileType(file, { model, ...options }); // { label, score, sure, all }
}
