// A worker that computes a case with one thread of its own, and shares nothing with others but the machine.
import { load } from "./load.mjs";
import * as adapter from "./adapters/gradloom.mjs";

const now = () => performance.timeOrigin + performance.now();
const ready = adapter.init({ device: "wasm", threads: 1 });
let job;

const ACTIONS = {
  async prepare(name) {
    await ready;
    await job?.dispose();
    job = await adapter.prepare(await load(name));
  },
  /** Begin and end of so many runs. */
  async run(times) {
    const begin = now();
    for (let i = 0; i < times; i += 1) await job.run();
    return [begin, now()];
  },
};

self.onmessage = async ({ data: { action, value } }) => {
  try {
    self.postMessage({ value: await ACTIONS[action](value) });
  } catch (error) {
    self.postMessage({ error: String(error?.stack ?? error) });
  }
};
