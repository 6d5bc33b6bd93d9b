// The test models in node on the WASM device. usage: node tests/lib/models.mjs [--threads N] [--repeat N] [MODEL..]
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { TestEngine } from "./conformance.mjs";

const args = process.argv.slice(2);
const option = (name, otherwise) => (args.includes(name) ? Number(args.splice(args.indexOf(name), 2)[1]) : otherwise);
const threads = option("--threads", 1);
const repeat = option("--repeat", 3);
const folder = new URL("../models/", import.meta.url);
const names = args.length > 0 ? args : readdirSync(folder).filter((name) => existsSync(new URL(`${name}/model.onnx`, folder)));
const { startWorkers } = threads > 1 ? await import(new URL("workers.js", import.meta.resolve("gradloom"))) : {};
for (const name of names) {
  const read = (file) => readFileSync(new URL(`${name}/${file}`, folder));
  const { workers } = threads > 1 ? await startWorkers(threads - 1, () => {}) : { workers: [] };
  const engine = TestEngine.onWasm(workers);
  try {
    if (/^matmul\d+$/.test(name)) console.log(name, (await engine.matmul(Number(name.slice(6)), 20)).toFixed(1), "GFLOP/s");
    else console.log(name, await engine.model(read("model.onnx"), read("input.npz"), read("expected.npz"), repeat));
  } catch (error) {
    console.log(name, "FAILED", error.message ?? error);
  }
  for (const worker of workers) worker.terminate();
}
