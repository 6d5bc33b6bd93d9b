// Whoever is in a picture, without what is behind: softly, or as a sticker.
import { removeBackground, segment } from "gradloom/tasks";

const [SOFT, SHARP] = ["models/selfie_segmentation/recipe.json", "models/selfie_segmentation/segment.json"];

/**
 * The picture with all but the person transparent, and the share of it that the person takes.
 * @param {any} picture
 * @param {Partial<import("gradloom/tasks").TaskOptions>} options
 */
export async function cutOut(picture, { model = SOFT, ...options } = {}) {
  const { picture: image, mask } = await removeBackground(picture, { model, ...options });
  return { image, share: mask.reduce((sum, v) => sum + v, 0) / mask.length };
}

/**
 * The person cut out along one line, for a sticker: each pixel of the picture is the person's or not.
 * @param {ImageData} picture
 * @param {Partial<import("gradloom/tasks").TaskOptions>} options
 */
export async function cutLine(picture, { model = SHARP, ...options } = {}) {
  const { width, height, classes, segments } = await segment(picture, { model, ...options });
  const data = Uint8ClampedArray.from(picture.data, (v, at) => (at % 4 === 3 ? 255 * classes[at >> 2] : v));
  const { share = 0 } = segments.find(({ label }) => label === "person") ?? {};
  return { image: new ImageData(data, width, height), share };
}
