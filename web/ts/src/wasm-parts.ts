// Parts of the wasm module that are loaded on demand (made by xtask/src/split.rs; xtask/src/wasm.rs assigns exports to
// parts). A part is fetched once for all instances, before the first call of one of its exports, and shares the memory
// of each instance that it joins.
import { FetchError, GradloomError } from "./errors.js";
import { type Engine, besideThis, inNode, mayBeWhole, readFile, wasmFolder } from "./module.js";

/** The parts and their files in the package. Bundlers recognise only this literal form of the addresses. */
const ADDRESSES = {
  onnx: () => new URL("./pkg/gradloom_onnx_bg.wasm", import.meta.url),
  rare: () => new URL("./pkg/gradloom_rare_bg.wasm", import.meta.url),
  lengths: () => new URL("./pkg/gradloom_lengths_bg.wasm", import.meta.url),
  learn: () => new URL("./pkg/gradloom_learn_bg.wasm", import.meta.url),
  weights: () => new URL("./pkg/gradloom_weights_bg.wasm", import.meta.url),
  graphs: () => new URL("./pkg/gradloom_graphs_bg.wasm", import.meta.url),
  loops: () => new URL("./pkg/gradloom_loops_bg.wasm", import.meta.url),
  tune: () => new URL("./pkg/gradloom_tune_bg.wasm", import.meta.url),
  wasm: () => new URL("./pkg/gradloom_wasm_bg.wasm", import.meta.url),
  webgpu: () => new URL("./pkg/gradloom_webgpu_bg.wasm", import.meta.url),
  share: () => new URL("./pkg/gradloom_share_bg.wasm", import.meta.url),
};

export type Part = keyof typeof ADDRESSES;

/** The part that must join before another one, which calls its functions. */
const BEFORE: Partial<Record<Part, Part>> = { rare: "onnx", lengths: "onnx", learn: "onnx", share: "webgpu" };

/**
 * Parts that every device loads at its start, because some synchronous API has been requested that cannot load them
 * later.
 */
export const always = new Set<Part>();

const compiled = new Map<Part, Promise<WebAssembly.Module>>();
/** Parts whose fetch failed in a prefetch, where no caller saw the error. */
const failed = new Set<Part>();
const joined = new WeakMap<Engine, Map<Part, Promise<void>>>();

function compile(part: Part): Promise<WebAssembly.Module> {
  let module = compiled.get(part);
  if (!module) {
    compiled.set(part, (module = fetched(part)));
    module.catch(() => failed.add(part));
  }
  return module;
}

/** Forgets a part, so that the next call fetches it again. */
function forget(part: Part): void {
  compiled.delete(part);
  failed.delete(part);
}

async function fetched(part: Part): Promise<WebAssembly.Module> {
  const file = `gradloom_${part}_bg.wasm`;
  const elsewhere = wasmFolder();
  if (!elsewhere && inNode) return WebAssembly.compile(await readFile(besideThis(`./pkg/${file}`)));
  const response = await fetch(elsewhere ? new URL(file, elsewhere) : ADDRESSES[part]());
  if (!response.ok) throw new Error(`${response.status} ${response.statusText}`);
  const streams = response.headers.get("Content-Type") === "application/wasm";
  return streams ? WebAssembly.compileStreaming(response) : WebAssembly.compile(await response.arrayBuffer());
}

/** Begins to fetch a part that will be needed soon. */
export function prefetch(part: Part): void {
  if (mayBeWhole()) return;
  if (failed.has(part)) forget(part);
  compile(part).catch(() => {});
}

/** Adds a part to an instance unless it has it; afterwards the part's exports can be called. */
export async function join(engine: Engine, part: Part): Promise<void> {
  if (engine.ended) throw engine.ended;
  let parts = joined.get(engine);
  if (!parts) joined.set(engine, (parts = new Map()));
  let joining = parts.get(part);
  if (!joining) {
    const mine = parts;
    parts.set(part, (joining = add(engine, part)));
    joining.catch(() => mine.delete(part));
  }
  await joining;
  if (engine.ended) throw engine.ended;
}

async function add(engine: Engine, part: Part): Promise<void> {
  if (engine.api.isWhole()) return;
  const before = BEFORE[part];
  if (before) await join(engine, before);
  try {
    await engine.api.part(await compile(part));
  } catch (error) {
    forget(part);
    if (error instanceof GradloomError) throw error;
    const why = error instanceof Error ? error.message : String(error);
    const hint = `serve gradloom_${part}_bg.wasm beside gradloom_web_bg.wasm, both of one version`;
    throw new FetchError("E_FETCH", `a part of the wasm module did not load: ${part}: ${why}`, { cause: error, hint });
  }
}
