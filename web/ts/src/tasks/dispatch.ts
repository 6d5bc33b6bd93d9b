// Opens the models of tasks and dispatches each task to the thread that has its model: the page's worker if there is
// one, else this thread. The code of the tasks is loaded only if they run here.
import { DeviceError, InternalError, ValueError, missing } from "../errors.js";
import { mayBeElsewhere } from "../model.js";
import type { Opened, TaskName, TaskOptions } from "./recipe.js";

type Here = typeof import("./here.js");
/** Names of the functions that perform tasks. */
export type Work = Exclude<keyof Here, "onceMore" | "openHere">;

/** An opened model in the page's worker. */
interface There {
  readonly over: boolean;
  work(name: Work, input: unknown, more: readonly unknown[], options: TaskOptions): Promise<unknown>;
}

const opened = new Map<string, Promise<Opened>>();
/** Further functions that `unload` calls. */
export const alsoUnloaded = new Set<() => void>();
const elsewhere = new WeakMap<Opened, There>();

const here = (): Promise<Here> => import("./here.js").catch(missing);

/**
 * Loads a model by the address of its recipe. Tasks do this themselves; call it to load a model in advance or to free
 * it.
 */
export async function open(address: string | URL, options: Omit<TaskOptions, "model"> = {}): Promise<Opened> {
  const { worker: _, ...rest } = options;
  if (mayBeElsewhere(options)) {
    const found = await (await import("../remote.js").catch(() => undefined))?.openRemote(address, rest);
    if (found) {
      elsewhere.set(found.opened, found.there);
      return found.opened;
    }
  }
  return (await here()).openHere(address, rest);
}

/** The model of a task, loaded once per address, device and thread, and kept until `unload` or its loss. */
async function modelOf(task: TaskName, options: TaskOptions): Promise<Opened> {
  const model = addressOf(task, options);
  if (typeof model !== "string" && !(model instanceof URL)) return fits(task, model);
  const key = `${String(options.device ?? "auto")} ${mayBeElsewhere(options)} ${model}`;
  let found = opened.get(key);
  if (found && elsewhere.get(await found)?.over) found = undefined;
  if (!found) {
    opened.set(key, (found = open(model, options)));
    found.catch(() => opened.delete(key));
  }
  return fits(task, await found);
}

/** The `model` option of a task; throws if it is missing. */
export function addressOf<M>(task: TaskName, options: { model: M }): M {
  const { model } = (options ?? {}) as Partial<{ model: M }>;
  if (model !== undefined) return model;
  throw new ValueError("E_VALUE", `${task} needs the address of a recipe`, { hint: `${task}(.., { model: "models/recipe.json" })` });
}

function fits(task: TaskName, given: Opened): Opened {
  if (given.recipe?.task === task) return given;
  throw new ValueError("E_VALUE", `${given.recipe?.name ?? "this"} is a model for ${given.recipe?.task ?? "nothing"}, not for ${task}`);
}

/** Whether the model is lost with its device or worker, so that the next task has to open it again. */
const isOver = (error: unknown): boolean =>
  error instanceof InternalError || (error instanceof DeviceError && error.code === "E_DEVICE_LOST");

/** Runs a task in the thread that has its model. */
export async function work<N extends Work>(name: N, task: TaskName, args: [unknown, ...unknown[]], options: TaskOptions): Promise<any> {
  const model = await modelOf(task, options);
  const how = { ...options, model };
  const there = elsewhere.get(model);
  const [input, ...more] = args;
  try {
    if (there) return await there.work(name, input, more, how);
    const own = await here();
    return await own.onceMore(how, (options) => (own[name] as (...all: unknown[]) => Promise<unknown>)(...args, options));
  } catch (error) {
    if (isOver(error)) {
      for (const [key, each] of opened) if ((await each.catch(() => undefined)) === model) opened.delete(key);
    }
    throw error;
  }
}

/** Frees all models that tasks have loaded. */
export async function unload(): Promise<void> {
  const all = [...opened.values()];
  opened.clear();
  for (const free of alsoUnloaded) free();
  for (const each of all) (await each.catch(() => undefined))?.dispose();
}
