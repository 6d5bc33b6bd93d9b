// The worker's side of `remote.ts`: runs a language model and answers messages.
import { type InitOptions, init } from "../device.js";
import { type LocalModel, loadLocal } from "./local.js";
import { type PlainError, plain } from "../remote/calls.js";
import type { FinetuneOptions, Job, LLMOptions, Lesson, Metadata, ModelInfo, ModelSource, Step } from "./options.js";
import type { Progress } from "../progress.js";

/** Requests of the page. Each has an id, which its answers repeat. */
export type Ask = { id: number } & (
  | { kind: "load"; from: ModelSource; options: Omit<LLMOptions, "signal" | "onProgress" | "fetch">; init: InitOptions }
  | { kind: "run"; job: Job }
  | { kind: "embed"; text: string | readonly number[] }
  | { kind: "adapter"; name: string | null }
  | { kind: "finetune"; texts: readonly Lesson[]; options: Omit<FinetuneOptions, "signal" | "onStep"> }
  | { kind: "encode"; text: string; special: boolean }
  | { kind: "decode"; ids: readonly number[]; skipSpecial: boolean }
  /** The page has consumed a step. */
  | { kind: "taken" }
  /** Aborts the request of this id. */
  | { kind: "abort" }
);

/** Messages to the page. */
export type Answer = { id: number } & (
  | { kind: "progress"; progress: Progress }
  | { kind: "step"; step: Step }
  | { kind: "learning"; step: number; loss: number }
  | { kind: "loaded"; info: ModelInfo; metadata: Metadata }
  | { kind: "done"; value?: unknown }
  | { kind: "failed"; error: PlainError }
);

/** The most steps that may be sent to the page and not yet consumed. */
const AHEAD = 32;

interface Working {
  stop: AbortController;
  ahead: number;
  wake: () => void;
}

interface Thread {
  onmessage: ((event: { data: Ask }) => void) | null;
  postMessage(answer: Answer, transfer?: Transferable[]): void;
}

/** Starts answering the messages of a thread. */
export function answer(thread: Thread): void {
  let model: LocalModel | undefined;
  const working = new Map<number, Working>();
  const live = (): LocalModel => {
    if (model) return model;
    throw new Error("no model is loaded");
  };
  const work = async (ask: Ask, mine: Working): Promise<Answer> => {
    const { id } = ask;
    const { signal } = mine.stop;
    const value = (result: unknown): Answer => ({ id, kind: "done", value: result });
    switch (ask.kind) {
      case "load": {
        await init({ ...ask.init, signal });
        const onProgress = (progress: Progress): void => thread.postMessage({ id, kind: "progress", progress });
        model = await loadLocal(ask.from, { ...ask.options, signal, onProgress });
        return { id, kind: "loaded", info: model.info, metadata: model.metadata };
      }
      case "run":
        for await (const step of live().run(ask.job, signal)) {
          thread.postMessage({ id, kind: "step", step });
          mine.ahead += 1;
          while (mine.ahead >= AHEAD && !signal.aborted) await new Promise<void>((wake) => (mine.wake = wake));
        }
        return value(undefined);
      case "embed":
        return value(await live().embed(ask.text, signal));
      case "finetune": {
        const onStep = (step: number, loss: number): void => thread.postMessage({ id, kind: "learning", step, loss });
        return value(await live().finetune(ask.texts, { ...ask.options, signal, onStep }));
      }
      case "adapter":
        return value(await live().useAdapter(ask.name));
      case "encode":
        return value(await live().encode(ask.text, ask.special));
      case "decode":
        return value(await live().decode(ask.ids, ask.skipSpecial));
      default:
        return value(undefined);
    }
  };
  thread.onmessage = ({ data: ask }) => {
    const known = working.get(ask.id);
    if (ask.kind === "taken" || ask.kind === "abort") {
      if (!known) return;
      if (ask.kind === "abort") known.stop.abort();
      else known.ahead -= 1;
      return known.wake();
    }
    const mine: Working = { stop: new AbortController(), ahead: 0, wake: () => {} };
    working.set(ask.id, mine);
    const failed = (error: unknown): Answer => ({ id: ask.id, kind: "failed", error: plain(error) });
    void work(ask, mine)
      .catch(failed)
      .then((last) => {
        working.delete(ask.id);
        thread.postMessage(last);
      });
  };
}
