// The worker's side of tasks: opened models by id, and running tasks on them. Files that only a page can decode are
// sent to the page.
import { elsewhere as sounds } from "../audio/sound.js";
import { StateError } from "../errors.js";
import type { LocalModel } from "../model.js";
import * as here from "../tasks/here.js";
import type { Work } from "../tasks/opened.js";
import type { Opened, TaskOptions } from "../tasks/recipe.js";
import { elsewhere as pictures } from "../vision/pixels.js";
import type { Answers, Context } from "./calls.js";
import type { Fetched, SentOptions, ToldOpened } from "./open.js";
import { type Start, disposed, newNumber, started, told } from "./thread.js";

/** Opened models, with the id of the underlying model and the device that was requested. */
const all = new Map<number, { opened: Opened; model: number | undefined; device: Start["device"] }>();

/** Recreates the options that the page was given; functions call back to the page. */
function options({ plain, functions }: SentOptions, { signal, tell, ask }: Context): Omit<TaskOptions, "model"> {
  const own = (name: string): unknown => (name === "fetch" ? viaPage(ask) : (...args: unknown[]) => tell(name, ...args));
  return { ...plain, ...Object.fromEntries(functions.map((name) => [name, own(name)])), signal };
}

/** A `fetch` that forwards requests to the page's custom `fetch`. */
function viaPage(ask: Context["ask"]): typeof fetch {
  return async (address, init = {}) => {
    const headers = [...new Headers(init.headers)];
    const request = { headers, ...(init.method && { method: init.method }), ...(init.cache && { cache: init.cache }) };
    const { body, ...answer } = await ask<Fetched>("fetch", String(address), request);
    return new Response(body, answer);
  };
}

/** Lets the page decode the files that a worker cannot. */
export function readElsewhere(ask: Context["ask"]): void {
  pictures.decode = (file) => ask("pictureOfFile", file);
  sounds.decode = (bytes, sampleRate) => ask("soundOfFile", bytes, sampleRate);
}

interface Open extends Start {
  address: string;
  options: SentOptions;
}

interface Task extends Start {
  id: number;
  name: Work;
  input: unknown;
  more: unknown[];
  options: SentOptions;
}

export const taskAnswers: Answers = {
  async open({ address, options: sent, ...start }: Open, context): Promise<ToldOpened> {
    const { kind } = await started(start, context);
    const opened = await here.openHere(address, { ...options(sent, context), device: start.device });
    const id = newNumber();
    const model = opened.model && told(opened.model as LocalModel);
    all.set(id, { opened, model: model?.id, device: start.device });
    return { id, recipe: opened.recipe, url: opened.url.href, model, kind };
  },

  async task({ id, name, input, more, options: sent, device, settings }: Task, context): Promise<unknown> {
    if (settings) await started({ device, settings }, context);
    const found = all.get(id);
    if (!found) throw new StateError("E_STATE", "this model was disposed");
    const how = { ...options(sent, context), device: found.device, model: found.opened };
    return here.onceMore(how, (options) => (here[name] as (...args: unknown[]) => Promise<unknown>)(input, ...more, options));
  },

  close(id: number): void {
    const { opened, model } = all.get(id) ?? {};
    all.delete(id);
    opened?.dispose();
    if (model !== undefined) disposed(model);
  },
};
