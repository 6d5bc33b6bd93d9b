// The script of an encoder's worker: one bundled file beside `core.js`, which pages load too. It loads no other script,
// see `chunks.ts`.
import { registerChunks } from "./chunks.js";
import type { EncoderOptions, EncoderText } from "./encoder.js";
import { loadLocalEncoder } from "./llm/local-encoder.js";
import { serveModel } from "./llm/thread.js";
import type { Context } from "./remote/calls.js";

registerChunks({
  collect: () => import("./collect.js"),
  downloads: () => import("./downloads.js"),
  gguf: () => import("./gguf.js"),
  sniff: () => import("./sniff.js"),
});

serveModel("Encoder", (from, options: EncoderOptions) => loadLocalEncoder(from, options), (model) => ({
  vectors: (texts: readonly EncoderText[], { signal }: Context) => model().vectors(texts, signal),
  scores: ({ query, documents }: { query: string; documents: string[] }, { signal }: Context) => model().scores(query, documents, signal),
}));
