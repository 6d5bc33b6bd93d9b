// The worker of this demo: runs one model after another in both runtimes, on the same device and with the same number
// of threads.
import { type Context, serve, turn } from "../../src/demo/serve";
import { gradloom, onnxruntime } from "./code.js";
import { type Subject, SUBJECTS, inputsOf } from "./subjects";

/** The times of one model in milliseconds. */
export interface Row {
  slug: string;
  title: string;
  ours: { first: number; again: number };
  theirs: { first: number; again: number };
  /** The largest difference of the results, relative to the largest value. */
  apart: number;
}

/** The models that are not compared on this device, by reason. */
export interface Left {
  wrong: string[];
  slow: string[];
}

type Ort = { env: { wasm: { numThreads: number; wasmPaths: string } }; Tensor: unknown; InferenceSession: unknown };
let ort: Promise<Ort> | undefined;

/** Loads onnxruntime-web from this site on first use. */
async function runtime({ device }: Context): Promise<Ort> {
  const folder = new URL("peers/onnxruntime-web/", location.href).href;
  const file = device.kind === "webgpu" ? "ort.webgpu.bundle.min.mjs" : "ort.wasm.bundle.min.mjs";
  const module = (await import(/* @vite-ignore */ `${folder}${file}`)) as Ort;
  module.env.wasm.numThreads = device.threads;
  module.env.wasm.wasmPaths = folder;
  return module;
}

async function compare(subject: Subject, context: Context): Promise<Row> {
  const { device, signal } = context;
  const response = await fetch(new URL(subject.file, location.href), { signal });
  if (!response.ok) throw new Error(`${subject.file} could not be fetched: status ${response.status}`);
  const bytes = new Uint8Array(await response.arrayBuffer());
  const inputs = inputsOf(subject);
  const theirs = await onnxruntime(await (ort as Promise<Ort>), bytes, inputs, subject.output, { device });
  signal.throwIfAborted();
  const ours = await gradloom(bytes, inputs, subject.output, { device, signal });
  // twice each, alternating, since devices warm up and their load varies
  const [a, b, c, d] = [await theirs.again(), await ours.again(), await theirs.again(), await ours.again()];
  const most = theirs.values.reduce((m: number, v: number) => Math.max(m, Math.abs(v)), 1e-9);
  const apart = theirs.values.reduce((m: number, v: number, i: number) => Math.max(m, Math.abs(v - (ours.values[i] as number))), 0) / most;
  await theirs.model.release();
  ours.model.dispose();
  return {
    slug: subject.slug, title: subject.title, apart,
    ours: { first: ours.first, again: Math.min(b, d) },
    theirs: { first: theirs.first, again: Math.min(a, c) },
  };
}

const handlers = {
  async compare({ only }: { only: string[] | null }, context: Context): Promise<Row[]> {
    ort ??= runtime(context);
    ort.catch(() => (ort = undefined));
    await ort;
    const asked = SUBJECTS.filter(({ slug }) => !only || only.includes(slug));
    const list = asked.filter(({ leftOut }) => !leftOut || !context.device.software);
    const without = (why: string): string[] => asked.filter((each) => !list.includes(each) && each.leftOut === why).map(({ title }) => title);
    context.tell({ step: 0, steps: list.length, left: { wrong: without("wrong"), slow: without("slow") } satisfies Left });
    const rows: Row[] = [];
    for (const subject of list) {
      const row = await compare(subject, context);
      rows.push(row);
      context.tell({ step: rows.length, steps: list.length, row });
      await turn();
      context.signal.throwIfAborted();
    }
    return rows;
  },
};

export type Api = typeof handlers;
serve(handlers, { changed: () => void (ort = undefined) });
