// Tasks, each with a model of tests/models: what comes out is what other runtimes gave for the same pictures, sounds and texts.
import assert from "node:assert/strict";
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { GradloomError, Tensor, init, memory, saveWeights } from "gradloom";
import { fromAudio } from "gradloom/audio";
import { chat, classify, detect, detectFaces, detectText, embed, fileType, midi, notes, ocr, open, readText } from "gradloom/tasks";
import { removeBackground, segment, similar, stylize, transcribe, unload, upscale, vad } from "gradloom/tasks";
import { nms, toBoxes } from "gradloom/vision";
import { model as onnx } from "../bench/browser/onnx.mjs";
import { leftOut } from "../lib/left_out.mjs";
import { readNpz } from "../lib/npz.mjs";
import { readPng } from "../lib/png.mjs";

const folder = new URL("../models/", import.meta.url);
const recipe = (name) => new URL(`${name}/recipe.json`, folder);
const arrays = (name, which) => readNpz(readFileSync(new URL(`${name}/${which}.npz`, folder)));
const first = (file) => Object.values(file)[0];
/** The options of each test: models on the device that all machines have. */
const using = (name, more = {}) => ({ model: recipe(name), device: "wasm", ...more });

/** The picture that a model's input was made of; `byte` undoes the numbers. */
function picture({ data, shape }, byte, { layout = "nchw", image = 0, order = [0, 1, 2] } = {}) {
  const [height, width] = layout === "nchw" ? shape.slice(2) : shape.slice(1);
  const plane = height * width;
  const out = new Uint8ClampedArray(4 * plane).fill(255);
  for (let at = 0; at < plane; at += 1) {
    for (let c = 0; c < 3; c += 1) {
      const v = data[3 * plane * image + (layout === "nchw" ? c * plane + at : 3 * at + c)];
      out[4 * at + order[c]] = byte(Number(v));
    }
  }
  return { data: out, width, height };
}

/** Each pixel several times. */
function resized({ data, width, height }, times) {
  const out = new Uint8ClampedArray(4 * width * height * times * times);
  for (let y = 0; y < height * times; y += 1) {
    for (let x = 0; x < width * times; x += 1) {
      const from = 4 * (Math.floor(y / times) * width + Math.floor(x / times));
      out.set(data.subarray(from, from + 4), 4 * (y * width * times + x));
    }
  }
  return { data: out, width: width * times, height: height * times };
}

const FETCH = "run `node scripts/fetch-models.mjs` first";
const fetched = (name) => existsSync(new URL(`../../.cache/models/${name}`, import.meta.url));

const close = (got, want, most, what) => {
  assert.equal(got.length, want.length, what);
  for (let i = 0; i < want.length; i += 1) assert.ok(Math.abs(got[i] - want[i]) <= most, `${what}[${i}]: ${got[i]}, ${want[i]}`);
};

before(() => init({ device: "wasm" }));
after(() => unload());

test("each task is what a page of the gallery does its work by", async () => {
  const demos = new URL("../../www/demos/", import.meta.url);
  const pages = readdirSync(demos, { withFileTypes: true }).filter((each) => each.isDirectory());
  const code = pages.map(({ name }) => readFileSync(new URL(`${name}/code.js`, demos), "utf8"));
  const imported = code.flatMap((text) => /import \{([^}]*)\} from "gradloom\/tasks"/.exec(text)?.[1].split(",").map((name) => name.trim()) ?? []);
  // those that manage models, which the pages' frame does, and another name
  const tasks = Object.keys(await import("gradloom/tasks")).filter((name) => !["open", "unload", "setModelBase", "ocr"].includes(name));
  assert.ok(tasks.length >= 17, `${tasks}`);
  assert.deepEqual(tasks.filter((name) => !imported.includes(name)), []);
});

test("classify: which way a text runs", async () => {
  const input = first(await arrays("ppocr_cls", "input"));
  const want = first(await arrays("ppocr_cls", "expected")).data;
  for (const [image, label] of [[0, "0"], [1, "180"]]) {
    const [best, other] = await classify(picture(input, (v) => (v * 0.5 + 0.5) * 255, { image, order: [2, 1, 0] }), using("ppocr_cls"));
    assert.equal(best.label, label);
    close([best.score, other.score], [want[2 * image + image], want[2 * image + 1 - image]], 1e-3, label);
  }
});

test("classify: a network whose file is weights alone", async () => {
  if (!fetched("efficientnet_lite0/model.pth")) return leftOut("classify", FETCH);
  const { image } = await arrays("efficientnet_lite0", "input");
  const { logits } = await arrays("efficientnet_lite0", "expected");
  for (const [row, label] of [[0, "Egyptian cat"], [1, "espresso"]]) {
    const got = await classify(picture(image, (v) => v, { image: row }), using("efficientnet_lite0"));
    assert.equal(got[0].label, label);
    const values = [...logits.data.slice(1000 * row, 1000 * (row + 1))];
    const sum = values.reduce((all, v) => all + Math.exp(v), 0);
    close(got.map(({ score }) => score), values.map((v) => Math.exp(v) / sum).sort((a, b) => b - a).slice(0, 5), 1e-4, label);
  }
  const other = { ...JSON.parse(readFileSync(recipe("efficientnet_lite0"))), more: { network: "unknown" }, model: recipe("magika").href };
  const model = `data:application/json,${encodeURIComponent(JSON.stringify(other))}`;
  const dot = { data: new Uint8ClampedArray(4), width: 1, height: 1 };
  await assert.rejects(classify(dot, { model, device: "wasm" }), { code: "E_FORMAT", message: /the network `unknown` is none/ });
});

test("stylize: one style, and several at once", async () => {
  const { image, style_weights: weights } = await arrays("style_multistyle26", "input");
  const { stylized } = await arrays("style_multistyle26", "expected");
  const source = picture(image, (v) => v * 255);
  const got = await stylize(source, using("style_multistyle26", { style: [...weights.data] }));
  const want = picture(stylized, (v) => v * 255);
  assert.deepEqual([got.width, got.height], [256, 256]);
  close(got.data, want.data, 1, "painted");
  const one = await stylize(source, using("style_multistyle26", { style: 3 }));
  assert.ok(one.data.some((v, i) => Math.abs(v - got.data[i]) > 40));
  await assert.rejects(stylize(source, using("style_multistyle26", { style: 99 })), { code: "E_VALUE", message: /99 is none of 26 styles/ });
});

test("removeBackground: the person stays", async () => {
  const input = first(await arrays("selfie_segmentation", "input"));
  const want = first(await arrays("selfie_segmentation", "expected")).data;
  const source = picture(input, (v) => v * 255, { layout: "nhwc" });
  const { picture: got, mask } = await removeBackground(source, using("selfie_segmentation"));
  close(mask, want, 2e-3, "mask");
  mask.forEach((m, i) => assert.ok(Math.abs(got.data[4 * i + 3] - 255 * m) <= 1));
  assert.deepEqual([...got.data.subarray(0, 3)], [...source.data.subarray(0, 3)]);
});

test("segment: the person and what is around", async () => {
  const input = first(await arrays("selfie_segmentation", "input"));
  const want = first(await arrays("selfie_segmentation", "expected")).data;
  const source = picture(input, (v) => v * 255, { layout: "nhwc" });
  const using = { model: new URL("selfie_segmentation/segment.json", folder), device: "wasm" };
  const { width, height, classes, segments } = await segment(source, using);
  assert.deepEqual([width, height], [256, 256]);
  // pixels that are nearly as likely to be one as the other may be either
  classes.forEach((c, i) => assert.ok(c === Number(want[i] > 0.5) || Math.abs(want[i] - 0.5) < 2e-3, `pixel ${i}: ${c}, ${want[i]}`));
  const people = classes.reduce((sum, c) => sum + c, 0) / classes.length;
  assert.ok(people > 0.05 && people < 0.95, `${people}`);
  const named = Object.fromEntries(segments.map(({ label, share }) => [label, share]));
  assert.deepEqual(named, { background: 1 - people, person: people });
  assert.ok(segments[0].share >= segments[1].share);
  await assert.rejects(segment(source, { ...using, model: recipe("selfie_segmentation") }), { code: "E_VALUE", message: /removeBackground, not for segment/ });
});

test("segment: the likeliest of several classes", async () => {
  // a model that gives what it is given: its classes are how red, green and blue a pixel is
  const file = onnx({ x: { shape: [1, 3, 4, 4], dtype: "float32" } }, {}, [["Relu", ["x"], "y"]], [1, 3, 4, 4]);
  const model = `data:application/octet-stream;base64,${Buffer.from(file).toString("base64")}`;
  const text = { task: "segment", model, name: "colours", license: "CC0-1.0", image: { size: 4 }, labels: ["red", "green", "blue"] };
  const source = { data: new Uint8ClampedArray(4 * 8 * 6), width: 8, height: 6 };
  // a blue half and a green one, and a red corner of what is left
  for (let at = 0; at < 48; at += 1) source.data.set([0, at % 8 < 4 ? 0 : 200, at % 8 < 4 ? 200 : 0, 255], 4 * at);
  const using = { model: `data:application/json,${encodeURIComponent(JSON.stringify(text))}`, device: "wasm" };
  const { width, height, classes, segments } = await segment(source, using);
  assert.deepEqual([width, height, classes.length], [8, 6, 48]);
  classes.forEach((c, at) => at % 8 < 3 && assert.equal(c, 2, `pixel ${at}`));
  classes.forEach((c, at) => at % 8 > 4 && assert.equal(c, 1, `pixel ${at}`));
  assert.deepEqual(segments.map(({ label }) => label).sort(), ["blue", "green"]);
  assert.ok(Math.abs(segments.reduce((sum, { share }) => sum + share, 0) - 1) < 1e-9);
});

test("upscale: at once, and in tiles without seams", async () => {
  const input = first(await arrays("esrgan_slim_x2", "input"));
  const want = first(await arrays("esrgan_slim_x2", "expected"));
  const source = picture(input, (v) => v, { layout: "nhwc" });
  const got = await upscale(source, using("esrgan_slim_x2"));
  assert.deepEqual([got.width, got.height], [128, 128]);
  close(got.data, picture(want, (v) => v, { layout: "nhwc" }).data, 1, "enlarged");
  const tiles = [];
  const pieces = await upscale(source, using("esrgan_slim_x2", { tile: 32, onTile: (done, all) => void tiles.push([done, all]) }));
  assert.deepEqual(tiles, [[1, 4], [2, 4], [3, 4], [4, 4]]);
  const off = got.data.map((v, i) => Math.abs(v - pieces.data[i]));
  // what a pixel is made of reaches further than the rim of a tile, a little
  assert.ok(off.reduce((a, b) => a + b, 0) / off.length < 0.5 && Math.max(...off) < 40, `${Math.max(...off)}`);
});

test("vad: where somebody speaks", async () => {
  // the frames of the sequence model's input, each with the 64 samples before it, are one recording
  const { input } = await arrays("silero_vad_sequence", "input");
  const { speech_probs: want } = await arrays("silero_vad_sequence", "expected");
  const samples = new Float32Array(93 * 512);
  for (let i = 0; i < 93; i += 1) samples.set(input.data.subarray(576 * i + 64, 576 * (i + 1)), 512 * i);
  const heard = [];
  const sound = { channels: [samples], sampleRate: 16_000 };
  const { probabilities, frameSeconds, segments } = await vad(sound, using("silero_vad_op18_ifless", { onFrame: (p) => void heard.push(p) }));
  close(probabilities, want.data, 2e-3, "probabilities");
  assert.deepEqual(heard, [...probabilities]);
  assert.equal(frameSeconds, 0.032);
  const begin = want.data.findIndex((p) => p >= 0.5);
  assert.ok(segments.length >= 1);
  assert.equal(segments[0].start, begin * frameSeconds);
  assert.ok(segments.every(({ start, end }) => end - start >= 0.25 && end <= samples.length / 16_000));
  // the same in parts that end anywhere, as from a microphone
  const parts = [];
  let after;
  for (const [from, to] of [[0, 100], [100, 7000], [7000, 7001], [7001, 30_000], [30_000, samples.length]]) {
    const channels = [samples.subarray(from, to)];
    const part = await vad({ channels, sampleRate: 16_000 }, using("silero_vad_op18_ifless", { more: to < samples.length, ...(after && { after }) }));
    parts.push(...part.probabilities);
    after = part.heard;
  }
  assert.deepEqual(parts, [...probabilities]);
});

test("fileType: a script, a picture, a sound, and what is too small", async () => {
  const told = [];
  const kind = await fileType(new URL("../lib/npz.mjs", import.meta.url), using("magika", { onModel: (notice) => void told.push(notice) }));
  assert.deepEqual([kind.label, kind.sure], ["javascript", true]);
  assert.deepEqual([told.length, told[0].license, told[0].bytes], [1, "Apache-2.0", 3163737]);
  assert.equal((await fileType(readFileSync(new URL("../fixtures/images/bird/rgb.png", import.meta.url)), using("magika"))).label, "png");
  assert.equal((await fileType(new URL("whisper_tiny_en/speech.wav", folder), using("magika"))).label, "wav");
  assert.equal(await fileType(new Uint8Array(3), using("magika")), undefined);
});

test("detectText: two lines", async () => {
  const input = first(await arrays("ppocrv4_det", "input"));
  const map = first(await arrays("ppocrv4_det", "expected"));
  const source = picture(input, (v) => (v * 0.5 + 0.5) * 255, { order: [2, 1, 0] });
  const lines = await detectText(source, using("ppocrv4_det"));
  // lines were drawn at about 30 to 65 and 110 to 145
  const rows = lines.map(({ box: [, top, , bottom] }) => [top, bottom]);
  const between = (v, from, to) => v >= from && v <= to;
  const isFirst = ([top, bottom]) => between(top, 22, 45) && between(bottom, 50, 75);
  const isSecond = ([top, bottom]) => between(top, 102, 125) && between(bottom, 128, 155);
  assert.ok(rows.every((row) => isFirst(row) || isSecond(row)), `${rows}`);
  assert.ok(rows.some(([top]) => top < 60) && rows.some(([top]) => top > 90));
  // every pixel that onnxruntime finds to be text is in a line, and the lines are not much larger than that
  let [text, outside] = [0, 0];
  map.data.forEach((p, at) => {
    if (p <= 0.5) return;
    const [x, y] = [at % 640, Math.floor(at / 640)];
    text += 1;
    if (!lines.some(({ box: [l, t, r, b] }) => x >= l && x < r && y >= t && y < b)) outside += 1;
  });
  const area = lines.reduce((sum, { box: [l, t, r, b] }) => sum + (r - l) * (b - t), 0);
  assert.ok(text > 1000 && outside < text / 50 && area < 5 * text, `${outside} of ${text} outside, ${area}`);
  // the same picture, larger, is worked on smaller, and the boxes are its own
  const large = resized(source, 3);
  const far = await detectText(large, using("ppocrv4_det"));
  assert.equal(far.length, lines.length);
  far.forEach(({ box }, i) => box.forEach((v, c) => assert.ok(Math.abs(v / 3 - lines[i].box[c]) < 12, `${box}, ${lines[i].box}`)));
});

test("readText: what the two lines say", async () => {
  if (!fetched("ppocrv4_rec/model.onnx")) return leftOut("readText", FETCH);
  const input = first(await arrays("ppocrv4_det", "input"));
  const source = picture(input, (v) => (v * 0.5 + 0.5) * 255, { order: [2, 1, 0] });
  const heard = [];
  const { text, lines } = await readText(source, using("ppocrv4_rec", { onLine: (line) => heard.push(line.text) }));
  // PyPI rapidocr-onnxruntime reads the same with these models; that blanks are lost is the models' doing
  assert.equal(text, "Hello tiny compiler 2026\nWebGPUandWASMSIMD");
  assert.deepEqual(heard, text.split("\n"));
  assert.ok(lines.every(({ confidence, box }) => confidence > 0.9 && box[2] > box[0]), JSON.stringify(lines));
  // lines that are known are not looked for: here those of the lower half
  const found = (await detectText(source, using("ppocrv4_det"))).filter(({ box }) => box[1] > lines[0].box[3]);
  assert.equal((await readText(source, using("ppocrv4_rec", { lines: found }))).text, "WebGPUandWASMSIMD");
  assert.ok(lines.every(({ turned }) => !turned));
  // nothing is written in a white picture
  assert.deepEqual(await readText({ data: new Uint8Array(64 * 64).fill(255), width: 64, height: 64 }, using("ppocrv4_rec")), { text: "", lines: [] });
});

test("readText: a photograph of a printed page, whose lines are neither horizontal nor straight", async () => {
  const file = new URL("../../.cache/datasets/page.png", import.meta.url);
  if (!fetched("ppocrv4_rec/model.onnx") || !existsSync(file)) return leftOut("readText of a photograph", FETCH);
  const { text, lines } = await readText(readPng(readFileSync(file)), using("ppocrv4_rec"));
  // what is printed there, which a reader can check; this model loses blanks
  const printed = [
    "Region-based segmentation", "Let us first determine markers of the coins and the", "background. These markers are pixels that we can label",
    "unambiguously as either object or background. Here,", "the markers are found at the two extreme parts of the", "histogram of grey values:",
  ];
  const letters = (line) => line.replace(/[^A-Za-z]/g, "");
  const rows = text.split("\n").map(letters);
  assert.deepEqual(rows.slice(0, -1), printed.map(letters), text);
  assert.match(rows.at(-1), /^markersnp.*coins$/);
  assert.equal(lines.length, 7);
  assert.ok(lines.filter(({ curve }) => curve).length >= 5);
});

test("readText: pictures and lines that stand on their heads", async () => {
  if (!fetched("ppocrv4_rec/model.onnx")) return leftOut("readText", FETCH);
  const input = first(await arrays("ppocrv4_det", "input"));
  const source = picture(input, (v) => (v * 0.5 + 0.5) * 255, { order: [2, 1, 0] });
  const { width, height } = source;
  /** The rows from one to another turned by 180 degrees, each pixel. */
  const turned = (from, to) => {
    const pixels = new Uint32Array(source.data.buffer.slice(0));
    pixels.subarray(from * width, to * width).reverse();
    return { data: new Uint8ClampedArray(pixels.buffer), width, height };
  };
  // a pixel more or less at the edges decides whether the model sees blanks
  const said = (text) => text.replaceAll(" ", "");
  const heard = [];
  const all = await ocr(turned(0, height), using("ppocrv4_rec", { onLine: (line) => heard.push(line.text) }));
  assert.equal(said(all.text), "Hellotinycompiler2026\nWebGPUandWASMSIMD");
  assert.deepEqual(heard, all.text.split("\n"));
  assert.ok(all.lines.every((line) => line.turned && line.confidence > 0.9), JSON.stringify(all.lines));
  // where they are in the picture that was given
  assert.ok(all.lines[0].box[1] > all.lines[1].box[3], JSON.stringify(all.lines));
  // one of two: it is read where it is
  const upright = await readText(source, using("ppocrv4_rec"));
  const middle = Math.round((upright.lines[0].box[3] + upright.lines[1].box[1]) / 2);
  const one = await readText(turned(middle, height), using("ppocrv4_rec"));
  assert.deepEqual(one.lines.map((line) => [said(line.text), line.turned]), [["Hellotinycompiler2026", false], ["WebGPUandWASMSIMD", true]]);
  // a recipe without a classifier of directions reads upright lines alone
  const recipes = JSON.parse(readFileSync(recipe("ppocrv4_rec")));
  const { direction: _, ...more } = recipes.more;
  const at = (path) => new URL(path, recipe("ppocrv4_rec")).href;
  const plain = { ...recipes, model: at(recipes.model), more: { ...more, detect: at(more.detect), characters: at(more.characters) } };
  const address = `data:application/json,${encodeURIComponent(JSON.stringify(plain))}`;
  assert.equal((await readText(source, { model: address, device: "wasm" })).text, upright.text);
  assert.doesNotMatch(said((await readText(turned(0, height), { model: address, device: "wasm" })).text), /Hello|compiler|WebGPU/);
});

/** Tones with overtones that fade: pitch, beginning and end of each. */
const TUNE = [[60, 0.2, 0.7], [64, 0.7, 1.2], [67, 1.2, 1.7], [72, 1.7, 2.4], [60, 2.6, 3.6], [64, 2.6, 3.6], [67, 2.6, 3.6], [57, 3.8, 4.4], [57, 4.5, 5.2]];

/** What PyPI basic-pitch 0.4.0 hears in that: beginning, end, pitch and amplitude. */
const HEARD = [
  [0.1974, 0.7198, 60, 0.7814],
  [0.6966, 1.219, 64, 0.7778],
  [1.1842, 1.7299, 67, 0.779],
  [1.7067, 2.4278, 72, 0.7775],
  [1.7299, 2.0214, 100, 0.3526],
  [2.6019, 2.9734, 76, 0.3237],
  [2.6019, 3.612, 60, 0.7418],
  [2.6019, 3.612, 64, 0.7353],
  [2.6019, 3.6236, 67, 0.7602],
  [3.8094, 4.4956, 57, 0.7339],
  [4.4956, 5.2503, 57, 0.7805],
];

test("notes: a tune and a chord", async () => {
  const rate = 22_050;
  const samples = Float32Array.from({ length: 5.6 * rate }, (_, i) => {
    let sum = 0;
    for (const [pitch, from, to] of TUNE) {
      const s = i / rate - from;
      if (s < 0 || i / rate >= to) continue;
      const loud = Math.exp(-2 * s) * Math.min(1, s * 100) * Math.min(1, (to - i / rate) * 100);
      for (let k = 1; k <= 5; k += 1) sum += (loud * Math.sin(2 * Math.PI * 440 * 2 ** ((pitch - 69) / 12) * k * s)) / k ** 1.5;
    }
    return 0.25 * sum;
  });
  const parts = [];
  const found = await notes({ channels: [samples], sampleRate: rate }, using("basic_pitch", { onPart: (part) => parts.push(part) }));
  const order = (list) => list.map((row) => [...row]).sort((a, b) => Math.round(100 * (a[0] - b[0])) || a[2] - b[2]);
  const got = order(found.map(({ start, end, pitch, amplitude }) => [start, end, pitch, amplitude]));
  assert.deepEqual(got.map(([, , pitch]) => pitch), order(HEARD).map(([, , pitch]) => pitch));
  order(HEARD).forEach((want, i) => close(got[i], want, 2e-3, `note ${i}`));
  assert.ok(parts.length === 4 && parts.at(-1) === 1, `${parts}`);
  // a file of MIDI: the header, then each note twice
  const file = midi(found);
  assert.equal(String.fromCharCode(...file.subarray(0, 4), ...file.subarray(14, 18)), "MThdMTrk");
  assert.equal(new DataView(file.buffer).getUint32(18), file.length - 22);
  assert.deepEqual(await notes({ channels: [new Float32Array(1000)], sampleRate: rate }, using("basic_pitch")), []);
});

test("detect: boxes in the picture's own pixels", async () => {
  if (!fetched("yolov8n_nudenet/model.onnx")) return leftOut("detect", FETCH);
  const input = first(await arrays("yolov8n_nudenet", "input"));
  const want = first(await arrays("yolov8n_nudenet", "expected"));
  const got = await detect(picture(input, (v) => v * 255), using("yolov8n_nudenet"));
  const [rows, count] = want.shape.slice(1);
  const at = (row, i) => want.data[row * count + i];
  const best = Array.from({ length: count }, (_, i) => Math.max(...Array.from({ length: rows - 4 }, (_, c) => at(4 + c, i))));
  const classes = Array.from({ length: count }, (_, i) => Array.from({ length: rows - 4 }, (_, c) => at(4 + c, i)).indexOf(best[i]));
  const boxes = toBoxes(Array.from({ length: count }, (_, i) => [0, 1, 2, 3].map((row) => at(row, i))).flat(), "cxcywh");
  const kept = nms(boxes, best, { score: 0.2, classes });
  assert.ok(kept.length > 0 && got.length === kept.length, `${got.length} of ${kept.length}`);
  got.forEach(({ box, score, index }, i) => {
    assert.equal(index, classes[kept[i]]);
    close([...box, score], [...boxes[kept[i]].map((v) => Math.min(Math.max(v, 0), 320)), best[kept[i]]], 0.2, "box");
  });
});

test("detect: things told from places on grids", async () => {
  if (!fetched("ssd_mobilenet_v2/model.tflite")) return leftOut("detect", FETCH);
  const expected = JSON.parse(readFileSync(new URL("ssd_mobilenet_v2/expected.json", folder)));
  const { image } = await arrays("efficientnet_lite0", "input");
  const pictures = {
    astronaut: picture(first(await arrays("yolov8n_nudenet", "input")), (v) => v * 255),
    cat: picture(image, (v) => v),
    cup: picture(image, (v) => v, { image: 1 }),
  };
  for (const [name, { data, width }] of Object.entries(pictures)) {
    // the upper left of the picture, on grey where that ends
    const whole = { data: new Uint8ClampedArray(4 * 300 * 300).map((_, at) => (at % 4 === 3 ? 255 : 128)), width: 300, height: 300 };
    for (let row = 0; row < Math.min(300, width); row += 1) {
      whole.data.set(data.subarray(4 * row * width, 4 * (row * width + Math.min(300, width))), 4 * 300 * row);
    }
    const got = await detect(whole, using("ssd_mobilenet_v2", { score: 0.3 }));
    assert.deepEqual(got.map(({ label, index }) => [label, index]), expected[name].map(({ label, index }) => [label, index]), name);
    got.forEach(({ box, score }, i) => {
      const want = expected[name][i];
      close([score], [want.score], 1e-3, name);
      // as far as the box lies in the picture
      close(box, want.box.map((v) => Math.min(Math.max(v, 0), 300)), 0.1, name);
    });
  }
  assert.deepEqual(await detect({ data: new Uint8ClampedArray(4 * 90), width: 9, height: 10 }, using("ssd_mobilenet_v2")), []);
});

test("transcribe: a sentence, word by word", async () => {
  if (!fetched("whisper_tiny_en/model.safetensors")) return leftOut("transcribe", FETCH);
  const heard = [];
  // what is unloaded is freed in a later turn
  const unloaded = async () => {
    await unload();
    await new Promise((done) => setImmediate(done));
    return (await memory())[0].tensors;
  };
  const held = await unloaded();
  const speech = new URL("whisper_tiny_en/speech.wav", folder);
  const { text, pieces } = await transcribe(speech, using("whisper_tiny_en", { onText: (part) => void heard.push(part) }));
  // what the reference implementation hears too
  assert.equal(text, " He was not an old-sposed young man.");
  assert.equal(heard.join(""), text);
  assert.ok(heard.length > 5);
  assert.deepEqual([pieces.length, pieces[0].start, pieces[0].text], [1, 0, text]);
  assert.equal(await unloaded(), held);
});

test("embed and similar: sentences", async () => {
  if (!fetched("minilm_l6_v2/model.safetensors")) return leftOut("embed", FETCH);
  const { input_ids: ids, attention_mask: mask } = await arrays("minilm_l6_v2", "input");
  const { embedding } = await arrays("minilm_l6_v2", "expected");
  const { Tokenizer } = await import("gradloom");
  const tokenizer = await Tokenizer.load(new URL("../../.cache/models/minilm_l6_v2/tokenizer.json", import.meta.url));
  const row = (at) => [...ids.data.slice(10 * at, 10 * (at + 1))].map(Number).filter((_, i) => mask.data[10 * at + i]);
  const texts = [0, 1, 2].map((at) => tokenizer.decode(row(at)));
  const got = await embed(texts, using("minilm_l6_v2"));
  got.forEach((vector, row) => close(vector, embedding.data.slice(384 * row, 384 * (row + 1)), 1e-4, texts[row]));
  const found = await similar("a cat on the sofa", ["stock prices fell", "the kitten sleeps on the couch", "how to bake bread"], using("minilm_l6_v2"));
  assert.equal(found[0].index, 1);
  const vectors = await embed(found.map(({ text }) => text), using("minilm_l6_v2"));
  const again = await similar("a cat on the sofa", found.map(({ text }) => text), using("minilm_l6_v2", { vectors }));
  assert.deepEqual(again.map(({ index, text }) => [index, text]), found.map(({ text }, index) => [index, text]));
  close(again.map(({ score }) => score), found.map(({ score }) => score), 1e-5, "scores by vectors that are known");
  await assert.rejects(similar("a cat", ["one", "two"], using("minilm_l6_v2", { vectors })), { code: "E_VALUE", message: /2 texts, and vectors of 3/ });
  assert.ok(found[0].score > found[1].score + 0.2);
  await assert.rejects(embed("one", using("minilm_l6_v2")), { code: "E_VALUE" });
});

test("chat: verses, as the model goes on", async () => {
  const { LLM } = await import("gradloom/llm");
  const messages = [{ role: "user", content: "The LORD is my shepherd;" }];
  const llm = await LLM.load(new URL("verses/verses-q8_0.gguf", folder), { device: "wasm" });
  let want = "";
  for await (const piece of llm.chat(messages, { maxTokens: 20 })) want += piece;
  assert.equal(await chat(messages, { model: llm, maxTokens: 20 }), want, "a model that is loaded");
  llm.dispose();
  const [heard, told] = [[], []];
  const how = using("verses", { maxTokens: 20, onText: (text) => void heard.push(text), onModel: ({ name }) => void told.push(name) });
  assert.equal(await chat("The LORD is my shepherd;", how), want);
  assert.ok(heard.length > 5 && heard.join("") === want, `${heard}`);
  assert.equal(await chat(messages, how), want);
  assert.deepEqual(told, ["verses"], "the second call found it loaded");
  await assert.rejects(chat(messages, using("magika")), { code: "E_VALUE", message: /fileType, not for chat/ });
  await assert.rejects(chat(messages, {}), { code: "E_VALUE", message: /needs the address of a recipe/ });
  await assert.rejects(chat(messages, { ...how, signal: AbortSignal.abort() }), { name: "AbortError" });
});

test("detectFaces: as MediaPipe's port for Python has them", async () => {
  const { picture: small } = await arrays("blazeface_short", "input");
  const source = picture({ ...small, shape: [1, ...small.shape] }, (v) => v, { layout: "nhwc" });
  const { small: want } = JSON.parse(readFileSync(new URL("blazeface_short/expected.json", folder)));
  const got = await detectFaces(source, using("blazeface_short"));
  assert.equal(got.length, want.length);
  got.forEach((face, at) => {
    close(face.box, want[at].box, 0.02, "box");
    close([face.score], [want[at].score], 1e-3, "score");
    close(face.points.flat(), want[at].points.flat(), 0.02, "points");
  });
  // the same face at the right of a wider picture, twice as large
  const large = resized(source, 2);
  const wide = { data: new Uint8ClampedArray(4 * 300 * 256).fill(255), width: 300, height: 256 };
  for (let row = 0; row < 256; row += 1) wide.data.set(large.data.subarray(4 * 256 * row, 4 * 256 * (row + 1)), 4 * (300 * row + 44));
  const [other] = await detectFaces(wide, using("blazeface_short"));
  close(other.box, want[0].box.map((v, i) => 2 * v + (i % 2 === 0 ? 44 : 0)), 4, "box at the right");
  assert.deepEqual(await detectFaces(source, using("blazeface_short", { score: 0.99 })), []);
});

test("what is no sound, no message or no recipe is an error with advice", async () => {
  const samples = new Float32Array(1600);
  const on = using("silero_vad_op18_ifless");
  const stream = { get [Symbol.toStringTag]() { return "MediaStream"; } };
  const live = /`transcribeLive` and `vadLive` of gradloom\/tasks/;
  const wrong = [[samples, /\{ channels: \[samples\], sampleRate: 16000 \}/], [[0, 1], /Float32Array\.from/], [stream, live]];
  for (const [sound, hint] of wrong) {
    for (const call of [vad, transcribe, notes]) await assert.rejects(call(sound, on), { code: "E_VALUE", message: /^a sound comes from/, hint });
    await assert.rejects(fromAudio(sound), { code: "E_VALUE", hint });
  }
  await assert.rejects(vad(undefined, on), { code: "E_VALUE", message: /^a sound comes from/ });
  await assert.rejects(vad({ channels: [samples] }, on), { code: "E_VALUE", hint: /needs the rate too/ });
  const sound = { channels: [samples], sampleRate: 16000 };
  const models = {
    "silero_vad_op18_ifless/model.onnx": ["E_FORMAT", /is an ONNX model, not a recipe$/, /address of a recipe\.json/],
    "verses/verses-q8_0.gguf": ["E_FORMAT", /is a GGUF file, not a recipe$/, /address of a recipe\.json/],
    "silero_vad_op18_ifless/": ["E_FETCH", /could not be read/, /is it .*\/silero_vad_op18_ifless\/recipe\.json\?/],
    "nothing/recipe.json": ["E_FETCH", /could not be read/, /npx gradloom models DIR/],
  };
  for (const [path, [code, message, hint]] of Object.entries(models)) {
    const model = fileURLToPath(new URL(path, folder));
    await assert.rejects(vad(sound, { model }), { code, message, hint });
    await assert.rejects(chat("hello", { model }), { code, message, hint });
  }
  await assert.rejects(vad(sound, { model: "silero" }), { code: "E_FETCH", hint: /setModelBase/ });
  await assert.rejects(vad(sound, using("magika")), { code: "E_VALUE", hint: /`fileType` of gradloom\/tasks takes it/ });
  await assert.rejects(chat("hello", {}), { code: "E_VALUE", hint: /LLM\.load/ });
  await assert.rejects(chat(3, using("verses")), { code: "E_VALUE", message: /list of messages/ });
});

test("models are loaded once, and are what their recipes say", async () => {
  const notices = [];
  const dot = { data: new Uint8Array(4 * 32 * 32), width: 32, height: 32 };
  for (const _ of [1, 2, 3]) await upscale(dot, using("esrgan_slim_x2", { onModel: (n) => void notices.push(n) }));
  assert.equal(notices.length, 1, "the first call loaded it");
  const opened = await open(recipe("esrgan_slim_x2"), { device: "wasm" });
  assert.deepEqual([opened.recipe.license, opened.model.inputs[0].name], ["MIT", "LR"]);
  assert.equal((await upscale(dot, { model: opened })).width, 64);
  const fails = (call, code, message) => assert.rejects(call, (e) => e instanceof GradloomError && e.code === code && message.test(e.message));
  await fails(classify(dot, { model: opened }), "E_VALUE", /a model for upscale, not for classify/);
  await fails(classify(dot, {}), "E_VALUE", /needs the address of a recipe/);
  await fails(open(new URL("nothing/recipe.json", folder)), "E_FETCH", /nothing/);
  const at = (text) => `data:application/json,${encodeURIComponent(text)}`;
  await fails(open(at("<html><body>no")), "E_FORMAT", /a web page, not a recipe/);
  await fails(open(at("{}")), "E_FORMAT", /no recipe: it has no `task`/);
  const model = new URL("esrgan_slim_x2/model.onnx", folder).href;
  const wrong = { task: "upscale", model, name: "x", license: "MIT", sha256: "0".repeat(64) };
  await fails(open(at(JSON.stringify(wrong))), "E_FETCH", /has the hash/);
  // of tasks whose file is weights, too, which the first call loads
  const w = Tensor.zeros([2]);
  const file = `data:application/octet-stream;base64,${Buffer.from(await saveWeights({ w })).toString("base64")}`;
  w.dispose();
  const tokenizer = new URL("../fixtures/text/bert.json", folder).href;
  const weights = { ...wrong, model: file, more: { tokenizer, config: model, network: "efficientnet-lite", stages: [] } };
  const sound = { channels: [new Float32Array(16000)], sampleRate: 16000 };
  const calls = { embed: (it) => embed(["x"], it), transcribe: (it) => transcribe(sound, it), classify: (it) => classify(dot, it) };
  for (const [task, call] of Object.entries(calls)) {
    await fails(call({ model: at(JSON.stringify({ ...weights, task })), device: "wasm" }), "E_FETCH", /has the hash/);
  }
  // a recipe that is in its own address has no files beside it
  await fails(open(at(JSON.stringify({ ...wrong, model: "model.onnx" }))), "E_FORMAT", /there is no `model.onnx` beside a recipe at a `data:` address/);
  for (const task of ["embed", "transcribe"]) {
    const bare = { ...weights, task, more: {} };
    await fails(calls[task]({ model: at(JSON.stringify(bare)), device: "wasm" }), "E_FORMAT", /there is no `tokenizer.json` beside/);
  }
  opened.dispose();
  await fails(upscale(dot, { model: opened }), "E_STATE", /disposed/);
  await assert.rejects(upscale(dot, using("esrgan_slim_x2", { signal: AbortSignal.abort() })), { name: "AbortError" });
  const held = async () => (await memory())[0].tensors;
  const start = await held();
  // where a file is missing, those that came are let go
  for (const task of ["embed", "transcribe"]) {
    const more = { tokenizer: new URL("nothing.json", folder).href, config: tokenizer };
    await fails(calls[task]({ model: at(JSON.stringify({ ...weights, sha256: undefined, task, more })), device: "wasm" }), "E_FETCH", /nothing/);
  }
  for (let turn = 0; turn < 200 && (await held()) !== start; turn += 1) await new Promise((done) => setTimeout(done, 10));
  assert.equal(await held(), start, "nothing is kept of what failed");
  await upscale(dot, using("esrgan_slim_x2"));
  await stylize({ data: new Uint8Array(4 * 64 * 64), width: 64, height: 64 }, using("style_multistyle26"));
  assert.equal(await held(), start, "tasks free what they make");
});
