// The wasm module of language models, with tokenizers of their own.
import { once } from "../extras.js";

export const llmModule = /* @__PURE__ */ once("llm", () => import("../pkg/gradloom_llm.js"));
