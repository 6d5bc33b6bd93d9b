// Models of tasks, and the thread that each task is done in: the page's worker, where there is one, or else this one. What tasks do is
// loaded when it is known to be done here.
import { DeviceError, InternalError, ValueError, missing } from "../errors.js";
import { mayBeElsewhere } from "../model.js";
import type { Opened, TaskName, TaskOptions } from "./recipe.js";

type Here = typeof import("./here.js");
/** What can be done. */
export type Work = Exclude<keyof Here, "onceMore" | "openHere">;

/** A model in the page's worker. */
interface There {
  readonly over: boolean;
  work(name: Work, input: unknown, more: readonly unknown[], options: TaskOptions): Promise<unknown>;
}

const opened = new Map<string, Promise<Opened>>();
/** What else `unload` frees. */
export const alsoUnloaded = new Set<() => void>();
const elsewhere = new WeakMap<Opened, There>();

const here = (): Promise<Here> => import("./here.js").catch(missing);

/** Loads a model by the address of its recipe. Tasks do so themselves; this is for who wants to wait for it, or free it. */
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

/** The model of a task: loaded once for each address, device and thread, until `unload` or its end. */
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

/** What a task was given as its model. */
export function addressOf<M>(task: TaskName, options: { model: M }): M {
  const { model } = (options ?? {}) as Partial<{ model: M }>;
  if (model !== undefined) return model;
  throw new ValueError("E_VALUE", `${task} needs the address of a recipe`, { hint: `${task}(.., { model: "models/recipe.json" })` });
}

function fits(task: TaskName, given: Opened): Opened {
  if (given.recipe?.task === task) return given;
  throw new ValueError("E_VALUE", `${given.recipe?.name ?? "this"} is a model for ${given.recipe?.task ?? "nothing"}, not for ${task}`);
}

/** Whatever held it is no more: the next task opens its model anew. */
const isOver = (error: unknown): boolean =>
  error instanceof InternalError || (error instanceof DeviceError && error.code === "E_DEVICE_LOST");

/** Does a task, in the thread that its model is in. */
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

/** Frees the models that tasks have loaded. */
export async function unload(): Promise<void> {
  const all = [...opened.values()];
  opened.clear();
  for (const free of alsoUnloaded) free();
  for (const each of all) (await each.catch(() => undefined))?.dispose();
}
