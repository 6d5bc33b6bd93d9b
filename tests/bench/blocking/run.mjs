// How long a page's own thread is busy at a time while models run and networks learn: tasks as Chromium's trace has them, by the clock and
// by the processor's time, which other programs do not lengthen; frames and events as the page's own observers have them.
// usage: node tests/bench/blocking/run.mjs [--only detector,task,training,language] [--on wasm,webgpu] [--worker true|false] [--limit MS]
// --limit fails where a task took more of the processor's time. What is over the limit is measured again in a fresh browser, three times at
// most, and fails if it is over each time: other programs empty the processor's caches, which lengthens its time too.
// The package must have been built.
import { launch } from "../../../scripts/lib/chromium.mjs";
import { Failure, main, root } from "../../../scripts/lib/run.mjs";
import { serve } from "../../../scripts/serve.mjs";
import { join } from "node:path";
import { unpackPackage } from "../../browser/run.mjs";
import { mounts } from "../../browser/suite.mjs";

/** A frame of a display of 60 Hz. */
const FRAME_MS = 16;
/** How often a scenario is measured before it is over the limit. */
const MAX_ATTEMPTS = 3;

/** Tasks of the page's main thread in a trace: [ms by the clock, ms of the processor]. */
function tasksOf(trace) {
  const { traceEvents } = JSON.parse(trace);
  const threads = traceEvents.filter(({ name, args }) => name === "thread_name" && args.name === "CrRendererMain");
  const isMain = new Set(threads.map(({ pid, tid }) => `${pid} ${tid}`));
  const tasks = traceEvents.filter(({ name, ph, pid, tid }) => name === "ThreadControllerImpl::RunTask" && ph === "X" && isMain.has(`${pid} ${tid}`));
  return tasks.map(({ dur, tdur }) => [dur / 1000, (tdur ?? dur) / 1000]);
}

const CLICKS_MS = 100;

async function measure(browser, page, name) {
  await browser.startTracing(page, { categories: ["toplevel", "devtools.timeline"] });
  const working = page.evaluate(async (which) => globalThis.measureBlocking(globalThis.bodies[which]), name);
  let over = false;
  const clicking = (async () => {
    while (!over) {
      await page.mouse.click(50, 50);
      await new Promise((done) => setTimeout(done, CLICKS_MS));
    }
  })();
  const seen = await working.finally(() => (over = true));
  await clicking;
  const tasks = tasksOf((await browser.stopTracing()).toString());
  return { ...seen, tasks };
}

/** Measures the parts of a scenario in a fresh browser, and prints them; the result is those whose longest task is over the limit. */
async function overLimit(gradloom, scenario, { device, worker, limit }) {
  const server = await serve({ ...mounts(gradloom), "/bench": join(root, "tests/bench") });
  const browser = await launch();
  const failed = [];
  try {
    const page = await browser.newPage();
    page.on("pageerror", (error) => console.error(String(error)));
    await page.goto(`${server.url}/page/plain.html`);
    const options = { device, ...(worker !== undefined && { worker: worker === "true" }) };
    const names = await page.evaluate(async ([which, how]) => {
      const { scenarios, measureBlocking } = await import("/bench/blocking/scenarios.mjs");
      Object.assign(globalThis, { measureBlocking, bodies: await scenarios[which](await import("/gradloom/index.js"), how) });
      return Object.keys(globalThis.bodies);
    }, [scenario, options]);
    for (const name of names) {
      const { ms, gap, frames, events, tasks } = await measure(browser, page, name);
      if (tasks.length === 0) throw new Failure(`blocking: the trace of ${scenario} has no tasks of the page's thread`);
      const longest = (at) => Math.max(...tasks.map((task) => task[at]));
      const over = (at) => tasks.filter((task) => task[at] > FRAME_MS).length;
      const isOver = longest(1) > limit;
      const where = `${device.padEnd(6)} ${scenario}: ${name.padEnd(18)} ${ms.toFixed(0).padStart(6)} ms`;
      console.log(
        `${where}; longest task ${longest(0).toFixed(1)} ms (${longest(1).toFixed(1)} of processor${isOver ? `, OVER ${limit}` : ""}), ` +
          `${over(0)} (${over(1)}) over ${FRAME_MS}; timer ${gap.toFixed(0)} ms late; ${frames.length} long frames ${Math.max(0, ...frames).toFixed(0)}; ` +
          `slowest of ${events.length} events ${Math.max(0, ...events).toFixed(0)}`,
      );
      if (isOver) failed.push(`${device} ${scenario}: ${name}: ${longest(1).toFixed(1)} ms`);
    }
  } finally {
    await browser.close();
    await server.close();
  }
  return failed;
}

main(async () => {
  const argv = process.argv.slice(2);
  const value = (key, otherwise) => (argv.includes(key) ? argv[argv.indexOf(key) + 1] : otherwise);
  const limit = Number(value("--limit", Infinity));
  if (!(limit > 0)) throw new Failure("blocking: --limit takes milliseconds");
  const gradloom = unpackPackage();
  const failed = [];
  for (const device of value("--on", "wasm,webgpu").split(",")) {
    for (const scenario of value("--only", "detector,task,training,language").split(",")) {
      let over = [];
      for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt += 1) {
        over = await overLimit(gradloom, scenario, { device, worker: value("--worker", undefined), limit });
        if (over.length === 0) break;
      }
      failed.push(...over);
    }
  }
  if (failed.length > 0) throw new Failure(`blocking: tasks of the page's thread took over ${limit} ms of the processor\n  ${failed.join("\n  ")}`);
  if (limit < Infinity) console.log(`blocking: no task of the page's thread took over ${limit} ms of the processor`);
});
