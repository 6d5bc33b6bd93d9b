// The page's side of tasks in the worker: opens models there and runs tasks on them. The worker's side is `tasks.ts`.
import type { DeviceKind } from "../device.js";
import { GradloomError, ValueError, guardAsync } from "../errors.js";
import { becomesBetterHere, deviceIn, forWorker, isBetterHere, worker } from "../remote-start.js";
import type { Work } from "../tasks/opened.js";
import type { Opened, Recipe, TaskOptions } from "../tasks/recipe.js";
import type { ImageSource } from "../vision/pixels.js";
import { type Calls, type Functions, packed, unpacked } from "./calls.js";
import { type Told, RemoteModel } from "./model.js";
import { absolute, fileFor, pictureFor, pictureOfFile, pixelsFor, soundFor, soundOfFile } from "./sources.js";

/** The worker's description of an opened model. */
export interface ToldOpened {
  id: number;
  recipe: Recipe;
  url: string;
  model: Told | undefined;
  /** The device of the model, if the task's file is a graph. */
  kind: DeviceKind | undefined;
}

/** The response to a forwarded request. */
export interface Fetched {
  status: number;
  statusText: string;
  headers: [string, string][];
  body: ArrayBuffer | null;
}

/** A task's options for posting: plain values, and the names of functions, which the worker calls back. */
export interface SentOptions {
  plain: Record<string, unknown>;
  functions: string[];
}

const SOUNDS: ReadonlySet<Work> = new Set(["vad", "transcribe", "notes"] as const);

function split({ signal: _, model: __, device: ___, ...options }: Partial<TaskOptions>): { sent: SentOptions; told: Functions } {
  const all = Object.entries(options);
  const told = Object.fromEntries(all.filter(([, value]) => typeof value === "function")) as Functions;
  const plain = Object.fromEntries(all.filter(([, value]) => typeof value !== "function"));
  const { fetch } = told;
  if (fetch) {
    told["fetch"] = async (address: string, init: RequestInit): Promise<Fetched> => {
      const response = (await fetch(address, init)) as Response;
      const { status, statusText, headers } = response;
      const empty = [101, 204, 205, 304].includes(status);
      return { status, statusText, headers: [...headers], body: empty ? null : await response.arrayBuffer() };
    };
  }
  return { sent: { plain, functions: Object.keys(told) }, told };
}

const lost = new FinalizationRegistry(({ calls, id }: { calls: Calls; id: number }) => void calls.ask("close", id).catch(() => {}));

/** Converts a task's input to a form that can be posted. */
function sendable(name: Work, input: unknown, signal?: AbortSignal): unknown {
  if (name === "embed") return input;
  if (name === "fileType") return fileFor(input as string, signal);
  return SOUNDS.has(name) ? soundFor(input as string, signal) : pictureFor(input as ImageSource, signal);
}

class There {
  constructor(
    readonly calls: Calls,
    readonly id: number,
  ) {}

  get over(): boolean {
    return this.calls.ended;
  }

  async work(name: Work, input: unknown, more: readonly unknown[], options: TaskOptions): Promise<unknown> {
    const { signal, device } = options;
    signal?.throwIfAborted();
    const { sent, told } = split(options);
    const ask = async (given: unknown): Promise<unknown> => {
      const args = { id: this.id, name, options: sent, ...deviceIn(device as DeviceKind | undefined) };
      const { value, transfer } = packed({ ...args, input: given, more });
      return unpacked(await this.calls.ask("task", value, { signal, told, transfer }));
    };
    try {
      return await ask(await sendable(name, input, signal));
    } catch (error) {
      if (error instanceof GradloomError || (error as Error)?.name !== "DataCloneError") throw error;
      // e.g. a picture of another origin: reading it in this thread works, or gives the proper error
      if (!SOUNDS.has(name) && name !== "embed" && name !== "fileType") return ask(await pixelsFor(input as ImageSource, signal));
      throw new ValueError("E_VALUE", `${name}: what was given is neither a file nor values: ${(error as Error).message}`, { cause: error });
    }
  }
}

/** Opens a task's model in the page's worker; null if that is not possible. */
export async function openRemote(address: string | URL, options: Omit<TaskOptions, "model" | "worker">): Promise<{ opened: Opened; there: There } | null> {
  const { signal, device } = options;
  signal?.throwIfAborted();
  if (isBetterHere()) return null;
  const kind = device as DeviceKind | "auto" | undefined;
  const calls = await guardAsync(worker, signal);
  if (!calls) return null;
  Object.assign(forWorker, { pictureOfFile, soundOfFile });
  const { sent, told } = split(options);
  const late = ({ id }: ToldOpened): void => void calls.ask("close", id).catch(() => {});
  const asked = { address: absolute(address), options: sent, ...deviceIn(kind) };
  const { id, recipe, url, model: facts, kind: taken } = await calls.ask<ToldOpened>("open", asked, { signal, told, late });
  // shared by the model and the opened object: once both are unreachable, the worker closes it
  const owner = {};
  lost.register(owner, { calls, id }, owner);
  const model = facts && new RemoteModel(calls, facts, owner);
  const dispose = (): void => {
    lost.unregister(owner);
    model?.dispose();
    void calls.ask("close", id).catch(() => {});
  };
  const opened: Opened = { recipe, url: new URL(url), model, kept: new Map(), dispose, [Symbol.dispose]: dispose };
  if (!(await becomesBetterHere(kind, taken ?? "wasm"))) return { opened, there: new There(calls, id) };
  dispose();
  return null;
}
