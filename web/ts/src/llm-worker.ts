// The script of a language model's worker: one bundled file beside `core.js`, which pages load too. It loads no other
// script, see `chunks.ts`.
import { registerChunks } from "./chunks.js";
import { loadLocal } from "./llm/local.js";
import type { FinetuneOptions, Job, LLMOptions, Lesson } from "./llm/options.js";
import { serveModel } from "./llm/thread.js";
import type { Context } from "./remote/calls.js";

registerChunks({
  collect: () => import("./collect.js"),
  downloads: () => import("./downloads.js"),
  gguf: () => import("./gguf.js"),
  sniff: () => import("./sniff.js"),
});

/** The most steps that may be sent to the page and not yet consumed. */
const MAX_UNCONSUMED_STEPS = 32;

serveModel("LLM", (from, options: LLMOptions) => loadLocal(from, options), (model) => ({
  run: async (job: Job, { signal, call }: Context) => {
    const unconsumed = new Set<Promise<unknown>>();
    for await (const step of model().run(job, signal)) {
      const consumed = call("onStep", step).finally(() => unconsumed.delete(consumed));
      unconsumed.add(consumed);
      if (unconsumed.size >= MAX_UNCONSUMED_STEPS) await Promise.race(unconsumed);
    }
  },
  embed: (text: string | readonly number[], { signal }: Context) => model().embed(text, signal),
  useAdapter: (name: string | null) => model().useAdapter(name),
  finetune: ({ texts, options }: { texts: readonly Lesson[]; options: FinetuneOptions }, { signal, notify }: Context) =>
    model().finetune(texts, { ...options, signal, onStep: (step, loss) => notify("onStep", step, loss) }),
}));
