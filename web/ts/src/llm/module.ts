// The wasm module of language models; it includes its own tokenizers.
import { lazyWasm } from "../lazy-wasm.js";

export const llmModule = /* @__PURE__ */ lazyWasm("llm", () => import("../pkg/gradloom_llm.js"));
