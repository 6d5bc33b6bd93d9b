// configs: default
// Pictures and sounds as only a page has them: elements, canvases, frames, files that the browser decodes.
import { DataLoader, Pictures } from "gradloom/data";
import { Tensor, init, memory, stats } from "gradloom";
import { fromAudio, readAudio, writeWav } from "gradloom/audio";
import { fromImage, toBlob, toCanvas, toImageData } from "gradloom/vision";
import { allowConsoleErrors, assert, assertClose, assertEqual, errorOf, fetchBytes, test, testOnWebGpu } from "harness";
import { HEIGHT, PIXELS, WIDTH, countReadbacks, drawnCanvas, translucentCanvas } from "../page/pictures.mjs";

const fileOf = (canvas, type, quality) => new Promise((done) => canvas.toBlob(done, type, quality));

async function isPicture(source, most = 0, options = {}) {
  const t = await fromImage(source, { layout: "hwc", dtype: "u8", ...options });
  assertEqual(t.shape, [HEIGHT, WIDTH, 3]);
  const values = await t.data("u8");
  let off = 0;
  for (let i = 0; i < WIDTH * HEIGHT; i += 1) for (let c = 0; c < 3; c += 1) off = Math.max(off, Math.abs(values[3 * i + c] - PIXELS[4 * i + c]));
  assert(off <= most, `off by ${off}`);
}

test("a device that was only looked at is not counted among those in use", async () => {
  const { kind } = await init({ device: "auto" });
  assertEqual((await memory()).map((each) => each.device), [kind]);
  assertEqual((await stats()).map((each) => each.device), [kind]);
});

test("every kind of picture gives its pixels", async () => {
  await init({ device: "wasm" });
  const canvas = drawnCanvas();
  await isPicture(canvas);
  await isPicture(new ImageData(PIXELS, WIDTH, HEIGHT));
  const hidden = new OffscreenCanvas(WIDTH, HEIGHT);
  hidden.getContext("2d").drawImage(canvas, 0, 0);
  await isPicture(hidden);
  await isPicture(await createImageBitmap(canvas));
  const png = await fileOf(canvas, "image/png");
  await isPicture(png);
  await isPicture(new File([png], "a.png"));
  await isPicture(await png.arrayBuffer());
  const url = URL.createObjectURL(png);
  await isPicture(url);
  await isPicture(new URL(url));
  const image = new Image();
  image.src = url;
  // it need not be there yet
  await isPicture(image);
  await isPicture(await fileOf(canvas, "image/jpeg", 1), 40);
  const frame = new VideoFrame(canvas, { timestamp: 0 });
  await isPicture(frame, 4);
  frame.close();
  URL.revokeObjectURL(url);
});

testOnWebGpu("pictures go to the GPU as they are, and are there what they are on the host", async () => {
  const device = await init({ device: "webgpu" });
  const canvas = drawnCanvas();
  const hidden = new OffscreenCanvas(WIDTH, HEIGHT);
  hidden.getContext("2d").drawImage(canvas, 0, 0);
  const png = await fileOf(canvas, "image/png");
  const image = new Image();
  image.src = URL.createObjectURL(png);
  const frame = new VideoFrame(canvas, { timestamp: 0 });
  const sources = { canvas, hidden, bitmap: await createImageBitmap(canvas), png, image, frame, glass: translucentCanvas() };
  const forms = [
    {},
    { size: [9, 11], fit: "cover", mean: 0.5, std: 0.25 },
    { size: [50, 64], fit: "contain", background: [114, 20, 7], layout: "nhwc" },
    { size: 20, crop: { x: 3.5, y: 2, width: 30, height: 21 }, resample: "bicubic", channels: "bgr", layout: "chw" },
    { size: [70, 33], resample: "nearest", channels: "grey", dtype: "u8" },
    { size: [15, 15], fit: "contain", align: "start", channels: "rgba", scale: 1, resample: "lanczos" },
    { size: 8, fit: "cover", shortSide: 12, resample: "box", dtype: "f16" },
  ];
  for (const [name, source] of Object.entries(sources)) {
    for (const form of name === "canvas" || name === "glass" ? forms : forms.slice(0, 2)) {
      const want = await fromImage(source, { ...form, gpu: false });
      let got;
      const count = await countReadbacks(async () => (got = await fromImage(source, { ...form, gpu: true })));
      const what = `${name} ${JSON.stringify(form)}`;
      assertEqual(count, 0, `${what} is read by the host`);
      assertEqual([got.shape, got.dtype, got.device.kind], [want.shape, want.dtype, device.kind], what);
      const [a, b] = [await got.data(got.dtype), await want.data(want.dtype)];
      // a byte may be rounded the other way; frames are in other colours until they are shown
      const step = form.dtype === "u8" || form.scale === 1 ? 1 : 1 / 255 / (form.std ?? 1);
      const most = (name === "frame" ? 4.1 : 1.1) * step;
      let [off, sum] = [0, 0];
      a.forEach((v, i) => {
        off = Math.max(off, Math.abs(v - b[i]));
        sum += Math.abs(v - b[i]);
      });
      assert(off <= most && (name === "frame" || sum / a.length < 0.05 * step), `${what}: off by ${off / step} bytes, ${sum / a.length / step} in the mean`);
      assert(a.some((v) => v !== a[0]), what);
      got.dispose();
      want.dispose();
    }
  }
  sources.frame.close();
  // what is taken from the host stays so, and what is there is freed
  const held = (await memory()).find((each) => each.device === "webgpu");
  for (let i = 0; i < 3; i += 1) (await fromImage(canvas, { ...forms[1], gpu: true })).dispose();
  const after = (await memory()).find((each) => each.device === "webgpu");
  assertEqual([after.tensors, after.bytes], [held.tensors, held.bytes]);
  const odd = await errorOf(() => fromImage(canvas, { gpu: true, crop: { x: 30, y: 0, width: 30, height: 5 } }));
  assert(/is not inside/.test(odd.message), odd.message);
  assertEqual((await fromImage({ data: PIXELS, width: WIDTH, height: HEIGHT }, { gpu: true })).shape, [1, 3, HEIGHT, WIDTH]);
});

test("a picture that turns by its file's own word is upright", async () => {
  const jpeg = new Uint8Array(await (await fileOf(drawnCanvas(), "image/jpeg", 1)).arrayBuffer());
  // EXIF with orientation 6: turn right
  const name = [..."Exif\0\0"].map((c) => c.charCodeAt(0));
  const exif = [0xff, 0xe1, 0, 34, ...name, 0x4d, 0x4d, 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 3, 0, 0, 0, 1, 0, 6, 0, 0, 0, 0, 0, 0];
  const turned = new Blob([jpeg.subarray(0, 2), new Uint8Array(exif), jpeg.subarray(2)], { type: "image/jpeg" });
  assertEqual((await fromImage(turned)).shape, [1, 3, WIDTH, HEIGHT]);
});

test("a canvas and its pixels become the same tensor", async () => {
  const small = { size: [9, 11], fit: "cover", mean: 0.5, std: 0.25 };
  const [a, b] = [await fromImage(drawnCanvas(), small), await fromImage({ data: PIXELS, width: WIDTH, height: HEIGHT }, small)];
  assertEqual([...(await a.data())], [...(await b.data())]);
});

test("pictures that cannot be read say why", async () => {
  const web = await errorOf(() => fromImage("/page/plain.html"));
  assertEqual(web.code, "E_FORMAT");
  assert(web.message.includes("a web page") && web.message.includes("plain.html"), web.message);
  await allowConsoleErrors(/404/);
  assertEqual((await errorOf(() => fromImage("/nothing.png"))).code, "E_FETCH");
  assertEqual((await errorOf(() => fromImage(new Blob([new Uint8Array(9)])))).code, "E_FORMAT");
  assertEqual((await errorOf(() => fromImage(document.createElement("video")))).code, "E_VALUE");
  assertEqual((await errorOf(() => fromImage(document.createElement("div")))).code, "E_VALUE");
  assertEqual((await errorOf(() => fromImage(document.createElement("canvas"), { size: 0 }))).code, "E_VALUE");
  assertEqual((await errorOf(() => fromImage(Object.assign(document.createElement("canvas"), { width: 0 })))).code, "E_VALUE");
  assertEqual((await errorOf(() => fromImage(new Image()))).code, "E_FORMAT");
});

test("tensors become pictures on canvases and in files", async () => {
  const t = await fromImage(drawnCanvas());
  const picture = await toImageData(t);
  assert(picture instanceof ImageData);
  assertEqual([...picture.data], [...PIXELS]);
  const canvas = document.createElement("canvas");
  assert((await toCanvas(t, canvas)) === canvas);
  await isPicture(canvas);
  await isPicture(await toCanvas(t));
  const png = await toBlob(t);
  assertEqual(png.type, "image/png");
  await isPicture(png);
  assertEqual((await toBlob(t, { type: "image/jpeg", quality: 0.9 })).type, "image/jpeg");
  assertEqual((await errorOf(() => toBlob(t, { type: "image/x-none" }))).code, "E_UNSUPPORTED");
  assertEqual((await errorOf(() => toCanvas(t, {}))).code, "E_VALUE");
  t.dispose();
});

test("sounds are decoded by us or by the browser, at the rate that is asked for", async () => {
  const samples = Float32Array.from({ length: 4410 }, (_, i) => Math.sin(i / 10));
  const wav = writeWav({ channels: [samples], sampleRate: 44_100 }, { float: true });
  assertEqual([...(await (await fromAudio(new Blob([wav]))).data())], [...samples]);
  const context = new OfflineAudioContext(1, 1, 44_100);
  const buffer = await context.decodeAudioData(wav.slice().buffer);
  assertEqual((await readAudio(buffer)).sampleRate, 44_100);
  assertEqual((await fromAudio(buffer, { sampleRate: 16_000 })).shape, [1600]);
  const speech = await fetchBytes("/models/whisper_tiny_en/speech.wav");
  const { sampleRate, channels } = await readAudio("/models/whisper_tiny_en/speech.wav");
  assertEqual(sampleRate, 16_000);
  const theirs = await new OfflineAudioContext(1, 1, 16_000).decodeAudioData(speech.slice().buffer);
  assertClose(channels[0], theirs.getChannelData(0), { tolerance: 1e-4 });
  const web = await errorOf(() => fromAudio("/page/plain.html"));
  assert(web.code === "E_FORMAT" && web.message.includes("a web page"), web.message);
  assertEqual((await errorOf(() => fromAudio(new Blob(["OggS rubbish"])))).code, "E_FORMAT");
  assertEqual((await new Tensor(samples).sum().data()).length, 1);
});

test("files of pictures are a data set, by their folders or as one says", async () => {
  const file = async (colour, name) => {
    const canvas = new OffscreenCanvas(8, 4);
    const pen = canvas.getContext("2d");
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 8, 4);
    return new File([await canvas.convertToBlob()], name);
  };
  const files = [await file("#ff0000", "red.png"), await file("#0000ff", "blue.png"), await file("#ff0000", "red too.png")];
  const set = new Pictures(files, { size: [2, 4], label: ({ name }) => name.split(/[ .]/)[0] });
  assertEqual([set.length, set.classes], [3, ["blue", "red"]]);
  const seen = [];
  for await (const { x, y } of new DataLoader(set, { batchSize: 2 })) seen.push([x.shape, await y.tolist(), (await x.data())[0]]);
  assertEqual(seen, [[[2, 3, 2, 4], [1, 0], 1], [[1, 3, 2, 4], [1], 1]]);
  // files of a folder that was chosen have their paths
  ["all/warm/red.png", "all/cold/blue.png"].forEach((value, at) => Object.defineProperty(files[at], "webkitRelativePath", { value }));
  assertEqual(new Pictures(files.slice(0, 2), { size: 2 }).classes, ["cold", "warm"]);
});
