// How soon work ends after an abort, and for how long it keeps the thread: a model is loaded and run again and again, and given up at
// moments at random. The same in a page and in node. Nothing is kept across visits, so that every load compiles.

/** Milliseconds by the phase in which the thread was kept, the longest first. */
class Watch {
  blocks = [];
  #phase = "load";
  #last = performance.now();
  /** Milliseconds of the block under way, by phase. */
  #parts = new Map();
  #since = performance.now();
  #stopped = false;

  constructor() {
    const turn = globalThis.setImmediate ?? channel();
    const tick = () => {
      this.#note();
      if (!this.#stopped) turn(tick);
    };
    turn(tick);
  }

  /** A turn: a block has ended. It counts under the phase that took most of it. */
  #note() {
    this.phase(this.#phase);
    const [[phase]] = [...this.#parts].sort((a, b) => b[1] - a[1]);
    this.blocks.push({ ms: this.#since - this.#last, phase });
    this.#last = this.#since;
    this.#parts.clear();
  }

  phase(name) {
    const now = performance.now();
    this.#parts.set(this.#phase, (this.#parts.get(this.#phase) ?? 0) + now - this.#since);
    this.#since = now;
    this.#phase = name;
  }

  stop() {
    this.#note();
    this.#stopped = true;
    return this.blocks.sort((a, b) => b.ms - a.ms);
  }
}

/** A page's turns without the delay of its timers. */
function channel() {
  const { port1, port2 } = new MessageChannel();
  let next;
  port1.onmessage = () => next();
  return (body) => {
    next = body;
    port2.postMessage(0);
  };
}

/** Loads and runs once. */
async function once(gradloom, make, device, signal, watch) {
  const { file, inputs } = await make();
  const given = Object.fromEntries(Object.entries(inputs).map(([name, { data, shape }]) => [name, new gradloom.Tensor(data, shape)]));
  const onProgress = ({ phase }) => watch.phase(phase);
  let model;
  try {
    watch.phase("load");
    model = await gradloom.load(file, { device, signal, onProgress });
    watch.phase("run");
    const out = await model.run(given, { signal, onProgress });
    watch.phase("read");
    for (const value of Object.values(out)) {
      await value.data(undefined, { signal });
      value.dispose();
    }
  } finally {
    model?.dispose();
    Object.values(given).forEach((value) => value.dispose());
  }
}

const quantile = (sorted, q) => sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))];

/**
 * Times one whole load and run, and then `count` of them that are given up. `ended` are the milliseconds from the moment at which the
 * abort was due (a timer that the thread keeps waiting comes late) to the rejection, `blocks` the longest times in which nothing
 * else had a turn, by phase.
 */
export async function measure(gradloom, make, { device, threads, count = 30, seed = 1 }) {
  const started = await gradloom.init({ device, threads, cache: false, isolated: true });
  const blocks = {};
  const take = (list) => {
    for (const { ms, phase } of list) blocks[phase] = Math.max(blocks[phase] ?? 0, ms);
  };
  const fresh = async () => (await gradloom.init({ device, threads, cache: false, isolated: true }));
  const begin = performance.now();
  const whole = new Watch();
  await once(gradloom, make, started, new AbortController().signal, whole);
  take(whole.stop());
  const wholeMs = performance.now() - begin;
  started.dispose();
  const ended = [];
  let random = seed;
  for (let i = 0; i < count; i += 1) {
    random = (Math.imul(random, 1664525) + 1013904223) >>> 0;
    const on = await fresh();
    const controller = new AbortController();
    const wait = (random / 2 ** 32) * wholeMs;
    const due = performance.now() + wait;
    const timer = setTimeout(() => controller.abort(new Error("enough")), wait);
    const watch = new Watch();
    try {
      await once(gradloom, make, on, controller.signal, watch);
    } catch (error) {
      if (!controller.signal.aborted || error !== controller.signal.reason) throw error;
      ended.push(performance.now() - due);
      // what goes on after the rejection keeps the thread too
      await new Promise((done) => setTimeout(done, 100));
    }
    clearTimeout(timer);
    take(watch.stop());
    on.dispose();
  }
  ended.sort((a, b) => a - b);
  return { wholeMs, aborted: ended.length, median: quantile(ended, 0.5), p95: quantile(ended, 0.95), most: ended.at(-1), blocks };
}
