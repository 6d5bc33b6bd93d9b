// Runs code that the visitor types. Each version is a module in a Blob that this worker imports. A worker does not
// inherit the page's content security policy, so the page itself need not allow evaluation. The worker has no document,
// no storage of the page, and reaches the page only by messages; the page ends it when it takes too long.
import * as gradloom from "gradloom";
import { type DeviceKind, Tensor, init } from "gradloom";
import type { Item, Order, Report } from "./messages";

type Entry = Record<string, unknown>;

const entries: Record<string, () => Promise<Entry>> = {
  gradloom: async () => gradloom,
  "gradloom/nn": () => import("gradloom/nn"),
  "gradloom/optim": () => import("gradloom/optim"),
  "gradloom/data": () => import("gradloom/data"),
  "gradloom/fit": () => import("gradloom/fit"),
  "gradloom/finetune": () => import("gradloom/finetune"),
  "gradloom/llm": () => import("gradloom/llm"),
  "gradloom/tasks": () => import("gradloom/tasks"),
  "gradloom/vision": () => import("gradloom/vision"),
  "gradloom/audio": () => import("gradloom/audio"),
  "gradloom/cache": () => import("gradloom/cache"),
};

/** The most elements of a tensor that are shown. */
const SHOWN = 1 << 20;
const IMPORT = /((?:\bfrom|\bimport)\s*\(?\s*)(["'])(gradloom(?:\/\w+)?)\2/g;

const scope = globalThis as unknown as {
  onmessage: ((event: { data: Order }) => void) | null;
  postMessage: (message: Report) => void;
  given: Record<string, Entry>;
};
scope.given = {};

const modules = new Map<string, Promise<string>>();

const blob = (code: string): string => URL.createObjectURL(new Blob([code], { type: "text/javascript" }));

/** The address of a module that exports the same objects as an entry of the package. */
function addressOf(name: string): Promise<string> {
  let found = modules.get(name);
  if (!found) {
    const make = async (): Promise<string> => {
      const load = entries[name];
      if (!load) throw new Error(`there is no ${name}; there are ${Object.keys(entries).join(", ")}`);
      const entry = await load();
      scope.given[name] = entry;
      return blob(`export const { ${Object.keys(entry).filter((each) => each !== "default").join(", ")} } = globalThis.given[${JSON.stringify(name)}];`);
    };
    modules.set(name, (found = make()));
  }
  return found;
}

let current = 0;
let pending: Promise<void>[] = [];

const tell = (item: Item): void => scope.postMessage({ id: current, item });

async function tensorItem(t: Tensor, title: string): Promise<Item> {
  if (t.size > SHOWN) return { kind: "text", level: "log", text: `${title} ${String(t)}: too large to show` };
  return { kind: "tensor", title, shape: [...t.shape], dtype: t.dtype, values: Float32Array.from((await t.data<"f32">()) as ArrayLike<number>) };
}

/** Draws a tensor, a picture or numbers in the page. */
async function show(value: unknown, title = ""): Promise<void> {
  const id = current;
  const work = async (): Promise<void> => {
    let item: Item;
    if (value instanceof Tensor) item = await tensorItem(value, title);
    else if (value instanceof ImageData) item = { kind: "image", title, image: value };
    else if (value instanceof OffscreenCanvas) {
      const pen = value.getContext("2d") as OffscreenCanvasRenderingContext2D;
      item = { kind: "image", title, image: pen.getImageData(0, 0, value.width, value.height) };
    } else if (ArrayBuffer.isView(value) || (Array.isArray(value) && value.every((v) => typeof v === "number"))) {
      const values = Float32Array.from(value as ArrayLike<number>);
      item = { kind: "tensor", title, shape: [values.length], dtype: "f32", values };
    } else item = { kind: "text", level: "log", text: `${title ? `${title}: ` : ""}${words(value)}` };
    if (id === current) tell(item);
  };
  const done = work();
  pending.push(done);
  return done;
}

/** Adds a point to a curve in the page. */
const plot = (name: string, value: number): void => tell({ kind: "point", name, value });

/** Formats a value as the console would. */
function words(value: unknown): string {
  if (typeof value === "string") return value;
  if (value instanceof Error) return `${value.name}: ${value.message}`;
  if (value instanceof Tensor) return String(value);
  if (ArrayBuffer.isView(value) && "length" in value) {
    const list = value as unknown as ArrayLike<number>;
    const first = Array.from({ length: Math.min(12, list.length) }, (_, at) => short(list[at]));
    return `${value.constructor.name}(${list.length}) [${first.join(", ")}${list.length > 12 ? ", ..." : ""}]`;
  }
  try {
    return JSON.stringify(value, (_, v: unknown) => (typeof v === "number" ? short(v) : typeof v === "bigint" ? String(v) : v)) ?? String(value);
  } catch {
    return String(value);
  }
}

const short = (v: unknown): unknown => (typeof v === "number" ? Number(v.toPrecision(6)) : v);

for (const level of ["log", "info", "warn", "error"] as const) {
  console[level] = (...values: unknown[]) => tell({ kind: "text", level, text: values.map(words).join(" ") });
}
Object.assign(globalThis, { show, plot });

async function run({ code, device, level, file }: Order): Promise<void> {
  const id = current;
  const log = (text: string): void => {
    if (id === current) scope.postMessage({ id, log: text });
  };
  const own = await init({ device: device as DeviceKind | "auto", debug: level, log });
  Object.assign(globalThis, { file, device: own });
  Tensor.manualSeed(1);
  const names = [...new Set([...code.matchAll(IMPORT)].map((found) => found[3] as string))];
  const addresses = new Map(await Promise.all(names.map(async (name) => [name, await addressOf(name)] as const)));
  const text = code.replace(IMPORT, (_, before: string, quote: string, name: string) => `${before}${quote}${addresses.get(name)}${quote}`);
  const address = blob(text);
  scope.postMessage({ id, started: { device: own.kind, threads: own.threads } });
  const start = performance.now();
  try {
    await import(/* @vite-ignore */ address);
    while (pending.length > 0) await Promise.all(pending.splice(0));
    scope.postMessage({ id, done: performance.now() - start });
  } finally {
    URL.revokeObjectURL(address);
  }
}

const failed = (error: unknown): void => {
  const { name, message, hint, code } = error as { name?: string; message?: string; hint?: string; code?: string };
  scope.postMessage({ id: current, error: { name: name ?? "Error", message: message ?? String(error), hint, code } });
};

let line: Promise<void> = Promise.resolve();
scope.onmessage = ({ data }) => {
  line = line.then(async () => {
    current = data.id;
    pending = [];
    await run(data).catch(failed);
  });
};
globalThis.addEventListener("unhandledrejection", (event) => {
  event.preventDefault();
  failed((event as PromiseRejectionEvent).reason);
});
scope.postMessage({ id: 0, ready: true });
