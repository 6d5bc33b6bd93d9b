// Times the kernels that `cost_model record` wrote, in this process: node wasm.mjs FOLDER FILE. The least time of each goes to FILE.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { instantiate } from "../../lib/wasm_driver.mjs";

const [folder, file] = process.argv.slice(2);
const read = (name) => readFileSync(join(folder, name));
const { slack, list } = JSON.parse(read("list.json"));
const round = (n) => Math.ceil(n / 64) * 64;
const need = ({ params, scratch }) => params.reduce((n, [, size, len]) => n + round(size * len) + 128, 4096) + scratch;
const pages = Math.ceil((Math.max(...list.map(need)) + 2 * slack) / 65536) + 1;
const memory = new WebAssembly.Memory({ initial: pages, maximum: 65536 });
const modules = { module: new WebAssembly.Module(read("kernels.wasm")), driver: new WebAssembly.Module(read("driver.wasm")) };
const { begin, go } = instantiate({ ...modules, memory, entries: list.length });
const words = new Uint32Array(memory.buffer);

/** Numbers of modest size: floats within 1, whole numbers below 4. */
function fill(at, dtype, size, len) {
  let seed = 1;
  const next = () => (seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0);
  if (dtype === "F32") new Float32Array(memory.buffer, at, len).forEach((_, i, a) => (a[i] = next() / 2 ** 31 - 1));
  else if (dtype === "F64") new Float64Array(memory.buffer, at, len).forEach((_, i, a) => (a[i] = next() / 2 ** 31 - 1));
  else if (dtype === "Bool") new Uint8Array(memory.buffer, at, len).forEach((_, i, a) => (a[i] = next() >>> 31));
  else {
    const whole = { 1: Uint8Array, 2: Uint16Array, 4: Uint32Array, 8: BigUint64Array }[size];
    new whole(memory.buffer, at, len).forEach((_, i, a) => (a[i] = size === 8 ? BigInt(next() >>> 30) : next() >>> 30));
  }
}

/** Puts the arguments of a launch into memory: address and length of its steps, and the scratch memory. */
function place({ params, vars, grid }, kernel) {
  let at = slack;
  const take = (bytes) => [at, (at += round(bytes))][0];
  const buffers = params.map(([dtype, size, len]) => {
    const start = take(size * len + 64);
    fill(start, dtype, size, len);
    return start;
  });
  const put = (numbers) => {
    const start = take(4 * numbers.length + 64);
    words.set(numbers, start / 4);
    return start;
  };
  const [bufs, launch] = [put(buffers), put(vars)];
  return [put([kernel, bufs, launch, grid, 0]), take(0)];
}

const least = (best, { row, kernel }) => {
  const [steps, scratch] = place(row, kernel);
  const time = (n) => {
    const from = performance.now();
    for (let i = 0; i < n; i += 1) {
      begin(steps, 1);
      go(scratch, Infinity);
    }
    return ((performance.now() - from) * 1e6) / n;
  };
  // V8 compiles a function again once it ran for a while
  let once = time(1);
  for (const until = performance.now() + 15; performance.now() < until; ) once = Math.min(once, time(1));
  const n = Math.max(1, Math.min(256, Math.round(2e5 / once)));
  let [runs, until] = [0, performance.now() + 8];
  while (runs < 3 || performance.now() < until) [best, runs] = [Math.min(best, time(n)), runs + 1];
  return best;
};

const times = list.map(() => Infinity);
for (let turn = 0; turn < 2; turn += 1) {
  list.forEach((row, kernel) => {
    if (kernel % 200 === 0) console.error(`round ${turn}: ${kernel} of ${list.length} programs`);
    times[kernel] = least(times[kernel], { row, kernel });
  });
}

const before = existsSync(file) ? readFileSync(file, "utf8").split("\n").filter(Boolean).map((line) => line.split(" ")) : [];
const all = new Map(before.map(([key, ns]) => [key, Number(ns)]));
list.forEach(({ key }, i) => all.set(key, Math.min(times[i], all.get(key) ?? Infinity)));
writeFileSync(file, Array.from(all, ([key, ns]) => `${key} ${ns.toFixed(1)}\n`).join(""));
