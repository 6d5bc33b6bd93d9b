// Wasm modules that few pages need: each is fetched when it is first used, once.
import { FetchError } from "./errors.js";
import { inNode, readFile, wasmFolder } from "./module.js";

type Load = (input: { module_or_path: string | URL | Uint8Array<ArrayBuffer> } | undefined) => Promise<unknown>;

/** Starts a module; all but the first call just wait. After a failure the next call tries again. */
function once<T extends { default: unknown }>(name: string, glue: () => Promise<T>): () => Promise<T> {
  let ready: Promise<T> | undefined;
  const start = async (): Promise<T> => {
    try {
      const module = await glue();
      const file = `gradloom_${name}_bg.wasm`;
      const elsewhere = wasmFolder();
      const load = module.default as Load;
      if (elsewhere !== undefined) await load({ module_or_path: new URL(file, elsewhere) });
      else if (inNode) await load({ module_or_path: await readFile(new URL(`./pkg/${file}`, import.meta.url)) });
      else await load(undefined);
      return module;
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      const hint = `serve gradloom_${name}_bg.wasm beside gradloom_web_bg.wasm`;
      throw new FetchError("E_FETCH", `the wasm module for ${name} did not load: ${why}`, { cause: error, hint });
    }
  };
  return () =>
    (ready ??= start().catch((error: unknown) => {
      ready = undefined;
      throw error;
    }));
}

/** Tokenizers. */
export const textModule = once("text", () => import("./pkg/gradloom_text.js"));

/** Chat templates. */
export const chatModule = once("chat", () => import("./pkg/gradloom_chat.js"));

/** Files of torch.save, npz and TensorFlow Lite; writing of npz and GGUF. */
export const filesModule = once("files", () => import("./pkg/gradloom_files.js"));

/** Operators by torch's names. */
export const opsModule = once("ops", () => import("./pkg/gradloom_ops.js"));
