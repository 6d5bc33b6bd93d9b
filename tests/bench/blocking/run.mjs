// How long a page's own thread is busy at a time while models run and networks learn: tasks as Chromium's trace has them, by the clock and
// by the processor's time, which other programs do not lengthen; frames and events as the page's own observers have them.
// usage: node tests/bench/blocking/run.mjs [--only detector,task,training] [--on wasm,webgpu] [--worker true|false]
// The package must have been built.
import { launch } from "../../../scripts/lib/chromium.mjs";
import { main, root } from "../../../scripts/lib/run.mjs";
import { serve } from "../../../scripts/serve.mjs";
import { join } from "node:path";
import { unpacked } from "../../browser/run.mjs";
import { mounts } from "../../browser/suite.mjs";

const LIMIT_MS = 16;

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
  const working = page.evaluate(async (which) => globalThis.watched(globalThis.bodies[which]), name);
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

main(async () => {
  const argv = process.argv.slice(2);
  const value = (key, otherwise) => (argv.includes(key) ? argv[argv.indexOf(key) + 1] : otherwise);
  const worker = value("--worker", undefined);
  const gradloom = unpacked();
  for (const device of value("--on", "wasm,webgpu").split(",")) {
    for (const scenario of value("--only", "detector,task,training").split(",")) {
      const server = await serve({ ...mounts(gradloom), "/bench": join(root, "tests/bench") });
      const browser = await launch();
      try {
        const page = await browser.newPage();
        page.on("pageerror", (error) => console.error(String(error)));
        await page.goto(`${server.url}/page/plain.html`);
        const options = { device, ...(worker !== undefined && { worker: worker === "true" }) };
        const names = await page.evaluate(async ([which, how]) => {
          const { scenarios, watched } = await import("/bench/blocking/scenarios.mjs");
          Object.assign(globalThis, { watched, bodies: await scenarios[which](await import("/gradloom/index.js"), how) });
          return Object.keys(globalThis.bodies);
        }, [scenario, options]);
        for (const name of names) {
          const { ms, gap, frames, events, tasks } = await measure(browser, page, name);
          const longest = (at) => Math.max(...tasks.map((task) => task[at])).toFixed(1);
          const over = (at) => tasks.filter((task) => task[at] > LIMIT_MS).length;
          const where = `${device.padEnd(6)} ${scenario}: ${name.padEnd(18)} ${ms.toFixed(0).padStart(6)} ms`;
          console.log(
            `${where}; longest task ${longest(0)} ms (${longest(1)} of processor), ` +
              `${over(0)} (${over(1)}) over ${LIMIT_MS}; timer ${gap.toFixed(0)} ms late; ${frames.length} long frames ${Math.max(0, ...frames).toFixed(0)}; ` +
              `slowest of ${events.length} events ${Math.max(0, ...events).toFixed(0)}`,
          );
        }
      } finally {
        await browser.close();
        await server.close();
      }
    }
  }
});
