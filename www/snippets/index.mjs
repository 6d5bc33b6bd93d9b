// The snippets of the home page, in the order in which it offers them.
import { readFileSync } from "node:fs";

const NAMES = { attention: "Attention: a product and a softmax", spiral: "Training: two spirals", onnx: "An ONNX model: twice the size" };

/** `[name, title, code]` of each. */
export const snippets = Object.entries(NAMES).map(([name, title]) => [name, title, readFileSync(new URL(`${name}.js`, import.meta.url), "utf8").trim()]);
