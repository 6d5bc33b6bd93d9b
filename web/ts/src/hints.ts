// Suggests a likely fix for the shape error of a layer or of a model's input, from the error's message.
import type { GradloomError } from "./errors.js";

/**
 * Takes a message such as `linear: shape [64, 28, 28] does not fit [10, 784]`, and gives advice if a likely cause is
 * found.
 */
export function shapeErrorHint(message: string): string | undefined {
  const [, shapes] = /^(?:linear|conv): shape (.*)/.exec(message) ?? [];
  if (!shapes) return;
  const [x, w] = JSON.parse(`[${shapes.replace(" does not fit ", ",")}]`) as [number[], number[]];
  const [last, expected] = [x.at(-1), w[1]];
  if (w.length === 2) {
    const firstAxis = x.findIndex((_, axis) => axis > 0 && x.slice(axis).reduce((a, b) => a * b) === expected);
    return firstAxis > 0 ? `the last axis is ${last} and the layer takes ${expected}: flatten(${firstAxis}) first?` : undefined;
  }
  if (x.length < w.length) return "the batch's axis is missing: unsqueeze(0) first?";
  return last === expected ? "this looks like channels last (NHWC): permute([0, 3, 1, 2]) first?" : undefined;
}

/** Adds a hint to an error such as "input `x`: shape [1, 48, 192, 3] was given, [?, 3, 48, 192] is wanted". */
export function withInputHint(error: GradloomError): GradloomError {
  const [, shape, dims] = /: shape (\[[\d, ]*\]) was given, \[(.*)\] is wanted$/.exec(error.message) ?? [];
  const hint = shape && inputShapeHint(JSON.parse(shape) as number[], dims ? dims.split(", ") : []);
  return hint ? Object.assign(error, { hint }) : error;
}

/** Advice for an input of the wrong shape: the change that makes it fit. A dimension that is no number fits any size. */
function inputShapeHint(shape: readonly number[], dims: readonly string[]): string | undefined {
  const fits = (sizes: readonly (number | undefined)[]): boolean =>
    sizes.length === dims.length && dims.every((dim, axis) => !/^\d+$/.test(dim) || Number(dim) === sizes[axis]);
  if (fits([1, ...shape])) return "the batch axis is missing: add it with unsqueeze(0)";
  if (shape[0] === 1 && fits(shape.slice(1))) return "there is a batch axis too many: remove it with squeeze(0)";
  const hasBatch = shape.length === 4;
  if (!hasBatch && shape.length !== 3) return;
  const [n, a, b, c] = hasBatch ? shape : [1, ...shape];
  if (fits([n, c, a, b])) {
    return `the image is channels last: ${hasBatch ? "permute([0, 3, 1, 2])" : "permute([2, 0, 1]).unsqueeze(0)"}, or fromImage(image, { layout: "nchw" })`;
  }
  if (fits([n, b, c, a])) {
    return `the image is channels first: ${hasBatch ? "permute([0, 2, 3, 1])" : "permute([1, 2, 0]).unsqueeze(0)"}, or fromImage(image, { layout: "nhwc" })`;
  }
  return;
}
