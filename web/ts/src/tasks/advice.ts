// Advice for models of tasks that could not be opened; loaded when that happens.
import { FetchError, FormatError } from "../errors.js";

/** Files of models, for which users look for a task before they know of recipes. */
const MODEL_FILE = /is an? (ONNX model|TensorFlow Lite model|GGUF file|safetensors file|npz file|file that torch\.save wrote|pickle\b.*), not a recipe$/;

/** Advice for the address of a recipe where nothing was found. */
function addressHint(address: string): string {
  if (/\/$/.test(address)) return `is it ${address}recipe.json?`;
  if (!/[./:]/.test(address)) return "this is an address; names are those of models in the folder of setModelBase";
  return "`npx gradloom models DIR` writes models with their recipes, for a folder that you serve";
}

/** Adds advice to the error of a model that could not be opened, if it is known what may be meant. */
export function withAdvice(error: unknown, address: string | URL): unknown {
  if (error instanceof FetchError && error.hint === undefined) return Object.assign(error, { hint: addressHint(String(address)) });
  if (error instanceof FormatError && MODEL_FILE.test(error.message)) {
    return Object.assign(error, { hint: "tasks take the address of a recipe.json, which names the model's file (docs/tasks.md)" });
  }
  return error;
}
