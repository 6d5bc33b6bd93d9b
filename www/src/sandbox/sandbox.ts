// The page's side of the sandbox: runs one version of the code at a time with a time limit. A run that takes too long
// or is outdated is ended together with its worker.
import type { Failed, Item, Order, Report } from "./messages";

export interface Watch {
  started(device: string, threads: number): void;
  item(item: Item): void;
  log(text: string): void;
}

/** How a run ended. */
export type End = { done: number } | { error: Failed } | { stopped: string };

export class Sandbox {
  readonly #make: () => Worker;
  readonly #limit: number;
  #worker: Worker | undefined;
  #ready: Promise<void> | undefined;
  #id = 0;
  #finish: ((end: End) => void) | undefined;

  /** `limit` is how many milliseconds a run may take. */
  constructor(make: () => Worker, limit: number) {
    this.#make = make;
    this.#limit = limit;
  }

  get busy(): boolean {
    return this.#finish !== undefined;
  }

  /** Starts the worker ahead of the first run. */
  warm(): Promise<void> {
    if (!this.#ready) {
      const worker = (this.#worker = this.#make());
      this.#ready = new Promise((done, fail) => {
        worker.onmessage = ({ data }: { data: Report }) => data.ready && done();
        worker.onerror = (event) => fail(new Error(event.message || "the worker did not start"));
      });
    }
    return this.#ready;
  }

  /** Ends the current run. The next run uses a new worker. */
  stop(why: string): void {
    this.#worker?.terminate();
    this.#worker = undefined;
    this.#ready = undefined;
    this.#finish?.({ stopped: why });
  }

  /** Runs code; an unfinished earlier run is stopped. */
  async run(order: Omit<Order, "id">, watch: Watch): Promise<End> {
    if (this.busy) this.stop("The code changed.");
    const id = (this.#id += 1);
    let timer: ReturnType<typeof setTimeout> | undefined;
    const end = new Promise<End>((done) => (this.#finish = done));
    const own = this.#finish;
    try {
      await this.warm();
      if (this.#id !== id) return { stopped: "The code changed." };
      const worker = this.#worker as Worker;
      worker.onmessage = ({ data }: { data: Report }) => {
        if (data.id !== id) return;
        if (data.started) watch.started(data.started.device, data.started.threads);
        if (data.item) watch.item(data.item);
        if (data.log !== undefined) watch.log(data.log);
        if (data.error) own?.({ error: data.error });
        if (data.done !== undefined) own?.({ done: data.done });
      };
      worker.onerror = ({ message }) => own?.({ error: { name: "Error", message } });
      timer = setTimeout(() => this.#id === id && this.stop(`Stopped after ${this.#limit / 1000} seconds.`), this.#limit);
      worker.postMessage({ ...order, id } satisfies Order);
      return await end;
    } catch (error) {
      return { error: { name: "Error", message: (error as Error).message } };
    } finally {
      clearTimeout(timer);
      if (this.#finish === own) this.#finish = undefined;
    }
  }
}
