// The script of the worker that runs a page's models and tasks: one bundled file beside `core.js`, which pages load
// too. It loads no other script, see `chunks.ts`.
import { registerChunks } from "./chunks.js";
import { type Thread, serveCalls } from "./remote/calls.js";
import { decodeOnPage, taskHandlers } from "./remote/worker-tasks.js";
import { modelHandlers } from "./remote/worker-models.js";

registerChunks({
  collect: () => import("./collect.js"),
  downloads: () => import("./downloads.js"),
  external: () => import("./external.js"),
  files: () => import("./pkg/gradloom_files.js"),
  gguf: () => import("./gguf.js"),
  sniff: () => import("./sniff.js"),
  text: () => import("./pkg/gradloom_text.js"),
  weights: () => import("./weights.js"),
});
decodeOnPage(serveCalls(globalThis as unknown as Thread, { ...modelHandlers, ...taskHandlers }));
