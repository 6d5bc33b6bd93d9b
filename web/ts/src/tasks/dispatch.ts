// Opens the models of tasks and dispatches each task to the thread that has its model: the page's worker if there is
// one, else this thread. The code of the tasks is loaded only if they run here.
import { loadChunk } from "../chunks.js";
import { DeviceError, InternalError, ValueError } from "../errors.js";
import { canRunInWorker } from "../model.js";
import type { FetchOptions } from "../progress.js";
import type { ImageSource } from "../vision/pixels.js";
import type { Opened, TaskName, TaskOptions } from "./recipe.js";

type LocalTasks = typeof import("./implementations.js");
/** Names of the functions that perform tasks. */
export type TaskFunction = Exclude<keyof LocalTasks, "disposeKept" | "retryOnDeviceLoss" | "openLocal" | "readAfterLoss">;

/** An opened model in the page's worker. */
interface RemoteTasks {
  run(name: TaskFunction, input: unknown, more: readonly unknown[], options: TaskOptions): Promise<unknown>;
}

/** A folder of models: its address, and the SHA-256 of its index if that is to be verified. */
export interface ModelBase {
  readonly address: string | URL;
  readonly hash?: string;
}

let modelBase: ModelBase | undefined;

/**
 * Names the folder in which tasks find their models if they are called without an address. `npx gradloom models DIR`
 * writes such a folder. Relative addresses are those of the page, or in Node of the working directory; undefined forgets
 * the folder. With `hash`, the SHA-256 of the folder's `index.json`, the index, all recipes and all files for which these
 * have a hash are verified: for a folder on somebody else's server. Nothing is fetched before the first task.
 */
export function setModelBase(address: string | URL | undefined, { hash }: { hash?: string } = {}): void {
  modelBase = address === undefined ? undefined : { address, ...(hash !== undefined && { hash }) };
}

const openedModels = new Map<string, Promise<Opened>>();
/** Further functions that `unload` calls. */
export const unloadCallbacks = new Set<() => void>();
const remoteByModel = new WeakMap<Opened, RemoteTasks>();

const loadLocalTasks = (): Promise<LocalTasks> => loadChunk("tasks", () => import("./implementations.js"));

/**
 * Loads a model by the address of its recipe, or by its name in the folder of `setModelBase`. Tasks do this themselves;
 * call it to load a model in advance or to free it.
 */
export async function open(model: string | URL, options: Omit<TaskOptions, "model"> = {}): Promise<Opened> {
  const { worker: _, ...given } = options;
  const { address, ...hash } = await addressOf(undefined, { ...given, model });
  const rest = { ...given, ...hash };
  if (canRunInWorker(options)) {
    const result = await (await import("../remote.js").catch(() => undefined))?.openRemote(address, rest);
    if (result) {
      remoteByModel.set(result.opened, result.remote);
      return result.opened;
    }
  }
  return (await loadLocalTasks()).openLocal(address, rest);
}

/** `open`, whose errors say what may be meant. */
async function openWithAdvice(address: string | URL, options: Omit<TaskOptions, "model">): Promise<Opened> {
  try {
    return await open(address, options);
  } catch (error) {
    throw await loadChunk("advice", () => import("./advice.js")).then(({ withAdvice }) => withAdvice(error, address), () => error);
  }
}

/** The model of a task, loaded once per address, device and thread, and kept until `unload` or its loss. */
async function modelOf(task: TaskName, options: TaskOptions): Promise<Opened> {
  const { model } = options;
  if (typeof model === "object" && !(model instanceof URL)) return checkTask(task, model);
  const { address, ...hash } = await addressOf(task, { ...options, model });
  const key = `${String(options.device ?? "auto")} ${canRunInWorker(options)} ${address}`;
  let found = openedModels.get(key);
  if (!found) {
    openedModels.set(key, (found = openWithAdvice(address, { ...options, ...hash })));
    found.catch(() => openedModels.delete(key));
  }
  return checkTask(task, await found);
}

/** Whether a string is the name of a model in a folder rather than an address. */
const isModelName = (model: string | URL): model is string => typeof model === "string" && /^[^./:]+$/.test(model);

/** The address of a task's recipe, with its hash if that is known; throws if there is neither an address nor a folder. */
export async function addressOf(
  task: TaskName | undefined,
  { model, hash, ...options }: FetchOptions & { model: string | URL | undefined },
): Promise<{ address: string | URL; hash?: string }> {
  const given = hash !== undefined && { hash };
  if (model !== undefined && !(modelBase && isModelName(model))) return { address: model, ...given };
  if (!modelBase) {
    const hint = task === "chat"
      ? 'chat(.., { model: "models/recipe.json" }) with a recipe beside your GGUF file; or without one LLM.load("model.gguf") of gradloom/llm'
      : `${task}(.., { model: "models/recipe.json" }), or a folder of \`npx gradloom models\` and setModelBase("/models/")`;
    throw new ValueError("E_VALUE", `${task ?? "open"} needs the address of a recipe`, { hint });
  }
  const { url, ...found } = await (await loadChunk("folder", () => import("./folder.js"))).findModel(modelBase, task, model as string | undefined, options);
  return { address: url, ...found, ...given };
}

function checkTask(task: TaskName, opened: Opened): Opened {
  const { recipe } = opened;
  if (recipe?.task === task) return opened;
  const hint = recipe && `\`${recipe.task}\` of gradloom/tasks takes it; \`npx gradloom models DIR ${task}\` fetches a model for ${task}`;
  throw new ValueError("E_VALUE", `${recipe?.name ?? "this"} is a model for ${recipe?.task ?? "nothing"}, not for ${task}`, { hint });
}

/** Whether the model is lost with its device or worker, so that the next task has to open it again. */
const isModelLost = (error: unknown): boolean =>
  error instanceof InternalError || (error instanceof DeviceError && error.code === "E_DEVICE_LOST");

/** Runs a task in the thread that has its model. */
export async function runTask<N extends TaskFunction>(name: N, task: TaskName, args: [unknown, ...unknown[]], options: TaskOptions): Promise<any> {
  const model = await modelOf(task, options);
  // the hash is that of the recipe, not of the files that the task fetches
  const { hash: _, ...taskOptions } = { ...options, model };
  const remote = remoteByModel.get(model);
  const [input, ...more] = args;
  try {
    if (remote) return await remote.run(name, input, more, taskOptions);
    const localTasks = await loadLocalTasks();
    const perform = localTasks[name] as (...all: unknown[]) => Promise<unknown>;
    return await localTasks.retryOnDeviceLoss(taskOptions, async (options, loss) => {
      return perform(loss ? await localTasks.readAfterLoss(input as ImageSource, loss, options) : input, ...more, options);
    });
  } catch (error) {
    if (isModelLost(error)) {
      for (const [key, each] of openedModels) if ((await each.catch(() => undefined)) === model) openedModels.delete(key);
    }
    throw error;
  }
}

/** Frees all models that tasks have loaded. */
export async function unload(): Promise<void> {
  const all = [...openedModels.values()];
  openedModels.clear();
  for (const callback of unloadCallbacks) callback();
  for (const each of all) (await each.catch(() => undefined))?.dispose();
}
