// Whoever is in a picture, without what is behind.
import { removeBackground } from "gradloom/tasks";

/**
 * The picture with all but the person transparent, and the share of it that the person takes.
 * @param {any} picture
 * @param {Partial<import("gradloom/tasks").TaskOptions>} options
 */
export async function cutOut(picture, { model = "models/selfie_segmentation/recipe.json", ...options } = {}) {
  const { picture: image, mask } = await removeBackground(picture, { model, ...options });
  return { image, share: mask.reduce((sum, v) => sum + v, 0) / mask.length };
}
