// The wasm modules of language models and of encoders; each includes its own tokenizers.
import { loadChunk } from "../chunks.js";
import { lazyWasm } from "../lazy-wasm.js";

export const llmModule = /* @__PURE__ */ lazyWasm("llm", () => loadChunk("llmModule", () => import("../pkg/gradloom_llm.js")));
export type RawModel = InstanceType<Awaited<ReturnType<typeof llmModule>>["RawModel"]>;

export const encoderModule = /* @__PURE__ */ lazyWasm("encoder", () => loadChunk("encoderModule", () => import("../pkg/gradloom_encoder.js")));
export type RawEncoder = InstanceType<Awaited<ReturnType<typeof encoderModule>>["RawEncoder"]>;
