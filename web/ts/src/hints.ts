// Suggests a likely fix for the shape error of a layer, from the error's message.

/**
 * Takes a message such as `linear: shape [64, 28, 28] does not fit [10, 784]`, and gives advice if a likely cause is
 * found.
 */
export function hintOf(message: string): string | undefined {
  const [, shapes] = /^(?:linear|conv): shape (.*)/.exec(message) ?? [];
  if (!shapes) return;
  const [x, w] = JSON.parse(`[${shapes.replace(" does not fit ", ",")}]`) as [number[], number[]];
  const [last, takes] = [x.at(-1), w[1]];
  if (w.length === 2) {
    const flat = x.findIndex((_, axis) => axis > 0 && x.slice(axis).reduce((a, b) => a * b) === takes);
    return flat > 0 ? `the last axis is ${last} and the layer takes ${takes}: flatten(${flat}) first?` : undefined;
  }
  if (x.length < w.length) return "the batch's axis is missing: unsqueeze(0) first?";
  return last === takes ? "this looks like channels last (NHWC): permute([0, 3, 1, 2]) first?" : undefined;
}
