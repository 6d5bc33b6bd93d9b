// Runs steps of a linked kernel module on a memory image, for the Rust tests.
// node wasm_run.mjs MODULE IMAGE OUT STEPS N SCRATCH SYNC [REPEAT]
// Each step is a call of its own; the steps that trapped are printed as JSON {failed: [[step, message]], ms}.
import { readFileSync, writeFileSync } from "node:fs";

const [modulePath, imagePath, outPath, ...numbers] = process.argv.slice(2);
const [steps, n, scratch, sync, repeat = 0] = numbers.map(Number);
const image = readFileSync(imagePath);
const memory = new WebAssembly.Memory({ initial: Math.ceil(image.length / 65536), maximum: 65536 });
new Uint8Array(memory.buffer).set(image);
const compileStart = performance.now();
const module = new WebAssembly.Module(readFileSync(modulePath));
const { run } = new WebAssembly.Instance(module, { e: { m: memory } }).exports;
const compileMs = performance.now() - compileStart;
const failed = [];
for (let i = 0; i < n; i++) {
  try {
    run(steps + 16 * i, 1, 0, 1, scratch, sync);
  } catch (error) {
    failed.push([i, String(error)]);
  }
}
writeFileSync(outPath, new Uint8Array(memory.buffer));
let ms = 0;
if (repeat) {
  const times = [];
  for (let i = 0; i < repeat; i++) {
    const start = performance.now();
    run(steps, n, 0, 1, scratch, sync);
    times.push(performance.now() - start);
  }
  ms = Math.min(...times);
}
console.log(JSON.stringify({ failed, ms, compileMs }));
