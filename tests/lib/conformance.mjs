// The test module (tests/web/pkg) in node: started from bytes, and worker threads for the WASM device.
import { readFile } from "node:fs/promises";
import { Worker } from "node:worker_threads";
import start, * as module from "../web/pkg/gradloom_web_tests.js";

await start({ module_or_path: await readFile(new URL("../web/pkg/gradloom_web_tests_bg.wasm", import.meta.url)) });

export const { samplesOnWasm } = module;

/** `n` workers that run the packed package's worker file and have said that they are there. */
export async function workers(n, url) {
  const list = Array.from({ length: n }, () => new Worker(url));
  await Promise.all(list.map((worker) => new Promise((done, fail) => worker.once("message", done).once("error", fail))));
  return list;
}
