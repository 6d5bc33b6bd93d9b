// Copies the files that a bundle loads while it runs and that some bundlers do not find: the scripts of workers and the
// wasm files.
import { copyFileSync, mkdirSync, readdirSync, statSync } from "node:fs";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";

const dist = fileURLToPath(new URL("../dist", import.meta.url));
/** Scripts that run outside of the page's thread, and what those of workers import. */
const SCRIPTS = ["worker.js", "remote-worker.js", "llm-worker.js", "encoder-worker.js", "listen-worklet.js", "core.js"];
/** All parts of the module in one file, for hosts that can fetch nothing; bundles load the parts. */
const WHOLE = "gradloom_whole_bg.wasm";

/** Copies the files into a folder, which is made if need be; returns their names and bytes in all. */
export function copyFiles(folder) {
  const modules = readdirSync(join(dist, "pkg")).filter((name) => name.endsWith(".wasm") && name !== WHOLE);
  const files = [...SCRIPTS.map((name) => join(dist, name)), ...modules.map((name) => join(dist, "pkg", name))];
  mkdirSync(folder, { recursive: true });
  for (const file of files) copyFileSync(file, join(folder, basename(file)));
  return { names: files.map((file) => basename(file)), bytes: files.reduce((sum, file) => sum + statSync(file).size, 0) };
}
