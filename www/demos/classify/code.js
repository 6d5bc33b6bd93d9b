// What a picture shows.
import { classify } from "gradloom/tasks";

/**
 * The likeliest five of a thousand things, best first.
 * @param {any} picture
 * @param {Partial<import("gradloom/tasks").TaskOptions>} options
 */
export function kindsIn(picture, { model = "models/efficientnet_lite0/recipe.json", ...options } = {}) {
  return classify(picture, { model, ...options }); // [{ label, score, index }]
}
