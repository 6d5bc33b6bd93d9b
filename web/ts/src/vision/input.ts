// A picture as a model's input, converted where the model is.
import type { ImageInput } from "../model.js";
import { type ImageOptions, fromImage } from "./image.js";
import { type ImageSource, readAfterLoss } from "./pixels.js";

/** The options of `fromImage` that `imageInput` takes. */
export type ImageInputOptions = Omit<ImageOptions, "device" | "signal" | "fetch" | "onProgress">;

/**
 * A picture as an input of `Model.run`: what `fromImage` with these options gives, but converted in the thread and on the
 * device of the model. For a model in the page's worker the picture itself is posted, not its numbers, so the page neither
 * computes nor reads back anything. `run` takes the picture of its time: a video's current frame, a stream's newest one.
 * Errors are those of `fromImage`, at `run`.
 */
export function imageInput(source: ImageSource, options: ImageInputOptions = {}): ImageInput {
  const toTensor: ImageInput["toTensor"] = async ({ loss, ...extra }) => {
    return fromImage(loss ? await readAfterLoss(source, loss, extra) : source, { ...options, ...extra });
  };
  return { source, options, toTensor };
}
