// Registers how pages and Node load the chunks of `chunks.ts`: each by a dynamic import of its own file. Every
// entry of the package imports this module.
import { registerChunks } from "./chunks.js";

registerChunks({
  archives: () => import("./archives.js"),
  collect: () => import("./collect.js"),
  downloads: () => import("./downloads.js"),
  external: () => import("./external.js"),
  files: () => import("./pkg/gradloom_files.js"),
  gguf: () => import("./gguf.js"),
  hints: () => import("./hints.js"),
  loops: () => import("./loops.js"),
  ops: () => import("./pkg/gradloom_ops.js"),
  print: () => import("./print.js"),
  remote: () => import("./remote.js"),
  sniff: () => import("./sniff.js"),
  streams: () => import("./vision/streams.js"),
  text: () => import("./pkg/gradloom_text.js"),
  torch: () => import("./torch.js"),
  weights: () => import("./weights.js"),
});
