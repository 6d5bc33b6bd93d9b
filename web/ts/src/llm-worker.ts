// The script of a language model's worker: one bundled file beside `core.js`, which pages load too. It loads no other
// script, see `pieces.ts`.
import { answer } from "./llm/thread.js";
import { provide } from "./pieces.js";

provide({
  collect: () => import("./collect.js"),
  downloads: () => import("./downloads.js"),
  gguf: () => import("./gguf.js"),
  sniff: () => import("./sniff.js"),
});
answer(globalThis as unknown as Parameters<typeof answer>[0]);
