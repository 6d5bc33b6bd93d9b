// Parts of the wasm module that are loaded on demand (made by xtask/src/split.rs; xtask/src/wasm.rs assigns exports to
// parts). A part is fetched once for all instances, before the first call of one of its exports, and shares the memory
// of each instance that it is added to.
import { FetchError, GradloomError } from "./errors.js";
import { type Engine, inNode, mayHaveAllParts, packageFile, readFile, wasmFolder } from "./module.js";

/** The parts and their files in the package. Bundlers recognise only this literal form of the addresses. */
const ADDRESSES = {
  onnx: () => new URL("./pkg/gradloom_onnx_bg.wasm", import.meta.url),
  rare: () => new URL("./pkg/gradloom_rare_bg.wasm", import.meta.url),
  lengths: () => new URL("./pkg/gradloom_lengths_bg.wasm", import.meta.url),
  learn: () => new URL("./pkg/gradloom_learn_bg.wasm", import.meta.url),
  weights: () => new URL("./pkg/gradloom_weights_bg.wasm", import.meta.url),
  graphs: () => new URL("./pkg/gradloom_graphs_bg.wasm", import.meta.url),
  attention: () => new URL("./pkg/gradloom_attention_bg.wasm", import.meta.url),
  loops: () => new URL("./pkg/gradloom_loops_bg.wasm", import.meta.url),
  tune: () => new URL("./pkg/gradloom_tune_bg.wasm", import.meta.url),
  wasm: () => new URL("./pkg/gradloom_wasm_bg.wasm", import.meta.url),
  webgpu: () => new URL("./pkg/gradloom_webgpu_bg.wasm", import.meta.url),
  share: () => new URL("./pkg/gradloom_share_bg.wasm", import.meta.url),
};

export type Part = keyof typeof ADDRESSES;

/** The part that must be loaded before another one, which calls its functions. */
const REQUIRED_PART: Partial<Record<Part, Part>> = { rare: "onnx", lengths: "onnx", learn: "onnx", share: "webgpu" };

/**
 * Parts that every device loads at its start, because some synchronous API has been requested that cannot load them
 * later.
 */
export const startupParts = new Set<Part>();

const compiled = new Map<Part, Promise<WebAssembly.Module>>();
/** Parts whose fetch failed in a prefetch, where no caller saw the error. */
const failedPrefetches = new Set<Part>();
const loaded = new WeakMap<Engine, Map<Part, Promise<void>>>();

function compilePart(part: Part): Promise<WebAssembly.Module> {
  let module = compiled.get(part);
  if (!module) {
    compiled.set(part, (module = fetchPart(part)));
    module.catch(() => failedPrefetches.add(part));
  }
  return module;
}

/** Forgets a part, so that the next call fetches it again. */
function forget(part: Part): void {
  compiled.delete(part);
  failedPrefetches.delete(part);
}

async function fetchPart(part: Part): Promise<WebAssembly.Module> {
  const file = `gradloom_${part}_bg.wasm`;
  const customFolder = wasmFolder();
  if (!customFolder && inNode) return WebAssembly.compile(await readFile(packageFile(`./pkg/${file}`)));
  const response = await fetch(customFolder ? new URL(file, customFolder) : ADDRESSES[part]());
  if (!response.ok) throw new Error(`${response.status} ${response.statusText}`);
  const streams = response.headers.get("Content-Type") === "application/wasm";
  return streams ? WebAssembly.compileStreaming(response) : WebAssembly.compile(await response.arrayBuffer());
}

/** Begins to fetch a part that will be needed soon. */
export function prefetch(part: Part): void {
  if (mayHaveAllParts()) return;
  if (failedPrefetches.has(part)) forget(part);
  compilePart(part).catch(() => {});
}

/**
 * For models and operators that may be attention: lets GPUs compute it in one kernel. Elsewhere, and where a processor emulates the GPU, it
 * would not be chosen.
 */
export async function fuseAttention({ engine, kind, software }: { engine: Engine; kind: string; software: boolean }): Promise<void> {
  if (kind !== "webgpu" || software) return;
  await loadPart(engine, "attention");
  engine.api.fuseAttention();
}

/** Adds a part to an instance unless it has it; afterwards the part's exports can be called. */
export async function loadPart(engine: Engine, part: Part): Promise<void> {
  if (engine.ended) throw engine.ended;
  let parts = loaded.get(engine);
  if (!parts) loaded.set(engine, (parts = new Map()));
  let loading = parts.get(part);
  if (!loading) {
    const engineParts = parts;
    parts.set(part, (loading = addPart(engine, part)));
    loading.catch(() => engineParts.delete(part));
  }
  await loading;
  if (engine.ended) throw engine.ended;
}

async function addPart(engine: Engine, part: Part): Promise<void> {
  if (engine.api.isWhole()) return;
  const required = REQUIRED_PART[part];
  if (required) await loadPart(engine, required);
  try {
    await engine.api.part(await compilePart(part));
  } catch (error) {
    forget(part);
    if (error instanceof GradloomError) throw error;
    const why = error instanceof Error ? error.message : String(error);
    const hint = `serve gradloom_${part}_bg.wasm beside gradloom_web_bg.wasm, both of one version`;
    throw new FetchError("E_FETCH", `a part of the wasm module did not load: ${part}: ${why}`, { cause: error, hint });
  }
}
