// Packages of other libraries, installed when they are first timed; the project does not depend on them.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { run } from "../../../scripts/lib/run.mjs";

/** What peers need, exactly. */
export const PEERS = {
  "onnxruntime-web": "1.30.0",
  "@tensorflow/tfjs-core": "4.22.0",
  "@tensorflow/tfjs-backend-wasm": "4.22.0",
  "@tensorflow/tfjs-backend-webgpu": "4.22.0",
  "@jax-js/jax": "0.1.25",
  esbuild: "0.28.2",
};

/** Installs some of them into a folder, unless they are there. True if it did. */
export function install(folder, names = Object.keys(PEERS)) {
  mkdirSync(folder, { recursive: true });
  const stamp = join(folder, "installed.json");
  const wanted = JSON.stringify(Object.fromEntries(names.map((name) => [name, PEERS[name]])));
  if (existsSync(stamp) && readFileSync(stamp, "utf8") === wanted) return false;
  writeFileSync(join(folder, "package.json"), JSON.stringify({ private: true, type: "module" }));
  const list = names.map((name) => `${name}@${PEERS[name]}`);
  run("npm", ["install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", ...list], { cwd: folder });
  if (names.includes("esbuild")) run("node", ["install.js"], { cwd: join(folder, "node_modules/esbuild") });
  writeFileSync(stamp, wanted);
  return true;
}
