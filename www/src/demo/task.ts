// A demo that runs a task of the package: the package runs its model in a worker of its own, so the page needs none.
import { type Device, type DeviceKind, type Progress, devices, stats } from "gradloom";
import { type Opened, open } from "gradloom/tasks";
import type { Asks } from "./engine";
import { Demo } from "./page";
import type { Cost, Own } from "./serve";
import { site } from "./site";

/** The options that a task receives. */
export interface How {
  model: Opened;
  device: DeviceKind;
  onProgress: (progress: Progress) => void;
  signal?: AbortSignal;
}

/** The models of a demo's tasks, on the selected device. */
class Task implements Asks<Own> {
  cost: Cost | undefined;
  ms = 0;
  #device: DeviceKind = "wasm";
  #threads = 1;
  readonly #models = new Map<string, Promise<Opened>>();
  /** Bytes downloaded, by the size of the file. */
  readonly #bytes = new Map<number, number>();

  /** Handles the requests that every demo makes. */
  ask: Asks<Own>["ask"] = async (name, what): Promise<any> => {
    const list = await devices();
    if (name === "devices") return list;
    const gpu = list.find(({ kind }) => kind === "webgpu");
    this.#device = what !== "auto" ? (what as unknown as DeviceKind) : gpu?.available && !gpu.software ? "webgpu" : "wasm";
    this.#threads = list.find(({ kind }) => kind === this.#device)?.threads ?? 1;
    for (const each of this.#models.values()) (await each.catch(() => undefined))?.dispose();
    this.#models.clear();
    return (this.cost = await this.costs());
  };

  /** The options of a task; its model is opened on first use. */
  async how(recipe: string, progress: (p: Progress) => void, signal?: AbortSignal): Promise<How> {
    const onProgress = (p: Progress): void => {
      if (p.phase === "download") this.#bytes.set(p.total, p.loaded - (p.cached ?? 0));
      progress(p);
    };
    const how = { device: this.#device, onProgress, ...(signal && { signal }) };
    const opening = this.#models.get(recipe) ?? open(new URL(recipe, site), { device: this.#device, onProgress });
    this.#models.set(recipe, opening);
    opening.catch(() => this.#models.delete(recipe));
    return { ...how, model: await opening };
  }

  async costs(): Promise<Cost> {
    const own = (await stats()).filter((each) => each.device === this.#device);
    const sum = (of: (s: (typeof own)[number]) => number): number => own.reduce((all, each) => all + of(each), 0);
    const entries = performance.getEntriesByType("resource") as PerformanceResourceTiming[];
    const [opened] = await Promise.all([...this.#models.values()].map((each) => each.catch(() => undefined)));
    const { threads } = (opened?.model?.device ?? { threads: this.#threads }) as Device;
    return {
      device: this.#device,
      threads,
      compiled: sum((s) => s.kernelsCompiled),
      kept: sum((s) => s.kernelsCached),
      compileMs: sum((s) => s.planMs + s.deviceMs),
      bytes: entries.reduce((all, entry) => all + entry.transferSize, 0) + [...this.#bytes.values()].reduce((all, n) => all + n, 0),
    };
  }
}

/** A demo of one or a few tasks. */
export class TaskDemo extends Demo<Own> {
  readonly #task: Task;
  readonly #recipe: string;

  /** The recipe's address is relative to the site's root. */
  constructor(recipe: string) {
    const task = new Task();
    super(task);
    this.#task = task;
    this.#recipe = recipe;
  }

  /**
   * Runs `body` with the model, or with that of another recipe, and measures how long it takes once the model is
   * loaded.
   */
  async perform<T>(signal: AbortSignal | undefined, body: (how: How) => Promise<T>, recipe = this.#recipe): Promise<{ value: T; ms: number }> {
    const how = await this.#task.how(recipe, (p) => this.progress(p), signal);
    const start = performance.now();
    const value = await body(how);
    const ms = performance.now() - start;
    this.#task.cost = await this.#task.costs();
    return { value, ms };
  }
}
