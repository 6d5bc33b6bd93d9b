// The page's side of a demo's worker.
import type { Cost, Event, Handlers, Own } from "./serve";

type Api = Handlers & Partial<Own>;
type What<A, K extends keyof A> = A[K] extends (what: infer W, ...more: never[]) => unknown ? W : undefined;
type Result<A, K extends keyof A> = A[K] extends (...all: never[]) => infer R ? Awaited<R> : never;

export interface Asked {
  onEvent?: (event: Event) => void;
  signal?: AbortSignal;
  transfer?: Transferable[];
}

interface Answer {
  ready?: boolean;
  id: number;
  event?: Event;
  error?: { message: string };
  result?: unknown;
  ms?: number;
  cost?: Cost;
}

/** The interface of what answers a demo's requests, and its cost. */
export interface Asks<A extends object> {
  ask<K extends keyof (A & Own) & string>(name: K, what?: What<A & Own, K>, asked?: Asked): Promise<Result<A & Own, K>>;
  cost: Cost | undefined;
  ms: number;
}

/** A client of a worker with the handlers `A`. */
export class Engine<A extends object = Api> implements Asks<A> {
  readonly #worker: Worker;
  readonly #ready: Promise<void>;
  readonly #waiting = new Map<number, { done: (answer: Answer) => void; fail: (error: Error) => void; event: (event: Event) => void }>();
  #count = 0;
  /** The worker's cost so far, and the milliseconds of its last answer. */
  cost: Cost | undefined;
  ms = 0;

  constructor(worker: Worker) {
    this.#worker = worker;
    this.#ready = new Promise((done, fail) => {
      worker.onmessage = ({ data }: { data: Answer }) => {
        if (data.ready) return done();
        const entry = this.#waiting.get(data.id);
        if (!entry) return;
        if (data.event) return entry.event(data.event);
        this.#waiting.delete(data.id);
        if (data.error) return entry.fail(Object.assign(new Error(data.error.message), data.error));
        this.cost = data.cost ?? this.cost;
        this.ms = data.ms ?? 0;
        entry.done(data);
      };
      worker.onerror = ({ message }) => {
        const error = new Error(message || "the page's worker did not start");
        fail(error);
        for (const entry of this.#waiting.values()) entry.fail(error);
        this.#waiting.clear();
      };
    });
  }

  /** Sends a request to the worker. `onEvent` receives intermediate events; the signal asks it to stop. */
  async ask<K extends keyof (A & Own) & string>(
    name: K,
    what?: What<A & Own, K>,
    { onEvent = () => {}, signal, transfer = [] }: Asked = {},
  ): Promise<Result<A & Own, K>> {
    await this.#ready;
    const id = (this.#count += 1);
    const answer = await new Promise<Answer>((done, fail) => {
      this.#waiting.set(id, { done, fail, event: onEvent });
      this.#worker.postMessage({ id, name, what }, transfer);
      signal?.addEventListener("abort", () => this.#worker.postMessage({ stop: id }), { once: true });
    });
    return answer.result as Result<A & Own, K>;
  }
}
