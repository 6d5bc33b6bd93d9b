// Runs cases through one adapter inside the page. The query names the adapter, its options, the cases and the time for each.
import { difference, load } from "./load.mjs";

const query = new URLSearchParams(location.search);
const say = (kind, value) => console.log(`@@${kind} ${JSON.stringify(value)}`);

async function measure(adapter, name, budget) {
  const made = await load(name);
  const row = { name, flops: made.spec.flops, bytes: made.spec.bytes };
  const before = await adapter.phases?.();
  // asking for the processor's time takes milliseconds itself
  const onCpu = await window.__cpu();
  const start = performance.now();
  const job = await adapter.prepare(made);
  await job.run();
  const got = await job.read();
  row.first_ms = performance.now() - start;
  row.first_cpu_ms = (await window.__cpu()) - onCpu;
  const after = await adapter.phases?.();
  if (after) row.phases = Object.fromEntries(Object.entries(after).map(([key, v]) => [key, v - before[key]]));
  row.relerr = difference(got, made.ref);
  row.ok = row.relerr <= made.spec.rtol;
  const once = async () => {
    const begin = performance.now();
    await job.run();
    await job.sync();
    return performance.now() - begin;
  };
  const slow = row.first_ms > 6000;
  if (!slow) for (let i = 0; i < 2; i += 1) await once();
  const times = [];
  const until = performance.now() + budget;
  while (times.length < (slow ? 1 : 4) || (performance.now() < until && times.length < 100)) times.push(await once());
  row.ms = Math.min(...times);
  // what is too short for the clock, and for a wait each time: many runs, one wait
  if (row.ms < 40) {
    const n = Math.max(4, Math.min(64, Math.floor(budget / 4 / Math.max(row.ms, 0.02))));
    for (let round = 0; round < 3; round += 1) {
      const begin = performance.now();
      for (let i = 0; i < n; i += 1) await job.run();
      await job.sync();
      row.ms = Math.min(row.ms, (performance.now() - begin) / n);
    }
  }
  // processor time of all the browser's threads, which does not count waiting for a busy core
  const n = Math.max(1, Math.min(100, Math.ceil((budget * 0.5) / Math.max(row.ms, 0.02))));
  for (let round = 0; round < (slow ? 1 : 3); round += 1) {
    const before = await window.__cpu();
    for (let i = 0; i < n; i += 1) await once();
    const spent = (await window.__cpu()) - before;
    // a thread that ended took its time with it
    if (spent > 0) row.cpu_ms = Math.min(row.cpu_ms ?? Infinity, spent / n);
  }
  row.cpu_ms ??= row.ms;
  await job.dispose();
  return row;
}

/** Searches for faster kernels of a case; what was found, as lines for `init({ tuned })` with their gains. */
async function tune(adapter, name, ms) {
  const job = await adapter.prepare(await load(name));
  for (let i = 0; i < 3; i += 1) await job.run();
  const kernels = await adapter.tune(ms);
  await job.dispose();
  return { name, kernels };
}

async function main() {
  const adapter = await import(`/bench/adapters/${query.get("adapter")}.mjs`);
  const begin = performance.now();
  const info = await adapter.init(JSON.parse(query.get("opts")));
  const ready = performance.now();
  const tiny = await measure(adapter, "tiny", 20);
  say("start", { info, init_ms: ready - begin, first_ms: ready - begin + tiny.first_ms, ok: tiny.ok, isolated: crossOriginIsolated });
  for (const name of query.get("cases").split(",").filter(Boolean)) {
    say("begin", { name });
    try {
      const ms = Number(query.get("ms"));
      say("case", await (query.get("tune") ? tune : measure)(adapter, name, ms));
    } catch (error) {
      say("case", { name, error: String(error?.message ?? error).slice(0, 200) });
    }
  }
}

main().catch((error) => say("fatal", { error: String(error?.stack ?? error).slice(0, 500) })).finally(() => say("done", {}));
