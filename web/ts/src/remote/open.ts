// The page's side of tasks in the worker: opens models there and runs tasks on them. The worker's side is `tasks.ts`.
import type { DeviceKind } from "../device.js";
import { GradloomError, ValueError, guardAsync, isLost } from "../errors.js";
import { deviceRequest, pageFunctions, prefersPage, updatePrefersPage, workerClient } from "../remote-start.js";
import type { TaskFunction } from "../tasks/dispatch.js";
import type { Opened, Recipe, TaskOptions } from "../tasks/recipe.js";
import type { ImageSource } from "../vision/pixels.js";
import { type Callbacks, type RpcClient, packValue, unpackValue } from "./calls.js";
import { type RemoteModelInfo, RemoteModel, noOtherWorker } from "./model.js";
import { absolute, fileForWorker, pictureAfterLoss, pictureForWorker, pictureOfFile, pixelsForWorker, soundForWorker, soundOfFile } from "./sources.js";

/** The worker's description of an opened model. */
export interface OpenedInfo {
  id: number;
  recipe: Recipe;
  url: string;
  model: RemoteModelInfo | undefined;
  /** The device of the model, if the task's file is a graph. */
  kind: DeviceKind | undefined;
}

/** The response to a forwarded request. */
export interface PostedResponse {
  status: number;
  statusText: string;
  headers: [string, string][];
  body: ArrayBuffer | null;
}

/** A task's options for posting: plain values, and the names of functions, which the worker calls back. */
export interface PostedOptions {
  plain: Record<string, unknown>;
  functions: string[];
}

const AUDIO_TASKS: ReadonlySet<TaskFunction> = new Set(["vad", "transcribe", "notes", "classifySound"] as const);

function splitOptions({ signal: _, model: __, device: ___, ...options }: Partial<TaskOptions>): { posted: PostedOptions; callbacks: Callbacks } {
  const all = Object.entries(options);
  const callbacks = Object.fromEntries(all.filter(([, value]) => typeof value === "function")) as Callbacks;
  const plain = Object.fromEntries(all.filter(([, value]) => typeof value !== "function"));
  const { fetch } = callbacks;
  if (fetch) {
    callbacks["fetch"] = async (address: string, init: RequestInit): Promise<PostedResponse> => {
      const response = (await fetch(address, init)) as Response;
      const { status, statusText, headers } = response;
      const empty = [101, 204, 205, 304].includes(status);
      return { status, statusText, headers: [...headers], body: empty ? null : await response.arrayBuffer() };
    };
  }
  return { posted: { plain, functions: Object.keys(callbacks) }, callbacks };
}

const registry = new FinalizationRegistry(({ client, id }: { client: RpcClient; id: number }) => void client.call("close", id).catch(() => {}));

/** Converts a task's input to a form that can be posted. */
function inputForWorker(name: TaskFunction, input: unknown, signal?: AbortSignal): unknown {
  if (name === "embed") return input;
  if (name === "fileType") return fileForWorker(input as string, signal);
  return AUDIO_TASKS.has(name) ? soundForWorker(input as string, signal) : pictureForWorker(input as ImageSource, signal);
}

/** Where an opened model is. */
interface Place {
  client: RpcClient;
  id: number;
}

class RemoteTasks {
  constructor(
    readonly place: Place,
    /** Opens the model again, in another worker, if its own has ended. */
    readonly ensureWorker: (signal?: AbortSignal) => Promise<void> | undefined,
  ) {}

  get client(): RpcClient {
    return this.place.client;
  }

  async run(name: TaskFunction, input: unknown, more: readonly unknown[], options: TaskOptions): Promise<unknown> {
    const { signal, device } = options;
    signal?.throwIfAborted();
    await this.ensureWorker(signal);
    const { posted, callbacks } = splitOptions(options);
    const takesPicture = !AUDIO_TASKS.has(name) && name !== "embed" && name !== "fileType";
    const callWorker = async (postedInput: unknown): Promise<unknown> => {
      const args = { id: this.place.id, name, options: posted, ...deviceRequest(device as DeviceKind | undefined) };
      const { value, transfer } = packValue({ ...args, input: postedInput, more });
      return unpackValue(await this.client.call("task", value, { signal, callbacks, transfer }));
    };
    try {
      return await callWorker(await inputForWorker(name, input, signal));
    } catch (error) {
      if (isLost(error) && takesPicture && !this.client.ended) return callWorker(await pictureAfterLoss(input as ImageSource, error, signal));
      if (error instanceof GradloomError || (error as Error)?.name !== "DataCloneError") throw error;
      // e.g. a picture of another origin: reading it in this thread works, or gives the proper error
      if (takesPicture) return callWorker(await pixelsForWorker(input as ImageSource, signal));
      throw new ValueError("E_VALUE", `${name}: what was given is neither a file nor values: ${(error as Error).message}`, { cause: error });
    }
  }
}

/** Opens a task's model in the page's worker; null if that is not possible. */
export async function openRemote(
  address: string | URL,
  options: Omit<TaskOptions, "model" | "worker">,
): Promise<{ opened: Opened; remote: RemoteTasks } | null> {
  const { signal, device } = options;
  signal?.throwIfAborted();
  if (prefersPage()) return null;
  const kind = device as DeviceKind | "auto" | undefined;
  Object.assign(pageFunctions, { pictureOfFile, soundOfFile });
  const begun = await openInWorker(address, options);
  if (!begun) return null;
  const { recipe, url, model: modelInfo, kind: chosen } = begun.info;
  // shared by the model and the opened object: once both are unreachable, the worker closes it
  const owner = {};
  const place: Place = { client: begun.client, id: begun.info.id };
  registry.register(owner, place, owner);
  const { signal: _, onProgress: __, onModel: ___, ...lasting } = options;
  const state = { disposed: false };
  const restore = async (): Promise<void> => {
    const again = await openInWorker(address, lasting);
    if (!again) throw noOtherWorker();
    Object.assign(place, { client: again.client, id: again.info.id });
    if (state.disposed) return void again.client.call("close", place.id).catch(() => {});
    if (again.info.model) model?.moveTo({ client: again.client, info: again.info.model });
  };
  let restoring: Promise<void> | undefined;
  const ensureWorker = (signal?: AbortSignal): Promise<void> | undefined => {
    if (!place.client.ended || state.disposed) return undefined;
    return guardAsync(() => (restoring ??= restore().finally(() => (restoring = undefined))), signal);
  };
  const model: RemoteModel | undefined = modelInfo && new RemoteModel(begun.client, modelInfo, async () => ensureWorker(), owner);
  const dispose = (): void => {
    state.disposed = true;
    registry.unregister(owner);
    model?.dispose();
    void place.client.call("close", place.id).catch(() => {});
  };
  const opened: Opened = { recipe, url: new URL(url), model, kept: new Map(), dispose, [Symbol.dispose]: dispose };
  if (!(await updatePrefersPage(kind, chosen ?? "wasm"))) return { opened, remote: new RemoteTasks(place, ensureWorker) };
  dispose();
  return null;
}

/** Opens a task's model in the page's present worker; null if the browser refuses it. */
async function openInWorker(
  address: string | URL,
  options: Omit<TaskOptions, "model" | "worker">,
): Promise<{ client: RpcClient; info: OpenedInfo } | null> {
  const { signal, device } = options;
  const client = await guardAsync(workerClient, signal);
  if (!client) return null;
  const { posted, callbacks } = splitOptions(options);
  const onLate = ({ id }: OpenedInfo): void => void client.call("close", id).catch(() => {});
  const request = { address: absolute(address), options: posted, ...deviceRequest(device as DeviceKind | "auto" | undefined) };
  return { client, info: await client.call<OpenedInfo>("open", request, { signal, callbacks, onLate }) };
}
