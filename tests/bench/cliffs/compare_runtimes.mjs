// gradloom and onnxruntime-web, or another build of gradloom, on the same models in one page or process of Node: they take turns, and the
// least time of each counts. gradloom's result is compared with what the native onnxruntime computed.
import { readNpz } from "../../lib/npz.mjs";
import * as gradloom from "../browser/adapters/gradloom.mjs";
import { difference } from "../browser/load.mjs";
import * as ort from "../browser/adapters/ort.mjs";

const TYPES = { "<f4": "float32", "<i4": "int32", "<i8": "int64" };
const ROUNDS = 3;
/** A batch of runs takes this many milliseconds at least: clocks of pages are coarse. */
const BATCH_MS = 1;

/** The time of the processor, which other processes of a busy machine do not lengthen; a page has none, and more threads share it. */
const cpuMs = () => {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e3;
};

/** The least milliseconds of a run by a clock, in so many milliseconds of trying. */
async function least(job, budget, clock) {
  const timed = async (n) => {
    const begin = clock();
    for (let i = 0; i < n; i += 1) await job.run();
    await job.sync();
    return (clock() - begin) / n;
  };
  const end = performance.now() + budget;
  let best = Infinity;
  do {
    const n = Math.min(200, Math.max(1, Math.ceil(BATCH_MS / Math.max(best, 1e-3))));
    best = Math.min(best, await timed(Number.isFinite(best) ? n : 1));
  } while (performance.now() < end);
  return best;
}

/** One model: `{ours, theirs, relerr, launches}` in milliseconds. */
async function row(name, file, budget, peer, clock) {
  const onnx = await file(`${name}.onnx`);
  const given = Object.entries(await readNpz(await file(`${name}.in.npz`)));
  const inputs = Object.fromEntries(given.map(([key, { dtype, shape, data }]) => [key, { dtype: TYPES[dtype], shape, data }]));
  const [want] = Object.values(await readNpz(await file(`${name}.out.npz`)));
  const jobs = [];
  try {
    for (const each of [gradloom, peer]) {
      const job = await each.prepare({ spec: { op: "onnx", params: {} }, inputs, onnx });
      jobs.push({ job, ms: Infinity });
      await job.run();
    }
    const relerr = difference(await jobs[0].job.read(), Float64Array.from(want.data, Number));
    const before = await gradloom.launches();
    await jobs[0].job.run();
    const launches = (await gradloom.launches()) - before;
    for (let round = 0; round < ROUNDS; round += 1) {
      for (const each of jobs) each.ms = Math.min(each.ms, await least(each.job, budget / ROUNDS, clock));
    }
    return { ours: jobs[0].ms, theirs: jobs[1].ms, relerr, launches };
  } finally {
    for (const { job } of jobs) await job.dispose();
  }
}

/**
 * `names` are those of files that `file` reads. `say` is told each name before, and each row after. `otherAt` is the address of another
 * build of gradloom, which then takes onnxruntime-web's place. `busy`: times are the processor's.
 */
export async function compareRuntimes({ names, file, device, threads, budget, gradloomAt, ortAt, otherAt, busy, say }) {
  await gradloom.init({ device, threads, module: gradloomAt });
  const peer = otherAt ? await import("../browser/adapters/gradloom.mjs?other") : ort;
  await peer.init({ device, threads, module: otherAt, folder: ortAt });
  const clock = busy ? cpuMs : () => performance.now();
  for (const name of names) {
    say({ begin: name });
    try {
      say({ name, ...(await row(name, file, budget, peer, clock)) });
    } catch (error) {
      say({ name, error: String(error?.message ?? error).slice(0, 200) });
    }
  }
}
