// Recipes: what a model is for, what it takes and what it gives, in a file beside it. Whoever publishes a model can publish its recipe.
import { loadWeights } from "../files.js";
import { type LoadOptions, type Model, type RunOptions, loadLocal } from "../model.js";
import { FormatError, InternalError, ValueError, isLost } from "../errors.js";
import { type FetchOptions, readSource } from "../progress.js";
import type { Tensor } from "../tensor.js";
import type { ImageOptions } from "../vision/image.js";
import type { BoxForm } from "../vision/boxes.js";

/** What a model does. */
export type TaskName =
  | "classify" | "detect" | "detectFaces" | "detectText" | "readText" | "notes" | "stylize" | "segment" | "removeBackground"
  | "upscale" | "vad" | "transcribe" | "fileType" | "embed" | "chat";

/** The part of `ImageOptions` that a recipe can say. */
export type ImageRecipe = Pick<
  ImageOptions,
  "size" | "fit" | "shortSide" | "align" | "background" | "resample" | "channels" | "scale" | "mean" | "std" | "layout" | "dtype"
>;

/** A detector of TensorFlow's SSD kind, without its last steps: the sides of its grids in cells, and the names of its outputs. */
export interface SsdRecipe {
  cells: readonly number[];
  boxes: string;
  scores: string;
}

/** A `recipe.json`. Addresses in it are relative to it. */
export interface Recipe {
  task: TaskName;
  /** The file of the model, or of its weights. */
  model: string;
  /** What it is called, where it comes from, and under which licence (an SPDX expression). */
  name: string;
  source?: string;
  license: string;
  /** The bytes of the model's file, and its SHA-256 in hexadecimal digits, which is checked. */
  bytes?: number;
  sha256?: string;
  /** The names of the input for the picture and of the output, if the model has others. */
  input?: string;
  output?: string;
  image?: ImageRecipe;
  /** How the numbers of a picture that comes out mean colours. */
  picture?: Pick<ImageRecipe, "channels" | "scale" | "mean" | "std" | "layout">;
  /** The names of the classes. */
  labels?: readonly string[];
  /** The scores are logits: they are made probabilities. */
  softmax?: boolean;
  /** Detectors: rows of a box and a score for each class, as `[numbers, boxes]` or `[boxes, numbers]`. */
  boxes?: { form?: BoxForm; rows?: "numbers" | "boxes"; score?: number; iou?: number; ssd?: SsdRecipe };
  /** What else a task needs to know of its model. */
  more?: Readonly<Record<string, unknown>>;
}

/** What is fetched for a task. */
export interface ModelNotice {
  name: string;
  url: string;
  license: string;
  source: string | undefined;
  bytes: number | undefined;
}

/** What all tasks take. */
export interface TaskOptions extends FetchOptions {
  /** The address of a recipe, or a model that `open` gave. */
  model: string | URL | Opened;
  device?: LoadOptions["device"];
  /**
   * In a page a task is done in the worker that all models share: pictures and sounds go there, and what comes out comes back. False does
   * it in the page's own thread, as happens for a `device` that `init` returned, after `init({ gpuDevice })`, and where the browser refuses
   * the worker. What was opened stays where it was opened.
   */
  worker?: boolean;
  /** Told what is about to be fetched, from where and under which licence, once for each model. */
  onModel?: (notice: ModelNotice) => void;
}

/** A model with its recipe. */
export interface Opened {
  readonly recipe: Recipe;
  readonly url: URL;
  /** The model, of tasks whose file is one. */
  readonly model: Model | undefined;
  /** What a task keeps for the next call, in the thread that it is done in. */
  readonly kept: Map<string, unknown>;
  dispose(): void;
  [Symbol.dispose](): void;
}

/** Tasks whose file is weights alone: the network is here. */
const WEIGHTS: ReadonlySet<TaskName> = new Set(["embed", "transcribe"] as const);
const isWeights = ({ task, more }: Recipe): boolean => WEIGHTS.has(task) || more?.["network"] !== undefined;

/** What an address is relative to. */
const base = (): string | undefined => (globalThis as { location?: { href: string } }).location?.href;

function checked(value: unknown, from: string): Recipe {
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

/** The address of a file that a recipe names. A recipe that is in its own address (`data:`) has no files beside it. */
export function beside({ recipe, url }: Pick<Opened, "recipe" | "url">, file: string): URL {
  try {
    return new URL(file, url);
  } catch (cause) {
    const hint = "name its files by whole addresses";
    throw new FormatError("E_FORMAT", `${recipe.name}: there is no \`${file}\` beside a recipe at a \`${url.protocol}\` address`, { cause, hint });
  }
}

/** Frees what is on its way for something that failed, as it comes. */
export function release(...work: Promise<Disposable | Record<string, Tensor>>[]): void {
  const all = (it: Disposable | Record<string, Tensor>): Disposable[] => (Symbol.dispose in it ? [it as Disposable] : Object.values(it));
  for (const each of work) void each.then((it) => all(it).forEach((one) => one[Symbol.dispose]()), () => {});
}

/** What a recipe says, its address and its model's, and how that is fetched. */
interface Read {
  recipe: Recipe;
  url: URL;
  file: URL;
  own: FetchOptions;
}

/** Reads a recipe; `onModel` hears of it. */
export async function readRecipe(address: string | URL, options: Omit<TaskOptions, "model">): Promise<Read> {
  const { onModel, signal, fetch, cache } = options;
  const own = { ...(fetch && { fetch }), ...(cache !== undefined && { cache }), ...(signal && { signal }) };
  const text = new TextDecoder().decode(await readSource(address, own));
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch (cause) {
    const { explained } = await import("../sniff.js");
    const error = new FormatError("E_FORMAT", `${address} is no recipe: ${(cause as Error).message}`, { cause });
    throw explained(error, "recipe", address, new TextEncoder().encode(text));
  }
  const recipe = checked(parsed, String(address));
  const url = new URL(address, base() ?? (await import("../tasks/paths.js")).folder());
  const file = beside({ recipe, url }, recipe.model);
  onModel?.({ name: recipe.name, url: file.href, license: recipe.license, source: recipe.source, bytes: recipe.bytes });
  return { recipe, url, file, own: { ...own, ...(recipe.sha256 && { hash: recipe.sha256 }) } };
}

/** Loads a model by the address of its recipe, in this thread. */
export async function openHere(address: string | URL, options: Omit<TaskOptions, "model"> = {}): Promise<Opened> {
  const { device, onProgress } = options;
  const { recipe, url, file, own } = await readRecipe(address, options);
  const how = { ...own, ...(onProgress && { onProgress }), ...(device && { device }) };
  const model = isWeights(recipe) ? undefined : await loadLocal(file, how);
  const kept = new Map<string, unknown>();
  const dispose = (): void => {
    model?.dispose();
    forget(opened);
  };
  const opened: Opened = { recipe, url, model, kept, dispose, [Symbol.dispose]: dispose };
  return opened;
}

/** Frees what a task kept for the next call. */
function forget({ kept }: Opened): void {
  // some of it may still be on its way
  for (const each of kept.values()) void Promise.resolve(each).then((it) => (it as Partial<Disposable>)[Symbol.dispose]?.(), () => {});
  kept.clear();
}

/**
 * Does a task, and once more if its device goes away under it: what it kept there is loaded again. Text that somebody was told is not told twice: then
 * it is an error.
 */
export async function onceMore<T>(options: TaskOptions, body: (options: TaskOptions) => Promise<T>): Promise<T> {
  const { onText } = options as { onText?: (text: string) => void };
  let isTold = false;
  const tell = (text: string): void => {
    isTold = true;
    onText?.(text);
  };
  try {
    return await body(onText ? ({ ...options, onText: tell } as TaskOptions) : options);
  } catch (error) {
    if (!isLost(error) || isTold || options.signal?.aborted) throw error;
    forget(given(options));
    options.onProgress?.({ phase: "device", loaded: 0, total: 0 });
    return body(options);
  }
}

/** What a task needs of an open model besides it, kept for the next calls: made by the first one, and again where that failed. */
export function keep<T>({ kept }: Opened, what: string, make: () => Promise<T>): Promise<T> {
  const found = (kept.get(what) as Promise<T> | undefined) ?? make();
  kept.set(what, found);
  found.catch(() => kept.delete(what));
  return found;
}

/** How files beside a recipe are fetched: as the options say, but for what is said of the model's own file. */
export function fetchingOf({ model: _, onModel: __, hash: ___, device: ____, ...fetching }: TaskOptions): FetchOptions {
  return fetching;
}

/** The weights of a task whose file is no graph. Their hash is the recipe's. */
export function weightsOf(opened: Opened, options: TaskOptions): Promise<Record<string, Tensor>> {
  const { recipe } = opened;
  const { device } = options;
  const how = { ...fetchingOf(options), ...(recipe.sha256 && { hash: recipe.sha256 }), ...(device && { device }) };
  return loadWeights(beside(opened, recipe.model), how);
}

/** What was opened for a task. */
export function given({ model }: TaskOptions): Opened {
  if (typeof model !== "string" && !(model instanceof URL)) return model;
  throw new InternalError("E_INTERNAL", "the model of this task is not open");
}

/** Runs the model of a task, and gives all its outputs. What the model took is freed. */
export async function runAll({ model, recipe }: Opened, inputs: Record<string, Tensor>, { signal }: RunOptions): Promise<Record<string, Tensor>> {
  if (!model) throw new ValueError("E_VALUE", `${recipe.name} is no graph`);
  try {
    return (await model.run(inputs, signal ? { signal } : {})) as Record<string, Tensor>;
  } finally {
    for (const t of Object.values(inputs)) t.dispose();
  }
}

/** Runs the model of a task, and gives the output that its recipe names. What the model took and the other outputs are freed. */
export async function runOf(opened: Opened, inputs: Record<string, Tensor>, options: RunOptions): Promise<Tensor> {
  const { output = opened.model?.outputs[0]?.name ?? "", name: called } = opened.recipe;
  const all = await runAll(opened, inputs, options);
  for (const [name, t] of Object.entries(all)) if (name !== output) t.dispose();
  const found = all[output];
  if (!found) throw new FormatError("E_FORMAT", `${called} has no output ${output}`);
  return found;
}

/** The input that a picture goes to. */
export const inputOf = ({ model, recipe }: Opened): string => recipe.input ?? model?.inputs[0]?.name ?? "";

/** How the picture of a task is read: as the recipe says. The options for fetching were the model's, too. */
export const imageOf = ({ recipe }: Opened, { signal, fetch }: TaskOptions): ImageOptions => {
  return { ...recipe.image, ...(signal && { signal }), ...(fetch && { fetch }) };
};
