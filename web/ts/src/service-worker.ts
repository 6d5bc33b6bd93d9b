// Lets service workers use what the package otherwise loads on first use: browsers forbid them imports once they run. The
// entry `gradloom/service-worker`, which has no exports: `import "gradloom/service-worker"`. It loads all chunks with the
// worker's script; wasm modules are still fetched on first use.
import "./page-chunks.js";
import { registerChunks } from "./chunks.js";
import * as archives from "./archives.js";
import * as collect from "./collect.js";
import * as downloads from "./downloads.js";
import * as external from "./external.js";
import * as files from "./pkg/gradloom_files.js";
import * as gguf from "./gguf.js";
import * as hints from "./hints.js";
import * as loops from "./loops.js";
import * as ops from "./pkg/gradloom_ops.js";
import * as print from "./print.js";
import * as sniff from "./sniff.js";
import * as text from "./pkg/gradloom_text.js";
import * as torch from "./torch.js";
import * as weights from "./weights.js";

registerChunks({
  archives: async () => archives,
  collect: async () => collect,
  downloads: async () => downloads,
  external: async () => external,
  files: async () => files,
  gguf: async () => gguf,
  hints: async () => hints,
  loops: async () => loops,
  ops: async () => ops,
  print: async () => print,
  sniff: async () => sniff,
  text: async () => text,
  torch: async () => torch,
  weights: async () => weights,
});
