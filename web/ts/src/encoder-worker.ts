// The script of an encoder's worker: one bundled file beside `core.js`, which pages load too. It loads no other script,
// see `chunks.ts`.
import { registerChunks } from "./chunks.js";
import { type InitOptions, init } from "./device.js";
import type { EncoderBackend, EncoderOptions, EncoderText } from "./encoder.js";
import { loadLocalEncoder } from "./llm/local-encoder.js";
import type { ModelSource } from "./llm/options.js";
import { type Context, type Thread, serveCalls } from "./remote/calls.js";

registerChunks({
  collect: () => import("./collect.js"),
  downloads: () => import("./downloads.js"),
  gguf: () => import("./gguf.js"),
  sniff: () => import("./sniff.js"),
});

interface LoadArgs {
  from: ModelSource;
  options: EncoderOptions;
  init: InitOptions;
}

/** The model; the page calls nothing else before it is loaded. */
let model: EncoderBackend;

serveCalls(globalThis as unknown as Thread, {
  load: async ({ from, options, init: device }: LoadArgs, { signal, notify }: Context) => {
    await init({ ...device, signal });
    model = await loadLocalEncoder(from, { ...options, signal, onProgress: (progress) => notify("onProgress", progress) });
    return { info: model.info, metadata: model.metadata };
  },
  vectors: (texts: readonly EncoderText[], { signal }: Context) => model.vectors(texts, signal),
  scores: ({ query, documents }: { query: string; documents: string[] }, { signal }: Context) => model.scores(query, documents, signal),
  encode: ({ text, special }: { text: string; special: boolean }) => model.encode(text, special),
  decode: ({ ids, skipSpecial }: { ids: number[]; skipSpecial: boolean }) => model.decode(ids, skipSpecial),
});
