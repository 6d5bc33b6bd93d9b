// Wasm modules that few pages need; each is fetched once, on first use.
import { FetchError, UnsupportedError } from "./errors.js";
import { type Bindings, type Environment, Instance } from "./instance.js";
import { inNode, packageFile, readFile, wasmFolder } from "./module.js";
import { loadChunk } from "./chunks.js";

/**
 * Loads a module on the first call; later calls wait for the same load. After a failure, or after the instance ended,
 * the next call loads it again.
 */
export function lazyWasm<T extends Bindings>(name: string, glue: () => Promise<{ default: (environment: Environment) => T }>): () => Promise<T> {
  let ready: Promise<T> | undefined;
  const forget = (): void => void (ready = undefined);
  const start = async (): Promise<T> => {
    try {
      const { default: make } = await glue();
      const instance = new Instance(make);
      const { api } = instance;
      const file = `gradloom_${name}_bg.wasm`;
      const customFolder = wasmFolder();
      if (customFolder !== undefined) await api.load({ module_or_path: new URL(file, customFolder) });
      else if (inNode) await api.load({ module_or_path: await readFile(packageFile(`./pkg/${file}`)) });
      else await api.load();
      instance.atEnd(forget);
      return api;
    } catch (error) {
      if (error instanceof UnsupportedError) throw error;
      const why = error instanceof Error ? error.message : String(error);
      const hint = `serve gradloom_${name}_bg.wasm beside gradloom_web_bg.wasm`;
      throw new FetchError("E_FETCH", `the wasm module for ${name} did not load: ${why}`, { cause: error, hint });
    }
  };
  return () =>
    (ready ??= start().catch((error: unknown) => {
      forget();
      throw error;
    }));
}

/** The module of tokenizers. */
export const textModule = /* @__PURE__ */ lazyWasm("text", () => loadChunk("text"));

/** The module that reads GGUF, torch.save, npz and TensorFlow Lite files and writes npz. */
export const filesModule = /* @__PURE__ */ lazyWasm("files", () => loadChunk("files"));
