// A worker with a language model in its own thread. (In a page, `LLM.load` starts a worker itself.)
import type { ChatMessage, LLM } from "gradloom/llm";
import { type Context, serve } from "../../src/demo/serve";
import { answer, open } from "./code.js";

/** The site's own model, relative to the worker. */
const OWN = "models/verses/verses-q8_0.gguf";
const MOST = 160;
let llm: LLM | undefined;

const forget = (): void => {
  llm?.dispose();
  llm = undefined;
};

const handlers = {
  async load({ file }: { file: File | string | null }, { signal, progress, device }: Context) {
    forget();
    const start = performance.now();
    llm = (await open(file ?? new URL(OWN, globalThis.location.href).href, { device, signal, onProgress: progress })) as LLM;
    return { info: llm.info, name: String(llm.metadata["general.name"] ?? "a model"), ms: performance.now() - start };
  },

  async answer({ messages, seed }: { messages: ChatMessage[]; seed: number }, { signal, tell }: Context) {
    if (!llm) throw new Error("no model is loaded");
    const own = llm;
    const onText = (text: string): void => {
      const { tokens, tokensPerSecond } = own.stats;
      tell({ step: tokens, steps: MOST, text, tokensPerSecond });
    };
    try {
      await answer(own, messages, { signal, seed, maxTokens: MOST, temperature: 0.7, topK: 40, topP: 0.95, repetitionPenalty: 1.1, onText });
    } catch (error) {
      // an aborted answer keeps the text so far
      if (!signal.aborted) throw error;
    }
    return { stopped: signal.aborted, stats: own.stats };
  },
};

export type Api = typeof handlers;
serve(handlers, { changed: forget });
