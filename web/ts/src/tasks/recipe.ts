// Recipes: a JSON file beside a model that describes its task, inputs and outputs. Anyone who publishes a model can
// publish a recipe for it.
import { loadChunk } from "../chunks.js";
import { loadWeights } from "../files.js";
import { type LoadOptions, type Model, type RunOptions, loadLocal } from "../model.js";
import { FormatError, InternalError, ValueError, isLost } from "../errors.js";
import { type FetchOptions, readSource } from "../progress.js";
import type { Tensor } from "../tensor.js";
import type { ImageOptions } from "../vision/image.js";
import type { BoxForm } from "../vision/boxes.js";
import { baseUrl } from "./paths.js";

/** The tasks. */
export type TaskName =
  | "classify" | "detect" | "detectFaces" | "detectText" | "readText" | "notes" | "stylize" | "segment" | "removeBackground"
  | "upscale" | "vad" | "classifySound" | "transcribe" | "fileType" | "embed" | "chat";

/** The options of `ImageOptions` that a recipe can set. */
export type ImageRecipe = Pick<
  ImageOptions,
  "size" | "fit" | "shortSide" | "align" | "background" | "resample" | "channels" | "scale" | "mean" | "std" | "layout" | "dtype"
>;

/** An SSD detector of TensorFlow without its post-processing: the grid sizes in cells, and the names of the outputs. */
export interface SsdRecipe {
  cells: readonly number[];
  boxes: string;
  scores: string;
}

/** The contents of a `recipe.json`. Addresses in it are relative to its own. */
export interface Recipe {
  task: TaskName;
  /** The address of the model's file, or of its weights. */
  model: string;
  /** Name, origin and licence (an SPDX expression) of the model. */
  name: string;
  source?: string;
  license: string;
  /** Size of the model's file in bytes, and its SHA-256 in hexadecimal, which is verified. */
  bytes?: number;
  sha256?: string;
  /** Names of the model's input and output to use, if it has several. */
  input?: string;
  output?: string;
  image?: ImageRecipe;
  /** How an output picture's numbers represent colours. */
  picture?: Pick<ImageRecipe, "channels" | "scale" | "mean" | "std" | "layout">;
  /** Names of the classes. */
  labels?: readonly string[];
  /** True if the scores are logits, to be converted to probabilities. */
  softmax?: boolean;
  /** For detectors: rows of a box and the class scores, laid out as `[numbers, boxes]` or `[boxes, numbers]`. */
  boxes?: { form?: BoxForm; rows?: "numbers" | "boxes"; score?: number; iou?: number; ssd?: SsdRecipe };
  /** Further parameters of individual tasks. */
  more?: Readonly<Record<string, unknown>>;
  /**
   * The other files that the recipe names, by the same addresses: their sizes in bytes and their SHA-256, which is
   * verified.
   */
  files?: Readonly<Record<string, { bytes?: number; sha256: string }>>;
}

/** Describes a model that is about to be downloaded. */
export interface ModelNotice {
  name: string;
  url: string;
  license: string;
  source: string | undefined;
  bytes: number | undefined;
}

/** Options of all tasks. */
export interface TaskOptions extends FetchOptions {
  /**
   * The address of a recipe, or a model that `open` returned. With `setModelBase`: default is the folder's model for the
   * task, and a string without dots and slashes is the name of a model in that folder.
   */
  model?: string | URL | Opened;
  device?: LoadOptions["device"];
  /**
   * In a page, tasks run in the worker that all models share: pictures and sounds are posted to it, and results are
   * posted back. False uses the page's own thread. So do a `device` that `init` returned, `init({ gpuDevice })`, and
   * browsers that refuse the worker. An opened model stays in the thread in which it was opened.
   */
  worker?: boolean;
  /** The expected SHA-256 of the recipe, by which everything that the recipe names with a hash is certain. */
  hash?: string;
  /** Called before a model is downloaded, with its address and licence; once per model. */
  onModel?: (notice: ModelNotice) => void;
}

/** A model with its recipe. */
export interface Opened {
  readonly recipe: Recipe;
  readonly url: URL;
  /** The model; undefined for tasks whose file holds only weights. */
  readonly model: Model | undefined;
  /** Objects that a task keeps for later calls, in the thread in which it runs. */
  readonly kept: Map<string, unknown>;
  dispose(): void;
  [Symbol.dispose](): void;
}

/** Tasks whose file holds only weights; the network is built in this package. */
const WEIGHTS_ONLY_TASKS: ReadonlySet<TaskName> = new Set(["embed", "transcribe"] as const);
const isWeightsOnly = ({ task, more }: Recipe): boolean => WEIGHTS_ONLY_TASKS.has(task) || more?.["network"] !== undefined;

function validateRecipe(value: unknown, from: string): Recipe {
  const recipe = value as Partial<Recipe> | null;
  for (const key of ["task", "model", "name", "license"] as const) {
    if (typeof recipe?.[key] !== "string") throw new FormatError("E_FORMAT", `${from} is no recipe: it has no \`${key}\``);
  }
  const sizes = recipe?.image?.size;
  if (sizes !== undefined && ![sizes].flat().every((n) => Number.isInteger(n) && (n as number) > 0)) {
    throw new FormatError("E_FORMAT", `${from}: the size of the image is ${JSON.stringify(sizes)}`);
  }
  return recipe as Recipe;
}

/** The address of a file that a recipe refers to. A recipe in a `data:` URL cannot refer to relative files. */
export function resolveFile({ recipe, url }: Pick<Opened, "recipe" | "url">, file: string): URL {
  try {
    return new URL(file, url);
  } catch (cause) {
    const hint = "name its files by whole addresses";
    throw new FormatError("E_FORMAT", `${recipe.name}: there is no \`${file}\` beside a recipe at a \`${url.protocol}\` address`, { cause, hint });
  }
}

/** Disposes results of pending work that is no longer needed, as soon as they arrive. */
export function disposeWhenSettled(...results: Promise<Disposable | Record<string, Tensor>>[]): void {
  const disposablesOf = (it: Disposable | Record<string, Tensor>): Disposable[] => (Symbol.dispose in it ? [it as Disposable] : Object.values(it));
  for (const each of results) void each.then((it) => disposablesOf(it).forEach((one) => one[Symbol.dispose]()), () => {});
}

/** A parsed recipe, its address, the address of its model, and the options for fetching that. */
interface ResolvedRecipe {
  recipe: Recipe;
  url: URL;
  file: URL;
  fetchOptions: FetchOptions;
}

/** Reads a recipe and calls `onModel`. */
export async function readRecipe(address: string | URL, options: Omit<TaskOptions, "model">): Promise<ResolvedRecipe> {
  const { onModel, signal, fetch, cache, hash } = options;
  const fetchOptions = { ...(fetch && { fetch }), ...(cache !== undefined && { cache }), ...(signal && { signal }) };
  const text = new TextDecoder().decode(await readSource(address, { ...fetchOptions, ...(hash !== undefined && { hash }) }));
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch (cause) {
    const { explainError } = await loadChunk("sniff");
    const error = new FormatError("E_FORMAT", `${address} is no recipe: ${(cause as Error).message}`, { cause });
    throw explainError(error, "recipe", address, new TextEncoder().encode(text));
  }
  const recipe = validateRecipe(parsed, String(address));
  const url = new URL(address, baseUrl());
  const file = resolveFile({ recipe, url }, recipe.model);
  onModel?.({ name: recipe.name, url: file.href, license: recipe.license, source: recipe.source, bytes: recipe.bytes });
  return { recipe, url, file, fetchOptions: { ...fetchOptions, ...(recipe.sha256 && { hash: recipe.sha256 }) } };
}

/** Loads a model by the address of its recipe in this thread. */
export async function openLocal(address: string | URL, options: Omit<TaskOptions, "model"> = {}): Promise<Opened> {
  const { device, onProgress } = options;
  const { recipe, url, file, fetchOptions } = await readRecipe(address, options);
  const loadOptions = { ...fetchOptions, ...(onProgress && { onProgress }), ...(device && { device }) };
  const model = isWeightsOnly(recipe) ? undefined : await loadLocal(file, loadOptions);
  const kept = new Map<string, unknown>();
  const dispose = (): void => {
    model?.dispose();
    disposeKept(opened);
  };
  const opened: Opened = { recipe, url, model, kept, dispose, [Symbol.dispose]: dispose };
  return opened;
}

/** Disposes the objects that a task kept for later calls. */
export function disposeKept({ kept }: Opened): void {
  // some of them may still be loading
  for (const each of kept.values()) void Promise.resolve(each).then((it) => (it as Partial<Disposable>)[Symbol.dispose]?.(), () => {});
  kept.clear();
}

/**
 * Runs a task, and runs it once more if its device is lost; the objects it kept on that device are made again. If text
 * has already been delivered to `onText`, the loss is reported as an error instead, so that no text is delivered twice.
 * The second time `body` gets the loss as well, with which its input may have been lost.
 */
export async function retryOnDeviceLoss<T>(options: TaskOptions, body: (options: TaskOptions, loss?: unknown) => Promise<T>): Promise<T> {
  const { onText } = options as { onText?: (text: string) => void };
  let hasEmitted = false;
  const emit = (text: string): void => {
    hasEmitted = true;
    onText?.(text);
  };
  try {
    return await body(onText ? ({ ...options, onText: emit } as TaskOptions) : options);
  } catch (error) {
    if (!isLost(error) || hasEmitted || options.signal?.aborted) throw error;
    disposeKept(openedOf(options));
    options.onProgress?.({ phase: "device", loaded: 0, total: 0 });
    return body(options, error);
  }
}

/**
 * An object that a task derives from an opened model and keeps for later calls: made by the first call, or again after
 * a failure.
 */
export function memoize<T>({ kept }: Opened, key: string, make: () => Promise<T>): Promise<T> {
  const found = (kept.get(key) as Promise<T> | undefined) ?? make();
  kept.set(key, found);
  found.catch(() => kept.delete(key));
  return found;
}

/**
 * The options for fetching files beside a recipe: those of the task, except what concerns only the model's own file.
 */
export function fetchOptionsOf({ model: _, onModel: __, hash: ___, device: ____, ...fetching }: TaskOptions): FetchOptions {
  return fetching;
}

/** The options for fetching one file beside a recipe, with its hash if the recipe has one. */
export function fileOptionsOf({ recipe }: Opened, file: string, options: TaskOptions): FetchOptions {
  const sha256 = recipe.files?.[file]?.sha256;
  return { ...fetchOptionsOf(options), ...(sha256 !== undefined && { hash: sha256 }) };
}

/** The weights of a task whose file holds only weights; verified by the recipe's hash. */
export function weightsOf(opened: Opened, options: TaskOptions): Promise<Record<string, Tensor>> {
  const { recipe } = opened;
  const { device } = options;
  const weightOptions = { ...fetchOptionsOf(options), ...(recipe.sha256 && { hash: recipe.sha256 }), ...(device && { device }) };
  return loadWeights(resolveFile(opened, recipe.model), weightOptions);
}

/** The opened model of a task. */
export function openedOf({ model }: TaskOptions): Opened {
  if (typeof model === "object" && !(model instanceof URL)) return model;
  throw new InternalError("E_INTERNAL", "the model of this task is not open");
}

/** Runs the model of a task and gives all its outputs. The inputs are freed. */
export async function runAll({ model, recipe }: Opened, inputs: Record<string, Tensor>, { signal }: RunOptions): Promise<Record<string, Tensor>> {
  if (!model) throw new ValueError("E_VALUE", `${recipe.name} is no graph`);
  try {
    return (await model.run(inputs, signal ? { signal } : {})) as Record<string, Tensor>;
  } finally {
    for (const t of Object.values(inputs)) t.dispose();
  }
}

/** Runs the model of a task and gives the output that its recipe names. The inputs and all other outputs are freed. */
export async function runModel(opened: Opened, inputs: Record<string, Tensor>, options: RunOptions): Promise<Tensor> {
  const { output = opened.model?.outputs[0]?.name ?? "", name: modelName } = opened.recipe;
  const all = await runAll(opened, inputs, options);
  for (const [name, t] of Object.entries(all)) if (name !== output) t.dispose();
  const found = all[output];
  if (!found) throw new FormatError("E_FORMAT", `${modelName} has no output ${output}`);
  return found;
}

/** The name of the model's input for the picture. */
export const inputNameOf = ({ model, recipe }: Opened): string => recipe.input ?? model?.inputs[0]?.name ?? "";

/**
 * The options for reading a task's picture, as the recipe says. Those for fetching apply to the picture as they did to
 * the model.
 */
export const imageOptionsOf = ({ recipe }: Opened, { signal, fetch }: TaskOptions): ImageOptions => {
  return { ...recipe.image, ...(signal && { signal }), ...(fetch && { fetch }) };
};
