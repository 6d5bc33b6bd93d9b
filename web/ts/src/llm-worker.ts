// The script of a language model's worker: one bundled file beside `core.js`, which pages load too. It loads no other
// script, see `chunks.ts`.
import { serveRequests } from "./llm/thread.js";
import { registerChunks } from "./chunks.js";

registerChunks({
  collect: () => import("./collect.js"),
  downloads: () => import("./downloads.js"),
  gguf: () => import("./gguf.js"),
  sniff: () => import("./sniff.js"),
});
serveRequests(globalThis as unknown as Parameters<typeof serveRequests>[0]);
