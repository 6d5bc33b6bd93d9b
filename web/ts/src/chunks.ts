// Chunks: lazily loaded code that is used both by pages and by scripts of workers. The entry point registers their
// loaders: entries for pages use dynamic imports, one file per chunk (see `page-chunks.ts`), whereas a worker's script
// has its chunks bundled in, because bundlers turn workers into classic scripts by default, which cannot import
// modules.
import { missing } from "./errors.js";

/** The chunks by name. */
export interface Chunks {
  archives: typeof import("./archives.js");
  collect: typeof import("./collect.js");
  downloads: typeof import("./downloads.js");
  external: typeof import("./external.js");
  files: typeof import("./pkg/gradloom_files.js");
  gguf: typeof import("./gguf.js");
  hints: typeof import("./hints.js");
  loops: typeof import("./loops.js");
  ops: typeof import("./pkg/gradloom_ops.js");
  print: typeof import("./print.js");
  remote: typeof import("./remote.js");
  sniff: typeof import("./sniff.js");
  streams: typeof import("./vision/streams.js");
  text: typeof import("./pkg/gradloom_text.js");
  torch: typeof import("./torch.js");
  weights: typeof import("./weights.js");
}

type Loaders = { [K in keyof Chunks]: () => Promise<Chunks[K]> };

const loaders: Partial<Loaders> = {};

/** Registers the loaders of chunks. */
export const registerChunks = (from: Partial<Loaders>): void => void Object.assign(loaders, from);

/** A chunk, loaded on first use. */
export async function loadChunk<K extends keyof Chunks>(name: K): Promise<Chunks[K]> {
  const load = loaders[name];
  if (!load) throw new Error(`there is no \`${name}\` here`);
  return load().catch(missing);
}
