// The wasm module of language models; it includes its own tokenizers.
import { once } from "../extras.js";

export const llmModule = /* @__PURE__ */ once("llm", () => import("../pkg/gradloom_llm.js"));
