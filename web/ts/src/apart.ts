// How the pieces of `pieces.ts` come in pages and in Node: each from a file of its own. Every entry of the package imports this.
import { provide } from "./pieces.js";

provide({
  archives: () => import("./archives.js"),
  collect: () => import("./collect.js"),
  downloads: () => import("./downloads.js"),
  external: () => import("./external.js"),
  files: () => import("./pkg/gradloom_files.js"),
  gguf: () => import("./gguf.js"),
  hints: () => import("./hints.js"),
  print: () => import("./print.js"),
  remote: () => import("./remote.js"),
  sniff: () => import("./sniff.js"),
  text: () => import("./pkg/gradloom_text.js"),
  weights: () => import("./weights.js"),
});
