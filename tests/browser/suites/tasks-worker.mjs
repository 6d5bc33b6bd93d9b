// Tasks in the page's worker, which is where a page has them: whatever a page has in hand goes there and stays the page's own, what comes
// out and what goes wrong is the same as in the page's own thread, and the page's thread computes nothing.
// configs: default, not-isolated
import { DeviceError, FetchError, FormatError, GradloomError, StateError, ValueError, init, memory } from "gradloom";
import { classify, fileType, open, removeBackground, unload, upscale, vad } from "gradloom/tasks";
import { readAudio } from "gradloom/audio";
import { allowConsoleErrors, assert, assertClose, assertEqual, errorOf, fetchBytes, test } from "harness";

// workers of models, so that one can be ended
const started = [];
globalThis.Worker = class extends Worker {
  constructor(script, options) {
    super(script, options);
    if (String(script).includes("remote-worker")) started.push(this);
  }
};

const DIRECTION = "/models/ppocr_cls/recipe.json";
const SPEECH = "/models/whisper_tiny_en/speech.wav";
const VOICE = { model: "/models/silero_vad_op18_ifless/recipe.json", device: "wasm" };
const [WIDTH, HEIGHT] = [192, 48];

/** What the page's own thread launched. */
const launches = async () => (await memory()).reduce((sum, each) => sum + (each.worker ? 0 : each.launches), 0);

function drawn() {
  const canvas = Object.assign(document.createElement("canvas"), { width: WIDTH, height: HEIGHT });
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  pen.fillStyle = "#eee";
  pen.fillRect(0, 0, WIDTH, HEIGHT);
  pen.fillStyle = "#123";
  pen.fillRect(20, 14, 60, 6);
  pen.fillRect(30, 20, 6, 20);
  pen.fillStyle = "rgb(200 40 40 / 50%)";
  pen.fillRect(100, 10, 70, 30);
  return canvas;
}

const fileOf = (canvas, type) => new Promise((done) => canvas.toBlob(done, type));
const SVG = `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${HEIGHT}"><rect width="${WIDTH}" height="${HEIGHT}" fill="#eee"/>
  <rect x="20" y="14" width="60" height="6" fill="#123"/></svg>`;

const scores = (ranks) => ranks.map(({ label, score }) => [label, Math.round(1e4 * score)]);

test("every kind of picture gives there what it gives here, and stays with whom it was", async () => {
  await init({ device: "wasm" });
  const canvas = drawn();
  const pixels = canvas.getContext("2d").getImageData(0, 0, WIDTH, HEIGHT);
  const hidden = new OffscreenCanvas(WIDTH, HEIGHT);
  hidden.getContext("2d").drawImage(canvas, 0, 0);
  const bitmap = await createImageBitmap(canvas);
  const frame = new VideoFrame(canvas, { timestamp: 0 });
  const png = await fileOf(canvas, "image/png");
  const url = URL.createObjectURL(png);
  const [image, drawing] = [new Image(), new Image()];
  image.src = url;
  const svg = new Blob([SVG], { type: "image/svg+xml" });
  drawing.src = URL.createObjectURL(svg);
  const bytes = new Uint8Array(await png.arrayBuffer());
  const rgb = { data: pixels.data.filter((_, i) => i % 4 < 3), width: WIDTH, height: HEIGHT };
  const file = new File([png], "a.png");
  const all = { canvas, pixels, hidden, bitmap, frame, png, file, bytes, buffer: bytes.buffer.slice(0), url, image, rgb, svg, drawing };
  const here = { model: DIRECTION, device: "wasm", worker: false };
  const want = {};
  for (const [name, source] of Object.entries(all)) want[name] = scores(await classify(source, here));
  assert(new Set(Object.values(want).map(String)).size >= 2, "the drawing and the picture are different things");
  const before = await launches();
  for (const [name, source] of Object.entries(all)) assertEqual(scores(await classify(source, { ...here, worker: true })), want[name], name);
  assertEqual((await launches()) - before, 0);
  assertEqual([bitmap.width, frame.displayWidth, bytes.length > 0, pixels.data.length], [WIDTH, WIDTH, true, 4 * WIDTH * HEIGHT]);
  frame.close();
  await unload();
});

test("what is no picture is the same error", async () => {
  const read = (source) => errorOf(() => classify(source, { model: DIRECTION, device: "wasm" }));
  await allowConsoleErrors(/404/);
  const page = await read("/page/plain.html");
  assert(page instanceof FormatError && page.message.includes("a web page"), String(page));
  assert((await read("/nothing.png")) instanceof FetchError);
  assertEqual((await read(new Blob([new Uint8Array(9)]))).code, "E_FORMAT");
  for (const wrong of [document.createElement("video"), document.createElement("div"), undefined, 3, { data: [1], width: 1, height: 1 }]) {
    const error = await read(wrong);
    assert(error instanceof ValueError && error.code === "E_VALUE", String(error));
  }
  assertEqual((await read(Object.assign(document.createElement("canvas"), { width: 0 }))).code, "E_VALUE");
  assertEqual((await read(new Image())).code, "E_FORMAT");
  // a browser may refuse the pixels of such a picture
  const foreign = SVG.replace("</svg>", '<foreignObject width="9" height="9"><p xmlns="http://www.w3.org/1999/xhtml">x</p></foreignObject></svg>');
  const image = Object.assign(new Image(), { src: URL.createObjectURL(new Blob([foreign], { type: "image/svg+xml" })) });
  const outcome = (worker) => classify(image, { model: DIRECTION, device: "wasm", worker }).then(scores, ({ code, hint }) => [code, hint]);
  assertEqual(await outcome(true), await outcome(false));
  const other = await errorOf(() => vad(SPEECH, { model: DIRECTION, device: "wasm" }));
  assert(other instanceof ValueError && other.message.includes("for classify, not for vad"), String(other));
  assertEqual((await errorOf(() => classify(drawn(), { model: "/page/plain.html" }))).code, "E_FORMAT");
  assertEqual((await errorOf(() => classify(drawn()))).code, "E_VALUE");
  await unload();
});

test("functions of the page are called, in order, and may fail", async () => {
  const told = [];
  const progress = new Set();
  const options = { model: "/models/esrgan_slim_x2/recipe.json", device: "wasm", tile: 32 };
  const picture = new ImageData(80, 40);
  const large = await upscale(picture, {
    ...options, onTile: (done, all) => told.push([done, all]), onModel: ({ url }) => told.push(url), onProgress: ({ phase }) => progress.add(phase),
  });
  assert(large instanceof ImageData, "a picture comes back as one");
  assertEqual([large.width, large.height], [160, 80]);
  assertEqual(told, [new URL("/models/esrgan_slim_x2/model.onnx", location.href).href, ...[1, 2, 3, 4, 5, 6].map((done) => [done, 6])]);
  assert(progress.has("download") && progress.has("parse"), [...progress].join());
  const failed = await errorOf(() => upscale(picture, { ...options, onTile: () => { throw new RangeError("no more"); } }));
  assert(failed instanceof RangeError && failed.message === "no more", String(failed));
  const stop = new AbortController();
  let tiles = 0;
  const onTile = () => (tiles += 1) === 2 && stop.abort(new Error("enough"));
  const ended = await errorOf(() => upscale(picture, { ...options, signal: stop.signal, onTile }));
  assertEqual(ended.message, "enough");
  await upscale(picture, options);
  assert(tiles < 6, `it went on for ${tiles} tiles`);
  await unload();
});

test("files are fetched by a function of the page's", async () => {
  const asked = [];
  const get = async (address, how) => {
    asked.push(new URL(address).pathname);
    assert(!(how?.body), "only asked for");
    return fetch(address, how);
  };
  const magika = { model: "/models/magika/recipe.json", device: "wasm" };
  const kind = await fileType(new Blob(["#include <stdio.h>\nint main(void) { return 0; }\n"]), { ...magika, fetch: get });
  assertEqual(kind.label, "c");
  assertEqual(asked, ["/models/magika/recipe.json", "/models/magika/model.onnx"]);
  await unload();
  const broken = async () => {
    throw new TypeError("no net");
  };
  const refused = await errorOf(() => fileType(new Blob(["x"]), { ...magika, fetch: broken }));
  assert(refused instanceof FetchError && refused.message.includes("no net"), String(refused));
});

/** Samples of 16 bits as a FLAC file, which stores them as they are. */
function flac(samples, rate) {
  const BLOCK = 4096;
  const bits = (n, count) => Array.from({ length: count }, (_, i) => Math.floor(n / 2 ** (8 * (count - 1 - i))) & 255);
  const crc = (bytes, poly, width) => bytes.reduce((sum, byte) => {
    let value = sum ^ (byte << (width - 8));
    for (let i = 0; i < 8; i += 1) value = value & (1 << (width - 1)) ? (value << 1) ^ poly : value << 1;
    return value & (2 ** width - 1);
  }, 0);
  const out = [..."fLaC"].map((c) => c.charCodeAt(0));
  // rate in 20 bits, channels in 3, bits of a sample in 5, samples in 36
  out.push(0x80, 0, 0, 34, ...bits(BLOCK, 2), ...bits(BLOCK, 2), 0, 0, 0, 0, 0, 0);
  out.push(rate >> 12, (rate >> 4) & 255, (rate & 15) << 4, 0xf0, ...bits(samples.length, 4), ...new Array(16).fill(0));
  for (let at = 0, number = 0; at < samples.length; at += BLOCK, number += 1) {
    const part = samples.subarray(at, at + BLOCK);
    const frame = [0xff, 0xf8, 0x75, 0x08, number, ...bits(part.length - 1, 2)];
    frame.push(crc(frame, 0x07, 8), 0x02);
    for (const v of part) frame.push((v >> 8) & 255, v & 255);
    out.push(...frame, ...bits(crc(frame, 0x8005, 16), 2));
  }
  return new Uint8Array(out);
}

test("sounds of every kind are heard there, and files that only a page decodes", async () => {
  const { channels: [samples], sampleRate } = await readAudio(SPEECH);
  assertEqual(sampleRate, 16_000);
  const want = await vad(SPEECH, { ...VOICE, worker: false });
  assert(want.segments.length > 0);
  const buffer = new AudioBuffer({ numberOfChannels: 1, length: samples.length, sampleRate });
  buffer.copyToChannel(samples, 0);
  const packed = flac(Int16Array.from(samples, (v) => Math.round(32768 * v)), sampleRate);
  const before = await launches();
  for (const source of [SPEECH, new Blob([await fetchBytes(SPEECH)]), buffer, { channels: [samples], sampleRate }, packed, new Blob([packed])]) {
    const frames = [];
    const heard = await vad(source, { ...VOICE, onFrame: (p) => frames.push(p) });
    assert(heard.probabilities instanceof Float32Array);
    assertClose(heard.probabilities, want.probabilities, { tolerance: 2e-3 });
    assertClose(frames, heard.probabilities, { tolerance: 1e-6 });
    assertEqual(heard.segments.length, want.segments.length);
  }
  assertEqual((await launches()) - before, 0);
  assert(samples.length > 0 && buffer.length > 0 && packed.length > 0, "nothing was taken");
  const noise = await errorOf(() => vad(new Uint8Array(1000).fill(7), VOICE));
  assert(noise instanceof FormatError, String(noise));
  await unload();
});

test("what is opened is a model of the worker's, and is freed there", async () => {
  await init({ device: "wasm" });
  const row = async () => (await memory()).find(({ device, worker }) => device === "wasm" && worker)?.bytes ?? 0;
  const opened = await open("/models/selfie_segmentation/recipe.json", { device: "wasm" });
  assertEqual([opened.recipe.task, opened.model.device.kind, opened.url.pathname], ["removeBackground", "wasm", "/models/selfie_segmentation/recipe.json"]);
  const { mask } = await removeBackground(drawn(), { model: opened });
  assert(mask.length === WIDTH * HEIGHT && mask.every((v) => v >= 0 && v <= 1));
  const held = await row();
  opened.dispose();
  const over = await errorOf(() => removeBackground(drawn(), { model: opened }));
  assert(over instanceof StateError && over instanceof GradloomError, String(over));
  assert((await row()) < held, `${await row()} of ${held} bytes`);
});

test("a worker that dies is an error, and the next task has another one", async () => {
  await classify(drawn(), { model: DIRECTION, device: "wasm" });
  assert(started.length > 0);
  const working = errorOf(() => upscale(new ImageData(400, 400), { model: "/models/esrgan_slim_x2/recipe.json", device: "wasm", tile: 64 }));
  await new Promise((done) => setTimeout(done, 300));
  started.at(-1).terminate();
  const error = await working;
  assert(error instanceof DeviceError && error.code === "E_DEVICE_LOST", String(error));
  assertEqual((await classify(drawn(), { model: DIRECTION, device: "wasm" })).length, 2);
  await unload();
});
