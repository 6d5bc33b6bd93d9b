// Chunks: lazily loaded code that is used both by pages and by scripts of workers. The entry point registers their
// loaders: entries for pages use dynamic imports, one file per chunk (see `page-chunks.ts`), whereas a worker's script
// has its chunks bundled in, because bundlers turn workers into classic scripts by default, which cannot import
// modules.
import { missing } from "./errors.js";

/** The chunks by name. */
export interface Chunks {
  advice: typeof import("./tasks/advice.js");
  archives: typeof import("./archives.js");
  chat: typeof import("./pkg/gradloom_chat.js");
  chats: typeof import("./tasks/chats.js");
  collect: typeof import("./collect.js");
  downloads: typeof import("./downloads.js");
  encoder: typeof import("./llm/local-encoder.js");
  encoderModule: typeof import("./pkg/gradloom_encoder.js");
  external: typeof import("./external.js");
  files: typeof import("./pkg/gradloom_files.js");
  folder: typeof import("./tasks/folder.js");
  forms: typeof import("./pkg/gradloom_forms.js");
  gguf: typeof import("./gguf.js");
  ggufFile: typeof import("./llm/gguf-file.js");
  gpu: typeof import("./vision/gpu.js");
  hints: typeof import("./hints.js");
  languageModel: typeof import("./llm/local.js");
  llm: typeof import("./llm.js");
  llmModule: typeof import("./pkg/gradloom_llm.js");
  loops: typeof import("./loops.js");
  ops: typeof import("./pkg/gradloom_ops.js");
  print: typeof import("./print.js");
  reload: typeof import("./llm/reload.js");
  remote: typeof import("./remote.js");
  sniff: typeof import("./sniff.js");
  streams: typeof import("./vision/streams.js");
  tasks: typeof import("./tasks/implementations.js");
  text: typeof import("./pkg/gradloom_text.js");
  torch: typeof import("./torch.js");
  vision: typeof import("./vision.js");
  weights: typeof import("./weights.js");
}

type Loaders = { [K in keyof Chunks]: () => Promise<Chunks[K]> };

const loaders: Partial<Loaders> = {};

/** Registers the loaders of chunks. */
export const registerChunks = (from: Partial<Loaders>): void => void Object.assign(loaders, from);

/**
 * A chunk, loaded on first use: as it was registered, else by `otherwise`, with which code of few pages brings its own
 * chunks, so that other pages know nothing of them.
 */
export async function loadChunk<K extends keyof Chunks>(name: K, otherwise?: () => Promise<Chunks[K]>): Promise<Chunks[K]> {
  const load = loaders[name] ?? otherwise;
  if (!load) throw new Error(`there is no \`${name}\` here`);
  return load().catch(missing);
}
