// The worker's side of tasks: opened models by id, and running tasks on them. Files that only a page can decode are
// sent to the page.
import { pageDecoder as soundDecoder } from "../audio/sound.js";
import { StateError, isLost } from "../errors.js";
import type { LocalModel } from "../model.js";
import * as implementations from "../tasks/implementations.js";
import type { TaskFunction } from "../tasks/dispatch.js";
import type { Opened, TaskOptions } from "../tasks/recipe.js";
import { pageDecoder as pictureDecoder } from "../vision/pixels.js";
import type { Context, Handlers } from "./calls.js";
import type { OpenedInfo, PostedOptions, PostedResponse } from "./open.js";
import { isOnGpu } from "./sources.js";
import { type DeviceRequest, disposeModel, newId, pictureLoss, registerModel, startDevice } from "./worker-models.js";

/** Opened models, with the id of the underlying model and the device that was requested. */
const openedModels = new Map<number, { opened: Opened; model: number | undefined; device: DeviceRequest["device"] }>();

/** Recreates the options that the page was given; functions call back to the page. */
function restoreOptions({ plain, functions }: PostedOptions, { signal, notify, call }: Context): Omit<TaskOptions, "model"> {
  const functionOf = (name: string): unknown => (name === "fetch" ? fetchOnPage(call) : (...args: unknown[]) => notify(name, ...args));
  return { ...plain, ...Object.fromEntries(functions.map((name) => [name, functionOf(name)])), signal };
}

/** A `fetch` that forwards requests to the page's custom `fetch`. */
function fetchOnPage(call: Context["call"]): typeof fetch {
  return async (address, init = {}) => {
    const headers = [...new Headers(init.headers)];
    const request = { headers, ...(init.method && { method: init.method }), ...(init.cache && { cache: init.cache }) };
    const { body, ...response } = await call<PostedResponse>("fetch", String(address), request);
    return new Response(body, response);
  };
}

/** Lets the page decode the files that a worker cannot. */
export function decodeOnPage(call: Context["call"]): void {
  pictureDecoder.decode = (file) => call("pictureOfFile", file);
  soundDecoder.decode = (bytes, sampleRate) => call("soundOfFile", bytes, sampleRate);
}

interface OpenRequest extends DeviceRequest {
  address: string;
  options: PostedOptions;
}

interface TaskRequest extends DeviceRequest {
  id: number;
  name: TaskFunction;
  input: unknown;
  more: unknown[];
  options: PostedOptions;
}

export const taskHandlers: Handlers = {
  async open({ address, options: posted, ...start }: OpenRequest, context): Promise<OpenedInfo> {
    const { kind } = await startDevice(start, context);
    const opened = await implementations.openLocal(address, { ...restoreOptions(posted, context), device: start.device });
    const id = newId();
    const model = opened.model && registerModel(opened.model as LocalModel);
    openedModels.set(id, { opened, model: model?.id, device: start.device });
    return { id, recipe: opened.recipe, url: opened.url.href, model, kind };
  },

  async task({ id, name, input, more, options: posted, device, settings }: TaskRequest, context): Promise<unknown> {
    if (settings) await startDevice({ device, settings }, context);
    const found = openedModels.get(id);
    if (!found) throw new StateError("E_STATE", "this model was disposed");
    const taskOptions = { ...restoreOptions(posted, context), device: found.device, model: found.opened };
    const perform = implementations[name] as (...args: unknown[]) => Promise<unknown>;
    const run = (options: TaskOptions): Promise<unknown> => perform(input, ...more, options);
    if (!isOnGpu(input)) return implementations.retryOnDeviceLoss(taskOptions, run);
    const { opened } = found;
    const { device: before } = opened.model ?? {};
    try {
      const result = await run(taskOptions);
      if (opened.model?.device === before) return result;
    } catch (error) {
      if (!isLost(error)) throw error;
    }
    // the picture may have been lost with the device, without an error: only the page can post it again
    implementations.disposeKept(opened);
    taskOptions.onProgress?.({ phase: "device", loaded: 0, total: 0 });
    throw pictureLoss();
  },

  close(id: number): void {
    const { opened, model } = openedModels.get(id) ?? {};
    openedModels.delete(id);
    opened?.dispose();
    if (model !== undefined) disposeModel(model);
  },
};
