// Runs steps of a linked kernel module on a memory image, for the Rust tests.
// node wasm_run.mjs DIR NAME STEPS N SCRATCH SCRATCH_BYTES SYNC KERNELS THREADS REPEAT
// Reads DIR/NAME.{wasm,driver.wasm,in}, writes DIR/NAME.out and prints JSON {failed: [[step, message]], ms, compileMs}.
// With one thread each step is a call of its own; with more all steps are one job, which is done before workers are there
// (NAME.alone.out), then by them alone (NAME.workers.out), then in pieces of a tenth of a millisecond after a job that was
// stopped (NAME.paced.out), then by all. With one thread the pieces must leave in memory what the whole does.
import { readFileSync, writeFileSync } from "node:fs";
import { Worker, isMainThread, parentPort, workerData } from "node:worker_threads";
import { IDLE, STATE, instantiate } from "./wasm_driver.mjs";

async function main() {
  const [dir, name, ...numbers] = process.argv.slice(2);
  const [steps, n, scratch, scratchBytes, sync, kernels, threads, repeat] = numbers.map(Number);
  const image = readFileSync(`${dir}/${name}.in`);
  const pages = Math.ceil(image.length / 65536);
  const memory = new WebAssembly.Memory({ initial: pages, maximum: 65536, shared: threads > 1 });
  new Uint8Array(memory.buffer).set(image);
  const start = performance.now();
  const module = new WebAssembly.Module(readFileSync(`${dir}/${name}.wasm`));
  const driver = new WebAssembly.Module(readFileSync(`${dir}/${name}.driver.wasm`));
  const { begin, go: goOn, post, help, stop, dismiss } = instantiate({ module, driver, memory, entries: kernels });
  const compileMs = performance.now() - start;
  const failed = [];
  const shortDeadline = () => performance.now() + 0.1;
  let go;
  if (threads === 1) {
    for (let i = 0; i < n; i++) {
      try {
        begin(steps + 20 * i, 1);
        goOn(scratch, Infinity);
      } catch (error) {
        failed.push([i, String(error)]);
      }
    }
    go = () => {
      begin(steps, n);
      goOn(scratch, Infinity);
    };
    if (failed.length === 0) {
      const whole = new Uint8Array(memory.buffer).slice(0, scratch);
      new Uint8Array(memory.buffer).set(image);
      let pieces = 1;
      for (begin(steps, n); goOn(scratch, shortDeadline()) !== 0; pieces++);
      if (Buffer.compare(whole, new Uint8Array(memory.buffer, 0, scratch)) !== 0) failed.push([n, `${pieces} pieces differ from the whole`]);
    }
  } else {
    const words = new Int32Array(memory.buffer, sync, 16);
    const until = async (done) => {
      while (!done()) await new Promise((resolve) => setTimeout(resolve, 1));
    };
    const reset = () => {
      // but for what threads share, which goes on
      const all = new Uint8Array(memory.buffer);
      all.set(image.subarray(0, sync));
      all.set(image.subarray(scratch), scratch);
    };
    const save = (mode) => {
      writeFileSync(`${dir}/${name}.${mode}.out`, new Uint8Array(memory.buffer));
      reset();
    };
    go = () => {
      post(steps, n, threads, scratch, sync);
      do help(0, 0, scratch, sync, Infinity);
      while (Atomics.load(words, STATE) !== IDLE);
    };
    go();
    save("alone");
    for (let i = 1; i < threads; i++) {
      const data = { module, driver, memory, entries: kernels, sync, thread: i, scratch: scratch + i * scratchBytes };
      new Worker(new URL(import.meta.url), { workerData: data });
    }
    post(steps, n, threads, scratch, sync);
    await until(() => Atomics.load(words, STATE) === IDLE);
    save("workers");
    post(steps, n, threads, scratch, sync);
    stop(sync);
    do help(0, 0, scratch, sync, Infinity);
    while (Atomics.load(words, STATE) !== IDLE);
    reset();
    post(steps, n, threads, scratch, sync);
    do help(0, 0, scratch, sync, shortDeadline());
    while (Atomics.load(words, STATE) !== IDLE);
    save("paced");
    go();
  }
  writeFileSync(`${dir}/${name}.out`, new Uint8Array(memory.buffer));
  const times = [];
  for (let i = 0; i < repeat; i++) {
    const start = performance.now();
    go();
    times.push(performance.now() - start);
  }
  // workers end when they see it
  if (threads > 1) dismiss(sync);
  console.log(JSON.stringify({ failed, ms: repeat ? Math.min(...times) : 0, compileMs }));
}

if (isMainThread) {
  await main();
} else {
  const { serve } = instantiate(workerData);
  serve(workerData.thread, 0, workerData.scratch, workerData.sync);
  parentPort.close();
}
