// Code that is loaded when it is first needed, by what pages share with the scripts of workers. Whoever starts says how it comes: a page's
// entries leave each piece in a file of its own (see `apart.ts`), and a worker's script has what it needs in it, because bundlers make classic
// scripts of workers unless told otherwise, and those can load no others.

/** The pieces by name. */
export interface Pieces {
  archives: typeof import("./archives.js");
  collect: typeof import("./collect.js");
  downloads: typeof import("./downloads.js");
  external: typeof import("./external.js");
  files: typeof import("./pkg/gradloom_files.js");
  gguf: typeof import("./gguf.js");
  hints: typeof import("./hints.js");
  print: typeof import("./print.js");
  remote: typeof import("./remote.js");
  sniff: typeof import("./sniff.js");
  text: typeof import("./pkg/gradloom_text.js");
  weights: typeof import("./weights.js");
}

type Loaders = { [K in keyof Pieces]: () => Promise<Pieces[K]> };

const loaders: Partial<Loaders> = {};

/** Says where pieces come from. */
export const provide = (from: Partial<Loaders>): void => void Object.assign(loaders, from);

/** A piece, loaded if it is not. */
export async function piece<K extends keyof Pieces>(name: K): Promise<Pieces[K]> {
  const load = loaders[name];
  if (!load) throw new Error(`there is no \`${name}\` here`);
  return load();
}
