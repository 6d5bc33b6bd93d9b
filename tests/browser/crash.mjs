// The browser's GPU process ends, between two runs of a model and in the middle of them: a model in the worker gives the same numbers in every run, one in
// the page's own thread in the next run, and what lay on the GPU in the page is an error that says so.
// usage: node tests/browser/crash.mjs
import assert from "node:assert/strict";
import { launch } from "../../scripts/lib/chromium.mjs";
import { main } from "../../scripts/lib/run.mjs";
import { serve } from "../../scripts/serve.mjs";
import { unpacked } from "./run.mjs";
import { mounts } from "./suite.mjs";

/** In the page: a model, and how far its result is off; a device of the page's own, which tells whether the process really ended. */
async function begin(worker) {
  const { Tensor, init, load } = await import("/gradloom/index.js");
  const { readNpz } = await import("/lib/npz.mjs");
  const bytes = async (file) => new Uint8Array(await (await fetch(`/models/silero_vad_op15/${file}`)).arrayBuffer());
  const [input, expected] = [await readNpz(await bytes("input.npz")), await readNpz(await bytes("expected.npz"))];
  const model = await load("/models/silero_vad_op15/model.onnx", { device: "webgpu", worker });
  globalThis.off = async () => {
    const { output } = await model.run(Object.fromEntries(Object.entries(input).map(([name, t]) => [name, new Tensor(t.data, t.shape)])));
    return Math.abs((await output.data())[0] - expected.output.data[0]);
  };
  const watched = await (await navigator.gpu.requestAdapter()).requestDevice();
  globalThis.lost = false;
  watched.lost.then(() => (globalThis.lost = true));
  await init({ device: "webgpu" });
  const held = new Tensor([1, 2, 3]).add(1);
  await held.realize();
  globalThis.held = () => held.mul(2).data().then(() => "values", (error) => error.code);
  globalThis.again = async () => {
    await init({ device: "webgpu" });
    return new Tensor([1, 2, 3]).add(1).tolist();
  };
  return { kind: model.device.kind, off: await globalThis.off() };
}

async function crash(browser, page) {
  const session = await browser.newBrowserCDPSession();
  await session.send("Browser.crashGpuProcess");
  // no frames come meanwhile
  await page.waitForFunction(() => globalThis.lost, null, { timeout: 60_000, polling: 50 });
  await session.detach();
}

/** One case, in a browser of its own: after a few crashes a browser gives no GPU to anybody. */
async function tried(url, worker, moment) {
  const browser = await launch();
  try {
    const page = await browser.newPage();
    await page.goto(`${url}/page/plain.html`);
    const { kind, off } = await page.evaluate(begin, worker);
    assert.equal(kind, "webgpu");
    assert.ok(off < 1e-3, `off by ${off} before`);
    const running = moment === "between two runs" ? [] : page.evaluate(async () => {
      const all = [];
      while (!globalThis.lost) all.push(await globalThis.off().catch((error) => error.code));
      return all;
    });
    await crash(browser, page);
    const during = await running;
    const after = await page.evaluate(() => globalThis.off());
    // where the page's own thread reads the result, what is on the GPU at that moment is lost
    const allowed = (each) => each < 1e-3 || (!worker && each === "E_DEVICE_LOST");
    for (const each of during) assert.ok(allowed(each), `${each} while the GPU process ended`);
    assert.ok(after < 1e-3, `off by ${after} after the GPU process ended ${moment}`);
    assert.equal(await page.evaluate(() => globalThis.held()), "E_DEVICE_LOST");
    assert.deepEqual(await page.evaluate(() => globalThis.again()), [2, 3, 4]);
    console.log(`crash: ${worker ? "in a worker" : "in the page"}, ${moment}: ok, ${during.length + 1} runs`);
  } finally {
    await browser.close();
  }
}

main(async () => {
  const server = await serve(mounts(unpacked()));
  try {
    for (const worker of [true, false]) {
      for (const moment of ["between two runs", "in the middle of runs"]) await tried(server.url, worker, moment);
    }
  } finally {
    await server.close();
  }
});
