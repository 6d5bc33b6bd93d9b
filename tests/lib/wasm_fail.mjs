// Runs steps of which one fails, for the Rust tests: the job must end on every thread, whoever the failure came to.
// node wasm_fail.mjs DIR NAME STEPS N SCRATCH SCRATCH_BYTES SYNC KERNELS THREADS REPEAT
// As wasm_run.mjs, but all is done anew by the first thread (NAME.alone.out), by the others (NAME.workers.out) and by all
// (NAME.all.out). Prints JSON {caught}: how many exceptions reached this thread.
import { readFileSync, writeFileSync } from "node:fs";
import { Worker, isMainThread, parentPort, workerData } from "node:worker_threads";
import { IDLE, STATE, instantiate } from "./wasm_driver.mjs";

async function main() {
  const [dir, name, ...numbers] = process.argv.slice(2);
  const [steps, n, scratch, scratchBytes, sync, kernels, threads] = numbers.map(Number);
  const image = readFileSync(`${dir}/${name}.in`);
  const module = new WebAssembly.Module(readFileSync(`${dir}/${name}.wasm`));
  const driver = new WebAssembly.Module(readFileSync(`${dir}/${name}.driver.wasm`));
  // one entry more than there are kernels: a step that calls it fails
  const entries = kernels + 1;
  let caught = 0;
  for (const mode of ["alone", "workers", "all"]) {
    const memory = new WebAssembly.Memory({ initial: Math.ceil(image.length / 65536), maximum: 65536, shared: true });
    new Uint8Array(memory.buffer).set(image);
    const { post, help, dismiss, fail, failed } = instantiate({ module, driver, memory, entries });
    const attempt = (part) => {
      try {
        part();
        return true;
      } catch {
        caught += 1;
        fail(sync);
        return false;
      }
    };
    const ended = [];
    for (let i = 1; i < threads && mode !== "alone"; i++) {
      const data = { module, driver, memory, entries, sync, thread: i, scratch: scratch + i * scratchBytes };
      const worker = new Worker(new URL(import.meta.url), { workerData: data });
      ended.push(new Promise((resolve) => worker.on("exit", resolve)));
    }
    const words = new Int32Array(memory.buffer, sync, 16);
    attempt(() => post(steps, n, threads, scratch, sync));
    if (mode === "workers") {
      while (Atomics.load(words, STATE) !== IDLE) await new Promise((resolve) => setTimeout(resolve, 1));
    } else {
      while (!attempt(() => help(0, 0, scratch, sync, Infinity)) || Atomics.load(words, STATE) !== IDLE);
    }
    if (failed(sync) === 0) throw new Error(`${mode}: the failure is not seen`);
    writeFileSync(`${dir}/${name}.${mode}.out`, new Uint8Array(memory.buffer));
    // the next job ends at once
    post(steps, n, threads, scratch, sync);
    help(0, 0, scratch, sync, Infinity);
    dismiss(sync);
    await Promise.all(ended);
  }
  console.log(JSON.stringify({ caught }));
}

if (isMainThread) {
  await main();
} else {
  const { serve, fail } = instantiate(workerData);
  for (;;) {
    try {
      serve(workerData.thread, 0, workerData.scratch, workerData.sync);
      break;
    } catch {
      fail(workerData.sync);
    }
  }
  parentPort.close();
}
