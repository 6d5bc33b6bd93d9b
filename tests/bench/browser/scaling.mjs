// How much faster two threads are than one, and what this machine gives to two threads at all: two workers that share nothing
// compute the same case at once. Bursts of all three take turns, and ratios are those of neighbours, since a virtual machine's
// second core comes and goes. The query names the cases and the milliseconds for each.
import { load } from "./load.mjs";
import * as adapter from "./adapters/gradloom.mjs";

const query = new URLSearchParams(location.search);
const say = (kind, value) => console.log(`@@${kind} ${JSON.stringify(value)}`);
/** Milliseconds of a burst: long beside a message to a worker, short beside the other work of the machine. */
const BURST = 24;

function worker() {
  const made = new Worker("/bench/single_thread_worker.mjs", { type: "module" });
  return (action, value) => new Promise((resolve, reject) => {
    made.onmessage = ({ data }) => (data.error ? reject(new Error(data.error)) : resolve(data.value));
    made.onerror = ({ message }) => reject(new Error(message));
    made.postMessage({ action, value });
  });
}

/** From the first begin to the last end. */
const span = (times) => Math.max(...times.map(([, end]) => end)) - Math.min(...times.map(([begin]) => begin));
const median = (list) => list.toSorted((a, b) => a - b)[list.length >> 1];

async function measure(workers, name, budget) {
  const job = await adapter.prepare(await load(name));
  for (const each of workers) await each("prepare", name);
  const both = (n) => Promise.all(workers.map((each) => each("run", n)));
  const threads = async (n) => {
    const begin = performance.now();
    for (let i = 0; i < n; i += 1) await job.run();
    await job.sync();
    return performance.now() - begin;
  };
  for (let i = 0; i < 3; i += 1) await Promise.all([both(1), job.run()]);
  const n = Math.max(1, Math.round(BURST / span([await workers[0]("run", 4)]) * 4));
  const rounds = [];
  const until = performance.now() + budget;
  while (performance.now() < until || rounds.length < 5) {
    const one = span([await workers[0]("run", n)]) / n;
    const two = (await threads(n)) / n;
    const separate = span(await both(n)) / n;
    rounds.push({ one, two, separate });
  }
  await job.dispose();
  const least = (key) => Math.min(...rounds.map((r) => r[key]));
  // the quarter of rounds in which the second core was there most
  const free = rounds.toSorted((a, b) => a.separate - b.separate).slice(0, Math.max(3, rounds.length >> 2));
  return { name, rounds: rounds.length, one: least("one"), two: least("two"), separate: least("separate"),
    times: median(rounds.map((r) => r.one / r.two)), machine: median(rounds.map((r) => (2 * r.one) / r.separate)),
    freeTimes: median(free.map((r) => r.one / r.two)), freeMachine: median(free.map((r) => (2 * r.one) / r.separate)) };
}

async function main() {
  const info = await adapter.init({ device: "wasm", threads: 2 });
  const workers = [worker(), worker()];
  say("start", { info, isolated: crossOriginIsolated });
  for (const name of query.get("cases").split(",")) {
    say("begin", { name });
    try {
      say("case", await measure(workers, name, Number(query.get("ms"))));
    } catch (error) {
      say("case", { name, error: String(error?.message ?? error).slice(0, 200) });
    }
  }
}

main().catch((error) => say("fatal", { error: String(error?.stack ?? error).slice(0, 500) })).finally(() => say("done", {}));
