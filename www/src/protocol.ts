// What the page asks its worker, what comes back, and the page's side of it.
import type { DeviceKind, DeviceReport } from "gradloom";
import type { FileKind } from "gradloom/tasks";

/** A tensor on its way between page and worker. */
export interface Output {
  data: Float32Array;
  shape: number[];
}

/** Milliseconds: compiling, the whole first run, the median of the later ones. */
export interface Timing {
  compile: number;
  first: number;
  p50: number;
  runs: number;
}

export interface UsedDevice {
  kind: DeviceKind;
  threads: number;
  software: boolean;
}

export type Ask =
  | { kind: "devices" }
  | { kind: "use"; device: DeviceKind | "auto" }
  | { kind: "run"; model: string; inputs: Record<string, { data: Float32Array | Int32Array; shape: number[] }> }
  | { kind: "speech"; samples: Float32Array; forget: boolean }
  | { kind: "fileType"; file: Blob }
  | { kind: "picture"; task: "removeBackground" | "upscale"; source: ImageBitmap }
  | { kind: "train" }
  | { kind: "digit"; pixels: Float32Array };

export type Answer =
  | { kind: "devices"; list: DeviceReport[] }
  | { kind: "used"; device: UsedDevice }
  | { kind: "ran"; outputs: Record<string, Output>; timing: Timing }
  | { kind: "speech"; probabilities: number[]; timing: Timing }
  | { kind: "fileType"; found: FileKind | undefined; timing: Timing }
  | { kind: "picture"; picture: ImageData; timing: Timing }
  | { kind: "trained"; accuracy: number; steps: number; seconds: number; timing: Timing }
  | { kind: "digit"; probabilities: Float32Array }
  | { kind: "loss"; step: number; steps: number; loss: number }
  | { kind: "progress"; phase: string; loaded: number; total: number };

type Result<K extends Answer["kind"]> = Extract<Answer, { kind: K }>;

interface ResultOf {
  devices: Result<"devices">;
  use: Result<"used">;
  run: Result<"ran">;
  speech: Result<"speech">;
  fileType: Result<"fileType">;
  picture: Result<"picture">;
  train: Result<"trained">;
  digit: Result<"digit">;
}

interface Waiting {
  done: (answer: Answer) => void;
  fail: (error: Error) => void;
  event: (answer: Answer) => void;
}

const waiting = new Map<number, Waiting>();
let count = 0;
const worker = new Worker(new URL("./engine.ts", import.meta.url), { type: "module" });
const ready = new Promise<void>((done, fail) => {
  worker.onmessage = ({ data }) => {
    if (data.ready) return done();
    const entry = waiting.get(data.id);
    if (!entry) return;
    if (data.event) return entry.event(data.event);
    waiting.delete(data.id);
    if (data.error) entry.fail(Object.assign(new Error(data.error.message), data.error));
    else entry.done(data.result);
  };
  worker.onerror = ({ message }) => {
    const error = new Error(message || "the page's worker did not start");
    fail(error);
    for (const entry of waiting.values()) entry.fail(error);
    waiting.clear();
  };
});

/** Asks the worker. `onEvent` is told what happens on the way; the signal asks it to stop. */
export async function ask<K extends Ask["kind"]>(
  what: Extract<Ask, { kind: K }>,
  { onEvent = () => {}, signal }: { onEvent?: (answer: Answer) => void; signal?: AbortSignal } = {},
): Promise<ResultOf[K]> {
  await ready;
  const id = (count += 1);
  return new Promise((done, fail) => {
    waiting.set(id, { done: done as (answer: Answer) => void, fail, event: onEvent });
    worker.postMessage({ id, ask: what });
    signal?.addEventListener("abort", () => worker.postMessage({ stop: id }), { once: true });
  });
}
