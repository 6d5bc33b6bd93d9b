// The script of the worker that runs a page's models and tasks: one bundled file beside `core.js`, which pages load
// too. It loads no other script, see `pieces.ts`.
import { provide } from "./pieces.js";
import { type Thread, answer } from "./remote/calls.js";
import { readElsewhere, taskAnswers } from "./remote/tasks.js";
import { answers } from "./remote/thread.js";

provide({
  collect: () => import("./collect.js"),
  downloads: () => import("./downloads.js"),
  external: () => import("./external.js"),
  files: () => import("./pkg/gradloom_files.js"),
  gguf: () => import("./gguf.js"),
  sniff: () => import("./sniff.js"),
  text: () => import("./pkg/gradloom_text.js"),
  weights: () => import("./weights.js"),
});
readElsewhere(answer(globalThis as unknown as Thread, { ...answers, ...taskAnswers }));
