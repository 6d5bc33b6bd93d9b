// configs: default, no-webgpu
// Pictures as inputs of models: they are converted where the model is, so that nothing is read back from the page's GPU before.
import { init, load, memory } from "gradloom";
import { fromImage, imageInput } from "gradloom/vision";
import { assert, assertClose, assertEqual, deviceKinds, errorOf, test, testOnWebGpu } from "harness";
import { HEIGHT, PIXELS, WIDTH, countReadbacks, drawnCanvas } from "../page/pictures.mjs";

const MODEL = "/models/ppocr_cls/model.onnx";
const FORM = { size: [48, 192], fit: "contain", background: [9, 200, 30], channels: "bgr", mean: 0.5, std: 0.5 };

/** What was posted to workers, by class. */
const posted = [];
const { postMessage } = Worker.prototype;
Worker.prototype.postMessage = function (message, transfer) {
  for (const each of transfer ?? []) posted.push(each.constructor.name);
  return postMessage.call(this, message, transfer);
};

const outputOf = async (model, x) => {
  const { [model.outputs[0].name]: out } = await model.run({ x });
  const values = [...(await out.data())];
  out.dispose();
  return values;
};

/** How often buffers of the page's GPU are mapped, and its canvases read. */
async function countTransfers(body) {
  const prototype = globalThis.GPUBuffer?.prototype;
  const mapAsync = prototype?.mapAsync;
  let count = 0;
  if (prototype) prototype.mapAsync = function (...args) { return (count += 1), mapAsync.apply(this, args); };
  try {
    return count + (await countReadbacks(body)) + count;
  } finally {
    if (prototype) prototype.mapAsync = mapAsync;
  }
}

const launches = async () => (await memory()).reduce((sum, each) => sum + (each.worker ? 0 : each.launches), 0);

for (const kind of deviceKinds) {
  test(`every kind of picture gives what its tensor gives, on ${kind}, in the worker and in the page`, async () => {
    const device = await init({ device: kind });
    const canvas = drawnCanvas();
    const png = await new Promise((done) => canvas.toBlob(done, "image/png"));
    const image = Object.assign(new Image(), { src: URL.createObjectURL(png) });
    const frame = new VideoFrame(canvas, { timestamp: 0 });
    const bitmap = await createImageBitmap(canvas);
    const pixels = new ImageData(PIXELS, WIDTH, HEIGHT);
    const rgb = { data: PIXELS.filter((_, i) => i % 4 < 3), width: WIDTH, height: HEIGHT };
    const drawing = `<svg xmlns="http://www.w3.org/2000/svg" width="40" height="30"><rect width="20" height="30" fill="#e31"/></svg>`;
    const svg = new Blob([drawing], { type: "image/svg+xml" });
    const sources = { svg, canvas, png, image, frame, bitmap, pixels, rgb, url: image.src, bytes: new Uint8Array(await png.arrayBuffer()) };
    const [here, there] = await Promise.all([false, true].map((worker) => load(MODEL, { device: kind, worker })));
    for (const [name, source] of Object.entries(sources)) {
      const t = await fromImage(source, { ...FORM, device });
      const want = await outputOf(here, t);
      t.dispose();
      // a frame of a film has its colours coded
      const tolerance = name === "frame" ? 2e-2 : 2e-3;
      for (const model of [here, there]) assertClose(await outputOf(model, imageInput(source, FORM)), want, { tolerance, what: name });
      // what was given is still there, for another run
      assertClose(await outputOf(there, imageInput(source, FORM)), want, { tolerance, what: `${name} again` });
    }
    assertEqual([bitmap.width, frame.displayWidth], [WIDTH, WIDTH]);
    frame.close();
    here.dispose();
    there.dispose();
  });
}

testOnWebGpu("a picture goes to a model in the worker without being read back", async () => {
  const device = await init({ device: "webgpu" });
  const model = await load(MODEL, { device: "webgpu" });
  const source = await createImageBitmap(drawnCanvas());
  const t = await fromImage(source, { ...FORM, device, gpu: true });
  // a tensor on the page's GPU is read, which shows that this counts
  assert((await countTransfers(() => outputOf(model, t))) > 0);
  const want = await outputOf(model, t);
  posted.length = 0;
  const before = await launches();
  let got;
  const count = await countTransfers(async () => (got = await outputOf(model, imageInput(source, { ...FORM, gpu: true }))));
  assertEqual([count, (await launches()) - before, posted.filter((name) => name !== "MessagePort")], [0, 0, ["ImageBitmap"]]);
  assertClose(got, want, { tolerance: 1e-3 });
  t.dispose();
  model.dispose();
});

test("a video's frame at the time of the run, and streams", async () => {
  await init({ device: "wasm" });
  const canvas = Object.assign(document.createElement("canvas"), { width: 192, height: 48 });
  const pen = canvas.getContext("2d");
  const paint = (colour) => {
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 192, 48);
  };
  paint("#fff");
  const model = await load("/models/selfie_segmentation/model.tflite", { device: "wasm" });
  const timer = setInterval(() => paint("#fff"), 20);
  const stream = canvas.captureStream(30);
  const x = imageInput(stream, { size: 256, layout: "nhwc" });
  const { activation_10: out } = await model.run({ input_1: x });
  assertEqual(out.shape, [1, 256, 256, 1]);
  const white = await fromImage({ data: new Uint8ClampedArray(4 * 4).fill(255), width: 2, height: 2 }, { size: 256, layout: "nhwc" });
  const { activation_10: want } = await model.run({ input_1: white });
  assertClose(await out.data(), await want.data(), { tolerance: 2e-2 });
  clearInterval(timer);
  for (const track of stream.getTracks()) track.stop();
  const error = await errorOf(() => model.run({ input_1: x }));
  assertEqual([error.code, error.message], ["E_VALUE", "the track has ended"]);
  model.dispose();
});

test("what is no picture is the same error in the worker and in the page, and no tensor stays", async () => {
  await init({ device: "wasm" });
  const models = await Promise.all([false, true].map((worker) => load(MODEL, { device: "wasm", worker })));
  for (const model of models) await outputOf(model, imageInput(drawnCanvas(), FORM));
  const tensors = async () => (await memory()).map((each) => each.tensors);
  const before = await tensors();
  for (const [source, options, code] of [
    [document.createElement("video"), FORM, "E_VALUE"],
    [new Blob([new Uint8Array(9)]), FORM, "E_FORMAT"],
    [drawnCanvas(), { ...FORM, channels: "cmyk" }, "E_VALUE"],
    [drawnCanvas(), { ...FORM, size: 0 }, "E_VALUE"],
    [undefined, FORM, "E_VALUE"],
  ]) {
    const errors = await Promise.all(models.map((model) => errorOf(() => outputOf(model, imageInput(source, options)))));
    assertEqual(errors.map((error) => error.code), [code, code], String(errors));
    assertEqual(errors[0].message, errors[1].message);
  }
  // a picture of another size than the model's
  for (const model of models) assertEqual((await errorOf(() => outputOf(model, imageInput(drawnCanvas(), { channels: "grey" })))).code, "E_INPUT");
  for (const model of models) for (let i = 0; i < 3; i += 1) await outputOf(model, imageInput(drawnCanvas(), FORM));
  assertEqual(await tensors(), before);
  models.forEach((model) => model.dispose());
});
