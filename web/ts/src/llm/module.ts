// The wasm modules of language models, of the forms that their texts can be given, and of encoders. Those of models include tokenizers.
import { loadChunk } from "../chunks.js";
import { lazyWasm } from "../lazy-wasm.js";

export const llmModule = /* @__PURE__ */ lazyWasm("llm", () => loadChunk("llmModule", () => import("../pkg/gradloom_llm.js")));
export type RawModel = InstanceType<Awaited<ReturnType<typeof llmModule>>["RawModel"]>;

/** Grammars of JSON schemas, GBNF and function calls, and what finds these calls in text. */
export const formsModule = /* @__PURE__ */ lazyWasm("forms", () => loadChunk("forms", () => import("../pkg/gradloom_forms.js")));
export type RawSplitter = InstanceType<Awaited<ReturnType<typeof formsModule>>["RawSplitter"]>;

export const encoderModule = /* @__PURE__ */ lazyWasm("encoder", () => loadChunk("encoderModule", () => import("../pkg/gradloom_encoder.js")));
export type RawEncoder = InstanceType<Awaited<ReturnType<typeof encoderModule>>["RawEncoder"]>;
