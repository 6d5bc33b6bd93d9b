// The browser's GPU process ends, between two runs of a model and in the middle of them: a model in the worker gives the same numbers in every run, one in
// the page's own thread too, unless its result was not read yet, and what lay on the GPU in the page is an error that says so. `lost` of the devices tells of
// it. A task that is under way then is done, and a chat, unless somebody has heard a part of the answer.
// usage: node tests/browser/crash.mjs
import assert from "node:assert/strict";
import { launch } from "../../scripts/lib/chromium.mjs";
import { main } from "../../scripts/lib/run.mjs";
import { serve } from "../../scripts/serve.mjs";
import { unpackPackage } from "./run.mjs";
import { mounts } from "./suite.mjs";

/** In the page: a model, and how far its result is off; a device of the page's own, which tells whether the process really ended. */
async function loadModel(worker) {
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
  const own = await init({ device: "webgpu" });
  const lossInfo = { page: null, model: null };
  own.lost.then((why) => (lossInfo.page = why));
  model.device.lost.then((why) => (lossInfo.model = why));
  globalThis.lossInfo = () => lossInfo;
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
async function crashDuringRuns(url, worker, moment) {
  const browser = await launch();
  try {
    const page = await browser.newPage();
    await page.goto(`${url}/page/plain.html`);
    const { kind, off } = await page.evaluate(loadModel, worker);
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
    const lossInfo = await page.evaluate(() => globalThis.lossInfo());
    for (const [name, why] of Object.entries(lossInfo)) {
      assert.ok(why?.reason === "unknown" && typeof why.message === "string", `${name}: ${JSON.stringify(why)}`);
    }
    console.log(`crash: ${worker ? "in a worker" : "in the page"}, ${moment}: ok, ${during.length + 1} runs`);
  } finally {
    await browser.close();
  }
}

/** In the page: what tells that the GPU process ended. */
async function watch() {
  // one that nobody holds is collected, and does not tell
  globalThis.watched = await (await navigator.gpu.requestAdapter()).requestDevice();
  globalThis.lost = false;
  globalThis.watched.lost.then(() => (globalThis.lost = true));
}

/** In the page: Silero's detector on a sentence, frame by frame, so often that it is under way when the process ends. */
async function listen(worker) {
  const { vad } = await import("/gradloom/tasks.js");
  let [frames, all] = [0, []];
  globalThis.frames = () => frames;
  const how = { model: "/models/silero_vad_op18_ifless/recipe.json", device: "webgpu", worker, onFrame: () => (frames += 1) };
  const once = () => vad("/models/whisper_tiny_en/speech.wav", how).then(({ segments }) => segments);
  const want = await vad("/models/whisper_tiny_en/speech.wav", { ...how, device: "wasm" });
  // those of the GPU count: its process is to end in the middle of them
  frames = 0;
  globalThis.listening = (async () => {
    for (let over = false; !over; ) {
      over = globalThis.lost;
      all.push(await once().catch((error) => `${error.code}: ${error.message}`));
    }
    return { want: want.segments, all };
  })();
}

/** In the page: answers one after the other, and which of them somebody had heard of when the process ended. */
async function talk(worker) {
  const { chat } = await import("/gradloom/tasks.js");
  const all = [];
  let pieces = 0;
  globalThis.frames = () => pieces;
  const how = { model: "/models/verses/recipe.json", device: "webgpu", worker, maxTokens: 60, temperature: 0 };
  const say = async (hears) => {
    let isTold = false;
    const onText = () => {
      pieces += 1;
      isTold = hears;
    };
    const text = await chat("The LORD is my shepherd;", { ...how, ...(hears && { onText }) }).catch((error) => `${error.code}`);
    return { text, isTold };
  };
  const want = (await say(true)).text;
  pieces = 0;
  globalThis.listening = (async () => {
    for (let over = false; !over; ) {
      over = globalThis.lost;
      all.push(await say(true));
    }
    return { want, all, after: await say(false) };
  })();
}

/** In the page: a canvas that is painted anew for each picture, and what a task and a model make of it. A blank one makes something else. */
async function look(worker) {
  const { load } = await import("/gradloom/index.js");
  const { classify } = await import("/gradloom/tasks.js");
  const { imageInput } = await import("/gradloom/vision.js");
  const canvas = Object.assign(document.createElement("canvas"), { width: 192, height: 48 });
  const paint = () => {
    const pen = canvas.getContext("2d");
    pen.fillStyle = "#eee";
    pen.fillRect(0, 0, 192, 48);
    pen.fillStyle = "#123";
    pen.fillRect(20, 14, 60, 6);
  };
  let count = 0;
  globalThis.frames = () => count;
  const model = await load("/models/ppocr_cls/model.onnx", { device: "webgpu", worker });
  const options = { model: "/models/ppocr_cls/recipe.json", device: "webgpu", worker, k: 2 };
  const ways = {
    task: async () => (await classify(canvas, options)).sort((a, b) => a.index - b.index).map(({ score }) => score),
    model: async () => {
      const [out] = Object.values(await model.run({ x: imageInput(canvas, { size: [48, 192], channels: "bgr", mean: 0.5, std: 0.5 }) }));
      return [...(await out.data())];
    },
  };
  paint();
  const want = await ways.task();
  canvas.getContext("2d").clearRect(0, 0, 192, 48);
  const blank = await ways.task();
  const [all, lost] = [[], []];
  globalThis.listening = (async () => {
    // after the loss it goes on until a restored canvas gives a picture again, for a minute at most
    let restored = Infinity;
    const isOver = () => performance.now() > restored + 1000 && typeof all.at(-1) !== "string";
    canvas.addEventListener("contextrestored", () => (restored = performance.now()));
    for (let until = Infinity; performance.now() < until && !isOver(); until = globalThis.lost ? Math.min(until, performance.now() + 60_000) : until) {
      for (const way of Object.values(ways)) {
        paint();
        // painting does nothing then, and by the time of the call the canvas may be there again, blank
        const isPainted = !canvas.getContext("2d").isContextLost();
        const got = await way().catch((error) => error.code);
        if (isPainted) all.push(got);
        else lost.push(got);
        count += 1;
        // errors come at once, and the browser tells of losses in tasks
        await new Promise((done) => setTimeout(done));
      }
    }
    return { want, blank, all, lost };
  })();
}

/** What is under way when the process ends. */
async function crashDuringTask(url, worker, what, check) {
  const browser = await launch();
  try {
    const page = await browser.newPage();
    await page.goto(`${url}/page/plain.html`);
    await page.evaluate(watch);
    await page.evaluate(what, worker);
    await page.waitForFunction(() => globalThis.frames() > 5, null, { timeout: 120_000, polling: 20 });
    await crash(browser, page);
    console.log(`crash: ${what.name} ${worker ? "in a worker" : "in the page"}: ok, ${check(await page.evaluate(() => globalThis.listening))}`);
  } finally {
    await browser.close();
  }
}

function checkSegments({ want, all }) {
  assert.ok(want.length > 0);
  const off = ({ start, end }, i) => Math.abs(start - want[i].start) + Math.abs(end - want[i].end);
  const near = (got) => typeof got !== "string" && got.length === want.length && got.every((each, i) => off(each, i) < 0.2);
  for (const got of all) assert.ok(near(got), JSON.stringify(got));
  return `${all.length} times`;
}

function checkScores({ want, blank, all, lost }) {
  const near = (got, other) => got.every((v, i) => Math.abs(v - other[i]) < 1e-2);
  assert.ok(!near(blank, want), `a blank canvas is nothing else: ${blank}, ${want}`);
  const failed = all.filter((each) => typeof each === "string");
  for (const got of all) assert.ok(typeof got === "string" ? got === "E_DEVICE_LOST" : near(got, want), JSON.stringify(got));
  assert.notEqual(typeof all.at(-1), "string", "pictures go on");
  return `${all.length} pictures, ${failed.length} of them lost, and ${lost.length} of a canvas that was lost`;
}

function checkAnswers({ want, all, after }) {
  assert.ok(want.length > 40, want);
  const failed = all.filter(({ text }) => text !== want);
  for (const { text, isTold } of failed) assert.ok(text === "E_DEVICE_LOST" && isTold, text);
  assert.ok(failed.length <= 1);
  assert.equal(after.text, want);
  return `${all.length} answers, ${failed.length} of them cut`;
}

main(async () => {
  const server = await serve(mounts(unpackPackage()));
  try {
    for (const worker of [true, false]) {
      for (const moment of ["between two runs", "in the middle of runs"]) await crashDuringRuns(server.url, worker, moment);
      await crashDuringTask(server.url, worker, listen, checkSegments);
      await crashDuringTask(server.url, worker, talk, checkAnswers);
      await crashDuringTask(server.url, worker, look, checkScores);
    }
  } finally {
    await server.close();
  }
});
