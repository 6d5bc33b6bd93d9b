// configs: default
// Pictures and a GPU that is lost: canvases, bitmaps and frames that its process held read as blank then, without an error, so that what was
// posted to the worker is posted again, from pixels, and an error says so if there is nothing left to read.
import { DeviceError, init, load } from "gradloom";
import { classify, unload } from "gradloom/tasks";
import { fromImage, imageInput } from "gradloom/vision";
import { assert, assertClose, assertEqual, errorOf, test, testOnWebGpu } from "harness";
import { losing } from "/lib/losing.mjs";

// The workers of models, whose GPU is lost by a word, and what is posted to them; `atPicture` is called after a bitmap was.
const workers = [];
const posted = [];
let atPicture = () => {};
globalThis.Worker = class extends Worker {
  constructor(script, options) {
    const isOurs = String(script).includes("remote-worker");
    super(isOurs ? losing(script) : script, options);
    if (isOurs) workers.push(this);
  }
  postMessage(message, transfer = []) {
    super.postMessage(message, transfer);
    const kinds = [...transfer].map((each) => each.constructor.name).filter((name) => name !== "MessagePort");
    posted.push(...kinds);
    if (kinds.some((name) => name === "ImageBitmap" || name === "VideoFrame")) atPicture();
  }
};
const lose = () => workers.at(-1).postMessage("lose");

const [WIDTH, HEIGHT] = [192, 48];
const canvas = Object.assign(document.createElement("canvas"), { width: WIDTH, height: HEIGHT });
const pen = canvas.getContext("2d", { willReadFrequently: true });
function paint() {
  pen.fillStyle = "#eee";
  pen.fillRect(0, 0, WIDTH, HEIGHT);
  pen.fillStyle = "#123";
  pen.fillRect(20, 14, 60, 6);
  pen.fillRect(30, 20, 6, 20);
}
/** The canvas as it is once its GPU process has ended. */
const blank = () => pen.clearRect(0, 0, WIDTH, HEIGHT);

/** Checks what one way of running a model does; `run` gives numbers. */
async function check(run) {
  paint();
  posted.length = 0;
  const want = await run(canvas);
  assertEqual(posted, ["ImageBitmap"]);
  // the picture is still there
  posted.length = 0;
  lose();
  assertClose(await run(canvas), want, { tolerance: 1e-3 });
  assertEqual(posted, ["ImageBitmap", "ArrayBuffer"]);
  // it went with the GPU
  lose();
  atPicture = blank;
  const error = await errorOf(() => run(canvas));
  assert(error instanceof DeviceError && error.code === "E_DEVICE_LOST" && error.message.includes("the picture"), String(error));
  atPicture = () => {};
  paint();
  assertClose(await run(canvas), want, { tolerance: 1e-3 });
  // what the GPU does not hold is there for another run in the worker
  const pixels = pen.getImageData(0, 0, WIDTH, HEIGHT);
  const png = await new Promise((done) => canvas.toBlob(done, "image/png"));
  for (const source of [pixels, png]) {
    posted.length = 0;
    lose();
    assertClose(await run(source), want, { tolerance: 1e-3 });
    assertEqual(posted, source === pixels ? ["ArrayBuffer"] : []);
  }
}

testOnWebGpu("a task posts its picture again after the loss, and never takes a blank one", async () => {
  await init({ device: "webgpu" });
  const options = { model: "/models/ppocr_cls/recipe.json", device: "webgpu", k: 2 };
  await check(async (source) => {
    const ranks = await classify(source, options);
    return ranks.sort((a, b) => a.index - b.index).map(({ score }) => score);
  });
  await unload();
});

testOnWebGpu("so does a run of a model", async () => {
  await init({ device: "webgpu" });
  const model = await load("/models/ppocr_cls/model.onnx", { device: "webgpu" });
  await check(async (source) => {
    const { [model.outputs[0].name]: out } = await model.run({ x: imageInput(source, { size: [HEIGHT, WIDTH], channels: "bgr", mean: 0.5, std: 0.5 }) });
    return out.data();
  });
  model.dispose();
});

test("a canvas that has lost what it held is an error, until it is drawn again", async () => {
  await init({ device: "wasm" });
  paint();
  const options = { model: "/models/ppocr_cls/recipe.json", device: "wasm", k: 2 };
  const want = await classify(canvas, options);
  const hidden = new OffscreenCanvas(WIDTH, HEIGHT);
  hidden.getContext("2d").drawImage(canvas, 0, 0);
  for (const source of [canvas, hidden]) {
    // as the browser says from the loss until it restores the context
    source.getContext("2d").isContextLost = () => true;
    const reads = [() => fromImage(source), () => classify(source, options), () => classify(source, { ...options, worker: false })];
    for (const read of reads) {
      const error = await errorOf(read);
      assertEqual([error.code, error.message], ["E_DEVICE_LOST", "the browser has lost what the canvas held"]);
      assert(error.hint.includes("contextrestored"), error.hint);
    }
    delete source.getContext("2d").isContextLost;
    assertEqual((await classify(source, options)).map(({ label }) => label), want.map(({ label }) => label));
  }
  // a canvas that another thread draws has no context here
  const shown = Object.assign(document.createElement("canvas"), { width: 8, height: 6 });
  shown.transferControlToOffscreen();
  assertEqual((await fromImage(shown)).shape, [1, 3, 6, 8]);
  await unload();
});
