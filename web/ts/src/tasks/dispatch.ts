// Opens the models of tasks and dispatches each task to the thread that has its model: the page's worker if there is
// one, else this thread. The code of the tasks is loaded only if they run here.
import { DeviceError, InternalError, ValueError, missing } from "../errors.js";
import { canRunInWorker } from "../model.js";
import type { Opened, TaskName, TaskOptions } from "./recipe.js";

type LocalTasks = typeof import("./implementations.js");
/** Names of the functions that perform tasks. */
export type TaskFunction = Exclude<keyof LocalTasks, "retryOnDeviceLoss" | "openLocal">;

/** An opened model in the page's worker. */
interface RemoteTasks {
  readonly ended: boolean;
  run(name: TaskFunction, input: unknown, more: readonly unknown[], options: TaskOptions): Promise<unknown>;
}

const openedModels = new Map<string, Promise<Opened>>();
/** Further functions that `unload` calls. */
export const unloadCallbacks = new Set<() => void>();
const remoteByModel = new WeakMap<Opened, RemoteTasks>();

const loadLocalTasks = (): Promise<LocalTasks> => import("./implementations.js").catch(missing);

/**
 * Loads a model by the address of its recipe. Tasks do this themselves; call it to load a model in advance or to free
 * it.
 */
export async function open(address: string | URL, options: Omit<TaskOptions, "model"> = {}): Promise<Opened> {
  const { worker: _, ...rest } = options;
  if (canRunInWorker(options)) {
    const result = await (await import("../remote.js").catch(() => undefined))?.openRemote(address, rest);
    if (result) {
      remoteByModel.set(result.opened, result.remote);
      return result.opened;
    }
  }
  return (await loadLocalTasks()).openLocal(address, rest);
}

/** The model of a task, loaded once per address, device and thread, and kept until `unload` or its loss. */
async function modelOf(task: TaskName, options: TaskOptions): Promise<Opened> {
  const model = requireModel(task, options);
  if (typeof model !== "string" && !(model instanceof URL)) return checkTask(task, model);
  const key = `${String(options.device ?? "auto")} ${canRunInWorker(options)} ${model}`;
  let found = openedModels.get(key);
  if (found && remoteByModel.get(await found)?.ended) found = undefined;
  if (!found) {
    openedModels.set(key, (found = open(model, options)));
    found.catch(() => openedModels.delete(key));
  }
  return checkTask(task, await found);
}

/** The `model` option of a task; throws if it is missing. */
export function requireModel<M>(task: TaskName, options: { model: M }): M {
  const { model } = (options ?? {}) as Partial<{ model: M }>;
  if (model !== undefined) return model;
  throw new ValueError("E_VALUE", `${task} needs the address of a recipe`, { hint: `${task}(.., { model: "models/recipe.json" })` });
}

function checkTask(task: TaskName, opened: Opened): Opened {
  if (opened.recipe?.task === task) return opened;
  throw new ValueError("E_VALUE", `${opened.recipe?.name ?? "this"} is a model for ${opened.recipe?.task ?? "nothing"}, not for ${task}`);
}

/** Whether the model is lost with its device or worker, so that the next task has to open it again. */
const isModelLost = (error: unknown): boolean =>
  error instanceof InternalError || (error instanceof DeviceError && error.code === "E_DEVICE_LOST");

/** Runs a task in the thread that has its model. */
export async function runTask<N extends TaskFunction>(name: N, task: TaskName, args: [unknown, ...unknown[]], options: TaskOptions): Promise<any> {
  const model = await modelOf(task, options);
  const taskOptions = { ...options, model };
  const remote = remoteByModel.get(model);
  const [input, ...more] = args;
  try {
    if (remote) return await remote.run(name, input, more, taskOptions);
    const localTasks = await loadLocalTasks();
    return await localTasks.retryOnDeviceLoss(taskOptions, (options) => (localTasks[name] as (...all: unknown[]) => Promise<unknown>)(...args, options));
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
