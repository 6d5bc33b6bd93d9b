// The worker's side of `remote.ts`: runs a language model and answers messages.
import { type InitOptions, init } from "../device.js";
import { type LocalModel, loadLocal } from "./local.js";
import { type PlainError, toPlainError } from "../remote/calls.js";
import { acquireForLife } from "../remote/lock.js";
import type { FinetuneOptions, Job, LLMOptions, Lesson, Metadata, ModelInfo, ModelSource, Step } from "./options.js";
import type { Progress } from "../progress.js";

/** Requests of the page. Each has an id, which its answers repeat. */
export type WorkerRequest = { id: number } & (
  /** Loads the model, and holds the lock from then on. */
  | { kind: "load"; from: ModelSource; options: Omit<LLMOptions, "signal" | "onProgress" | "fetch">; init: InitOptions; lock: string }
  | { kind: "run"; job: Job }
  | { kind: "embed"; text: string | readonly number[] }
  | { kind: "adapter"; name: string | null }
  | { kind: "finetune"; texts: readonly Lesson[]; options: Omit<FinetuneOptions, "signal" | "onStep"> }
  | { kind: "encode"; text: string; special: boolean }
  | { kind: "decode"; ids: readonly number[]; skipSpecial: boolean }
  /** The page has consumed a step. */
  | { kind: "consumed" }
  /** Aborts the request of this id. */
  | { kind: "abort" }
);

/** Messages to the page. */
export type WorkerMessage = { id: number } & (
  /** The worker holds its lock. */
  | { kind: "locked" }
  | { kind: "progress"; progress: Progress }
  | { kind: "step"; step: Step }
  | { kind: "trained"; step: number; loss: number }
  | { kind: "loaded"; info: ModelInfo; metadata: Metadata }
  | { kind: "done"; value?: unknown }
  | { kind: "failed"; error: PlainError }
);

/** The most steps that may be sent to the page and not yet consumed. */
const MAX_UNCONSUMED_STEPS = 32;

interface ActiveRequest {
  controller: AbortController;
  unconsumed: number;
  wake: () => void;
}

interface Thread {
  onmessage: ((event: { data: WorkerRequest }) => void) | null;
  postMessage(message: WorkerMessage, transfer?: Transferable[]): void;
}

/** Starts answering the messages of a thread. */
export function serveRequests(thread: Thread): void {
  let model: LocalModel | undefined;
  const activeRequests = new Map<number, ActiveRequest>();
  const requireModel = (): LocalModel => {
    if (model) return model;
    throw new Error("no model is loaded");
  };
  const handle = async (request: WorkerRequest, activeRequest: ActiveRequest): Promise<WorkerMessage> => {
    const { id } = request;
    const { signal } = activeRequest.controller;
    const doneMessage = (result: unknown): WorkerMessage => ({ id, kind: "done", value: result });
    switch (request.kind) {
      case "load": {
        if (await acquireForLife(request.lock)) thread.postMessage({ id, kind: "locked" });
        await init({ ...request.init, signal });
        const onProgress = (progress: Progress): void => thread.postMessage({ id, kind: "progress", progress });
        model = await loadLocal(request.from, { ...request.options, signal, onProgress });
        return { id, kind: "loaded", info: model.info, metadata: model.metadata };
      }
      case "run":
        for await (const step of requireModel().run(request.job, signal)) {
          thread.postMessage({ id, kind: "step", step });
          activeRequest.unconsumed += 1;
          while (activeRequest.unconsumed >= MAX_UNCONSUMED_STEPS && !signal.aborted) await new Promise<void>((wake) => (activeRequest.wake = wake));
        }
        return doneMessage(undefined);
      case "embed":
        return doneMessage(await requireModel().embed(request.text, signal));
      case "finetune": {
        const onStep = (step: number, loss: number): void => thread.postMessage({ id, kind: "trained", step, loss });
        return doneMessage(await requireModel().finetune(request.texts, { ...request.options, signal, onStep }));
      }
      case "adapter":
        return doneMessage(await requireModel().useAdapter(request.name));
      case "encode":
        return doneMessage(await requireModel().encode(request.text, request.special));
      case "decode":
        return doneMessage(await requireModel().decode(request.ids, request.skipSpecial));
      default:
        return doneMessage(undefined);
    }
  };
  thread.onmessage = ({ data: request }) => {
    const existing = activeRequests.get(request.id);
    if (request.kind === "consumed" || request.kind === "abort") {
      if (!existing) return;
      if (request.kind === "abort") existing.controller.abort();
      else existing.unconsumed -= 1;
      return existing.wake();
    }
    const activeRequest: ActiveRequest = { controller: new AbortController(), unconsumed: 0, wake: () => {} };
    activeRequests.set(request.id, activeRequest);
    const failedMessage = (error: unknown): WorkerMessage => ({ id: request.id, kind: "failed", error: toPlainError(error) });
    void handle(request, activeRequest)
      .catch(failedMessage)
      .then((finalMessage) => {
        activeRequests.delete(request.id);
        thread.postMessage(finalMessage);
      });
  };
}
