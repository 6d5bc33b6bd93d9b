// Lets service workers use what the package otherwise loads on first use: browsers forbid them imports once they run. The
// entry `gradloom/service-worker`, which has no exports: `import "gradloom/service-worker"`. It loads all chunks with the
// worker's script; wasm modules are still fetched on first use.
import "./page-chunks.js";
import { registerChunks } from "./chunks.js";
import * as advice from "./tasks/advice.js";
import * as archives from "./archives.js";
import * as chat from "./pkg/gradloom_chat.js";
import * as chats from "./tasks/chats.js";
import * as collect from "./collect.js";
import * as downloads from "./downloads.js";
import * as encoder from "./llm/local-encoder.js";
import * as encoderModule from "./pkg/gradloom_encoder.js";
import * as external from "./external.js";
import * as files from "./pkg/gradloom_files.js";
import * as folder from "./tasks/folder.js";
import * as forms from "./pkg/gradloom_forms.js";
import * as gguf from "./gguf.js";
import * as ggufFile from "./llm/gguf-file.js";
import * as gpu from "./vision/gpu.js";
import * as hints from "./hints.js";
import * as languageModel from "./llm/local.js";
import * as llm from "./llm.js";
import * as llmModule from "./pkg/gradloom_llm.js";
import * as loops from "./loops.js";
import * as ops from "./pkg/gradloom_ops.js";
import * as print from "./print.js";
import * as reload from "./llm/reload.js";
import * as sniff from "./sniff.js";
import * as tasks from "./tasks/implementations.js";
import * as text from "./pkg/gradloom_text.js";
import * as torch from "./torch.js";
import * as vision from "./vision.js";
import * as weights from "./weights.js";

registerChunks({
  advice: async () => advice,
  archives: async () => archives,
  chat: async () => chat,
  chats: async () => chats,
  collect: async () => collect,
  downloads: async () => downloads,
  encoder: async () => encoder,
  encoderModule: async () => encoderModule,
  external: async () => external,
  files: async () => files,
  folder: async () => folder,
  forms: async () => forms,
  gguf: async () => gguf,
  ggufFile: async () => ggufFile,
  gpu: async () => gpu,
  hints: async () => hints,
  languageModel: async () => languageModel,
  llm: async () => llm,
  llmModule: async () => llmModule,
  loops: async () => loops,
  ops: async () => ops,
  print: async () => print,
  reload: async () => reload,
  sniff: async () => sniff,
  tasks: async () => tasks,
  text: async () => text,
  torch: async () => torch,
  vision: async () => vision,
  weights: async () => weights,
});
