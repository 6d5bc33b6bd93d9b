// Wasm modules that few pages need: each is fetched when it is first used, once.
import { FetchError } from "./errors.js";
import { type Bindings, type Environment, Instance } from "./instance.js";
import { besideThis, inNode, readFile, wasmFolder } from "./module.js";
import { piece } from "./pieces.js";

/** Starts a module; all but the first call just wait, until it fails or ends: the next one starts another then. */
export function once<T extends Bindings>(name: string, glue: () => Promise<{ default: (environment: Environment) => T }>): () => Promise<T> {
  let ready: Promise<T> | undefined;
  const forget = (): void => void (ready = undefined);
  const start = async (): Promise<T> => {
    try {
      const { default: make } = await glue();
      const instance = new Instance(make);
      const { api } = instance;
      const file = `gradloom_${name}_bg.wasm`;
      const elsewhere = wasmFolder();
      if (elsewhere !== undefined) await api.load({ module_or_path: new URL(file, elsewhere) });
      else if (inNode) await api.load({ module_or_path: await readFile(besideThis(`./pkg/${file}`)) });
      else await api.load();
      instance.atEnd(forget);
      return api;
    } catch (error) {
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

/** Tokenizers. */
export const textModule = /* @__PURE__ */ once("text", () => piece("text"));

/** Files of GGUF, torch.save, npz and TensorFlow Lite; writing of npz. */
export const filesModule = /* @__PURE__ */ once("files", () => piece("files"));
