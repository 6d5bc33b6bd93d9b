// The built site in headless Chromium, driven as a person would: every demo's page on both devices with its results checked,
// all pages on a narrow screen, and a demo without WebGPU.
// usage: node tests/browser/demo.mjs [PART ..] [SLUG ..]
// parts: code, home, inside, viz, served, docs, axe, keyboard, touch, wasm, webgpu, narrow, media, no-webgpu
// with slugs, of the demos only these; without any word all but those that are slow on WebGPU
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { launch } from "../../scripts/lib/chromium.mjs";
import { main, root } from "../../scripts/lib/run.mjs";
import { serve } from "../../scripts/serve.mjs";
import { readNpz } from "../lib/npz.mjs";
import { checkAccessibility } from "./axe.mjs";
import { keyboard } from "./keyboard.mjs";
import { code, docs, home, inside, served, viz } from "./site.mjs";
import { touch } from "./touch.mjs";
import { MINUTE, check, open } from "./visit.mjs";
import { demos } from "../../www/demos/index.mjs";

/** Whether the processor emulates the page's GPU. */
const emulatedGpu = (page) => page.evaluate(async () => {
  const adapter = await navigator.gpu?.requestAdapter();
  return adapter?.info?.isFallbackAdapter === true || adapter?.isFallbackAdapter === true || adapter?.info?.vendor === "google";
});

/** The page of a demo, on a device. */
const demoPath = (slug, device) => `gallery/${slug}/?device=${device}`;

/** The pixels of a canvas, without alpha. */
function canvasPixels(page, id) {
  return page.evaluate((name) => {
    const canvas = document.getElementById(name);
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    return Array.from(data.filter((_, at) => at % 4 !== 3));
  }, id);
}

/** The mean square between cells and picture under which a moth is whole: a wing alone makes 0.02. */
const MAX_GROWN_ERROR = 0.009;

/** The cosine of two texts of the search, as numpy computes it from the same weights in f64. */
const ROUTER_SCORE = 0.393;

const difference = (a, b) => a.reduce((sum, v, at) => sum + Math.abs(v - b[at]), 0) / a.length;

const farthest = (a, b) => a.reduce((most, v, at) => Math.max(most, Math.abs(v - b[at])), 0);

/** The pixels, without alpha, of an image [1, 3, height, width] of values from 0 to 1. */
function toPixels({ data, shape }) {
  const area = shape[2] * shape[3];
  return Array.from({ length: 3 * area }, (_, at) => Math.round(255 * data[(at % 3) * area + Math.floor(at / 3)]));
}

/** A square picture of these pixels as a file. */
async function pngOf(page, pixels) {
  const png = await page.evaluate(async (rgb) => {
    const side = Math.sqrt(rgb.length / 3);
    const rgba = Uint8ClampedArray.from({ length: 4 * side * side }, (_, at) => (at % 4 === 3 ? 255 : rgb[3 * Math.floor(at / 4) + (at % 4)]));
    const image = new ImageData(rgba, side);
    const canvas = new OffscreenCanvas(side, side);
    canvas.getContext("2d").putImageData(image, 0, 0);
    return [...new Uint8Array(await (await canvas.convertToBlob()).arrayBuffer())];
  }, pixels);
  return Buffer.from(png);
}

/** So many steps of training: all of the page's, or what an emulated GPU has time for. */
const digits = (steps, least) => async ({ page, status }) => {
  const start = Date.now();
  await page.click("#train");
  const text = await status(/^Trained /, 12 * MINUTE);
  const accuracy = Number(/reads ([\d.]+) %/.exec(text)[1]);
  check(accuracy >= least, `${accuracy} % of the test digits is too few`);
  check((await page.textContent("#loss-text")).startsWith(`Step ${steps} of ${steps}: loss `), "the curve did not reach the end");
  check((await canvasPixels(page, "loss")).some((v) => v > 0), "the loss curve is empty");
  // a one and a zero, by mouse
  const box = await page.locator("#pad").boundingBox();
  const draw = async (points) => {
    await page.click("#clear");
    const at = ([x, y]) => [box.x + x * box.width, box.y + y * box.height];
    await page.locator("#pad").scrollIntoViewIfNeeded();
    Object.assign(box, await page.locator("#pad").boundingBox());
    await page.mouse.move(...at(points[0]));
    await page.mouse.down();
    for (const point of points) await page.mouse.move(...at(point), { steps: 4 });
    await page.mouse.up();
    await page.waitForFunction(() => /That is a \d/.test(document.querySelector("#digit").textContent), null, { timeout: 10 * MINUTE });
    return (await page.textContent("#digit")).slice(10, 11);
  };
  const ring = Array.from({ length: 25 }, (_, at) => [0.5 + 0.22 * Math.sin(at / 4), 0.5 - 0.32 * Math.cos(at / 4)]);
  check((await draw([[0.55, 0.15], [0.5, 0.5], [0.45, 0.85]])) === "1", "a drawn 1 was not read");
  check((await draw(ring)) === "0", "a drawn 0 was not read");
  return `${text} ${await page.textContent("#cost")} (${((Date.now() - start) / 1000).toFixed(0)} s in all)`;
};

async function picture({ page, status }) {
  await page.click("#paint");
  await status(/^Painted\./);
  const [before, after] = [await canvasPixels(page, "source"), await canvasPixels(page, "painted")];
  check(difference(before, after) > 10, "the painted picture is the picture");
  check(new Set(after).size > 60, "the painted picture is flat");
  // another style, and a mixture, paint at once
  const repainted = async (text) => {
    await page.waitForFunction((wanted) => document.getElementById("painted-text").textContent === wanted, text, { timeout: MINUTE });
    return canvasPixels(page, "painted");
  };
  check((await page.locator("#style-a label i").count()) === 26, "there are not 26 styles to choose from");
  await page.check("#style-a [aria-label='Style 3']");
  const third = await repainted("Style 3");
  check(difference(after, third) > 10, "another style paints the same");
  await page.fill("#mix", "50");
  check(difference(third, await repainted("Style 3 with 50 % of style 14")) > 3, "a mixture paints the same");
  // the picture beside the model is painted in its style as onnxruntime paints it
  const file = async (name) => readNpz(readFileSync(join(root, "tests/models/style_multistyle26", name)));
  const [{ image, style_weights: style }, { stylized }] = [await file("input.npz"), await file("expected.npz")];
  const styleAt = [...style.data].indexOf(1);
  // these are set without an event, so that the picture is painted once
  await page.evaluate((at) => {
    document.querySelector("#mix").value = "0";
    document.querySelectorAll("#style-a input")[at].checked = true;
  }, styleAt);
  await page.setInputFiles("#picture", { name: "sample.png", mimeType: "image/png", buffer: await pngOf(page, toPixels(image)) });
  await repainted(`Style ${styleAt + 1}`);
  check(difference(await canvasPixels(page, "source"), toPixels(image)) === 0, "the picture that was chosen is not the source");
  const off = farthest(await canvasPixels(page, "painted"), toPixels(stylized));
  check(off <= 1, `the picture differs from what onnxruntime paints by ${off} of 255 somewhere`);
  return { after, text: await page.textContent("#cost") };
}

async function enlarged({ page, status }) {
  await page.click("#enlarge");
  await status(/^Enlarged\./);
  check((await page.textContent("#sizes")) === "160 by 120 pixels became 320 by 240", "the sample is not twice as large");
  const [before, after] = [await canvasPixels(page, "before"), await canvasPixels(page, "after")];
  check(new Set(after).size > 60, "the enlarged picture is flat");
  check(before.length === after.length && difference(before, after) < 12, "the enlarged picture is another one");
  // the slider uncovers the network's picture
  await page.fill("#slider", "20");
  check((await page.evaluate(() => document.getElementById("after").style.clipPath)).includes("20%"), "the slider does not move the border");
  return page.textContent("#cost");
}

async function cutOut({ page, after }) {
  const png = await page.evaluate(async () => {
    const canvas = new OffscreenCanvas(80, 60);
    canvas.getContext("2d").fillRect(0, 0, 80, 60);
    return [...new Uint8Array(await (await canvas.convertToBlob()).arrayBuffer())];
  });
  const done = /^Cut out\./;
  await after(() => page.setInputFiles("#picture", { name: "black.png", mimeType: "image/png", buffer: Buffer.from(png) }), done);
  const alpha = await page.evaluate(() => {
    const { data } = document.getElementById("cut").getContext("2d").getImageData(0, 0, 80, 60);
    return Array.from(data.filter((_, at) => at % 4 === 3));
  });
  check(alpha.length === 4800 && alpha.every((v) => v < 128), "somebody was found in a black picture");
  // before a backdrop nothing is transparent
  await page.selectOption("#backdrop", "woven");
  await page.waitForFunction(() => document.getElementById("cut").getContext("2d").getImageData(0, 0, 80, 60).data.every((v, at) => at % 4 !== 3 || v === 255));
  // the astronaut as a sticker: a hard edge with a white rim, and the share that the soft mask has too
  const share = async () => Number(/takes (\d+) %/.exec(await page.textContent("#share"))[1]);
  await page.selectOption("#backdrop", "none");
  await after(() => page.click("#sample"), done);
  const soft = await share();
  await after(() => page.selectOption("#backdrop", "sticker"), done);
  const hard = await share();
  check(soft > 30 && soft < 80 && Math.abs(hard - soft) <= 3, `the person takes ${soft} % softly and ${hard} % along a line`);
  const sticker = await page.evaluate(() => [...document.getElementById("cut").getContext("2d").getImageData(0, 0, 320, 320).data]);
  const count = (holds) => Array.from({ length: 320 * 320 }, (_, at) => sticker.slice(4 * at, 4 * at + 4)).filter(holds).length / (320 * 320);
  check(count(([, , , a]) => a > 0 && a < 255) < 0.03, "the sticker's edge is no line");
  check(count(([r, g, b, a]) => a === 255 && r === 255 && g === 255 && b === 255) > 0.005, "the sticker has no rim");
  check(Math.abs(100 * count(([, , , a]) => a > 127) - hard) < 6, "what is not transparent is not the person");
  return page.textContent("#cost");
}

async function fileKinds({ page, status }) {
  const files = [
    ["script.txt", readFileSync(join(root, "tests/fixtures/make_io.py")), /Python/],
    ["noname", readFileSync(join(root, "web/ts/package.json")), /JSON/],
    ["model.bin", readFileSync(join(root, "tests/models/magika/model.onnx")), /Open Neural Network Exchange|ONNX/i],
    ["archive", readFileSync(join(root, "tests/fixtures/io/small.zip")), /Zip/i],
  ];
  for (const [name, buffer, kind] of files) {
    await page.setInputFiles("#file", { name, mimeType: "application/octet-stream", buffer });
    const text = await status(new RegExp(`^${name.replace(".", "\\.")}: `));
    check(kind.test(text), `${kind} was expected where the page says: ${text}`);
    check((await page.locator("#kinds li").count()) === 3, "three kinds are listed");
  }
  await page.setInputFiles("#file", { name: "tiny", mimeType: "text/plain", buffer: Buffer.from("ab") });
  await status(/^tiny is too small/);
  return page.textContent("#cost");
}

/**
 * Runs in the page, where three seconds of sound cannot pass unseen, as they can in this process while it compresses
 * files: waits until the page has played something; gives the last pixels of its canvas meanwhile.
 */
function watchPlaying(limit) {
  const canvas = document.getElementById("voice");
  const { promise, resolve } = Promise.withResolvers();
  let [said, pixels] = [false, []];
  const look = () => {
    const isPlaying = /^Playing/.test(document.getElementById("status").textContent);
    if (said && !isPlaying) return resolve({ said, pixels: [...pixels.filter((_, at) => at % 4 !== 3)] });
    if (isPlaying) [said, pixels] = [true, canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data];
    return requestAnimationFrame(look);
  };
  look();
  setTimeout(() => resolve({ said, pixels: [] }), limit);
  return promise;
}

async function speech({ page, status }) {
  await page.click("#sample");
  const text = await status(/^Speech in /);
  const [spoken, all] = /([\d.]+) of ([\d.]+) s/.exec(text).slice(1).map(Number);
  check(all === 3 && spoken > 2 && spoken < 2.9, text);
  check(/^speech from 0\.\d to [23]\.\d s\.$/.test(await page.textContent("#kinds-text")), `heard ${await page.textContent("#kinds-text")}`);
  // it is played, with a line where it is, which goes when it ends
  const quiet = await canvasPixels(page, "voice");
  const playing = page.evaluate(watchPlaying, MINUTE);
  await page.click("#play");
  const { said, pixels } = await playing;
  check(said, `nothing was played; the page says: ${await page.textContent("#status")}`);
  check(difference(quiet, pixels) > 0.05, "no line shows where the sound is");
  await status(/^Speech in/);
  check(difference(quiet, await canvasPixels(page, "voice")) === 0, "the line stays");
  // a second of silence as a sound file
  const wav = Buffer.alloc(44 + 32_000);
  wav.write("RIFF\0\0\0\0WAVEfmt ", 0, "latin1");
  wav.writeUInt32LE(36 + 32_000, 4);
  [[16, 16, 4], [20, 1, 2], [22, 1, 2], [24, 16_000, 4], [28, 32_000, 4], [32, 2, 2], [34, 16, 2]].forEach(([at, v, n]) => wav.writeUIntLE(v, at, n));
  wav.write("data", 36, "latin1");
  wav.writeUInt32LE(32_000, 40);
  await page.setInputFiles("#sound", { name: "silence.wav", mimeType: "audio/wav", buffer: wav });
  await status(/^Speech in 0\.0 of 1\.0 s/);
  return `${text} ${await page.textContent("#cost")}`;
}

/** The receipt of the page is read, and a picture of a word. */
async function read({ page, status }) {
  await page.click("#read");
  await status(/^Read \d+ pieces of text/);
  const text = await page.textContent("#text");
  for (const each of [/WEAVERS ?CAFE/, /Espresso +2\.40/, /Apple ?cake +3\.80/, /Total +9\.10/, /Thank ?you/]) {
    check(each.test(text), `${each} is not in what was read: ${text}`);
  }
  return `${text.split("\n").length} lines. ${await page.textContent("#cost")}`;
}

/** The tune of the page is heard. */
async function heard({ page, status }) {
  await page.click("#sample");
  const text = await status(/^Heard \d+ notes/);
  const names = await page.textContent("#roll-text");
  check(/E4/.test(names) && /F4/.test(names) && /G4/.test(names), `the tune begins otherwise: ${names}`);
  const file = await page.evaluate(async () => [...new Uint8Array(await (await fetch(document.getElementById("save").href)).arrayBuffer())]);
  check(String.fromCharCode(...file.slice(0, 4)) === "MThd" && file.length > 100, "the file is no MIDI");
  return `${text} ${names} ${await page.textContent("#cost")}`;
}

/**
 * A reader of digits that shares no code with the network: the label that most of the five nearest of 4,000 written
 * digits have, by the cosine of their pixels.
 */
function digitReader() {
  const bytes = readFileSync(join(root, "www/dist/data/mnist.bin"));
  const known = Array.from({ length: 4000 }, (_, at) => unit(bytes.slice(784 * at, 784 * (at + 1))));
  const labels = bytes.slice(784 * 4000, 784 * 4000 + 4000);
  return (picture) => {
    const own = unit(picture);
    const cosine = (each) => {
      let sum = 0;
      for (let p = 0; p < own.length; p += 1) sum += each[p] * own[p];
      return sum;
    };
    const nearest = known.map((each, at) => [cosine(each), labels[at]]).sort(([a], [b]) => b - a).slice(0, 5);
    const votes = Array.from({ length: 10 }, (_, digit) => nearest.filter(([, label]) => label === digit).length);
    return votes.indexOf(Math.max(...votes));
  };
}

/** Pixels as a vector of length one. */
function unit(pixels) {
  const length = Math.hypot(...pixels);
  return Float32Array.from(pixels, (v) => v / length);
}

/** What is drawn comes out of noise: dark but for lines, and at least so many of 20 sevens are read as sevens. */
const dreamt = (steps, least) => async ({ page, status }) => {
  await page.click("#train");
  const text = await status(new RegExp(`^Trained ${steps} steps`), 12 * MINUTE);
  const loss = Number(/loss (\d+\.\d+)/.exec(text)[1]);
  check(loss < (steps < 300 ? 0.25 : 0.16), `a loss of ${loss} is too high`);
  await page.selectOption("#digit", "7");
  await status(/^Drawn\./);
  const pixels = await canvasPixels(page, "drawn");
  const dark = pixels.filter((v) => v < 64).length / pixels.length;
  check(dark > 0.6 && dark < 0.99, `${dark} of the pixels are dark`);
  // the canvas has two rows of ten digits, each pixel of them as two by two
  const at = (picture, p) => 3 * (560 * (56 * Math.floor(picture / 10) + 2 * Math.floor(p / 28)) + 56 * (picture % 10) + 2 * (p % 28));
  const digitOf = digitReader();
  const digits = Array.from({ length: 20 }, (_, picture) => digitOf(Array.from({ length: 784 }, (_, p) => pixels[at(picture, p)])));
  const count = (digit) => digits.filter((each) => each === digit).length;
  const others = [0, 1, 2, 3, 4, 5, 6, 8, 9].map(count);
  check(count(7) >= least && others.every((n) => n < count(7)), `20 sevens are read as ${digits.join(" ")}`);
  return `${text} ${count(7)} of 20 sevens are read as such. ${await page.textContent("#cost")}`;
};

/** Models in two runtimes: the results agree, and the table is whole. */
async function compared({ page, status }) {
  await page.click("#compare");
  await status(/^Compared \d+ models?\.$/);
  const table = await page.textContent("#table tbody");
  check((await page.locator("#table tbody tr").count()) === page.url().split(",").length && !/differ/.test(table), `the table says: ${table}`);
  check((await page.textContent("#left")) === "", "something is left out");
  return page.textContent("#sum");
}

/** Where the processor emulates the GPU, the page says which models it leaves out, and why. */
async function comparedInPart({ page, status }) {
  await page.click("#compare");
  await status(/^Compared 1 model\.$/);
  check(/^Magika/.test(await page.textContent("#table tbody")), "the model in the table is another one");
  const left = await page.textContent("#left");
  check(/^Left out, since this GPU is emulated/.test(left) && /Silero \(wrong results/.test(left), `the page says: ${left}`);
  for (const name of ["Basic Pitch", "PP-OCR", "Style transfer", "ESRGAN"]) check(left.includes(name), `${name} is not in: ${left}`);
  return `${await page.textContent("#sum")} ${left}`;
}

/** Notes are found by what they mean, then a file of one's own. */
async function searched({ page, status }) {
  await page.click("#read");
  await status(/^Read \d+ passages\.$/);
  const first = async (query, pattern) => {
    await page.fill("#query", query);
    await page.waitForFunction((text) => new RegExp(text).test(document.querySelector("#hits li")?.textContent), pattern.source, { timeout: MINUTE });
    return page.textContent("#hits li small");
  };
  await first("who owes me money?", /^Tom still has my drill/);
  const score = Number(/([\d.]+) ·/.exec(await first("my internet is broken", /^Router:/))[1]);
  check(Math.abs(score - ROUTER_SCORE) < 0.011, `the score of the router is ${score}, not ${ROUTER_SCORE}`);
  const buffer = Buffer.from("# Log\n\nThe bees swarmed on Tuesday and hung in the pear tree.\n\nAll quiet.\n");
  await page.setInputFiles("#files", { name: "hives.md", mimeType: "text/markdown", buffer });
  await page.waitForFunction(() => /^(31|15) passages of 2 texts/.test(document.querySelector("#known").textContent), null, { timeout: MINUTE });
  check(/hives\.md/.test(await first("insects that make honey", /^The bees swarmed/)), "the file is not named");
  return `${await page.textContent("#known")} ${await page.textContent("#cost")}`;
}

/** The two photographs are told as the logits beside the model say: the five likeliest, and their probabilities. */
async function classified({ page, after }) {
  const { logits } = await readNpz(readFileSync(join(root, "tests/models/efficientnet_lite0/expected.npz")));
  for (const [row, button, name] of [[0, "#cat", "Egyptian cat"], [1, "#cup", "espresso"]]) {
    await after(() => page.click(button), new RegExp(`^It looks like: ${name}\\.`));
    const shown = (await page.locator("#kinds li").allTextContents()).map((text) => Number(/([\d.]+) %/.exec(text)[1]));
    const values = [...logits.data.slice(1000 * row, 1000 * (row + 1))];
    const sum = values.reduce((all, v) => all + Math.exp(v), 0);
    const want = values.map((v) => (100 * Math.exp(v)) / sum).sort((a, b) => b - a).slice(0, 5);
    check(want.every((v, at) => Math.abs(v - shown[at]) < 0.11), `${shown} % are shown, the logits say ${want.map((v) => v.toFixed(1))}`);
  }
  return page.textContent("#cost");
}

/** The astronaut's face is where MediaPipe's port for Python finds it, and there is none in a picture of nothing. */
async function faced({ page, status }) {
  const { large: [want] } = JSON.parse(readFileSync(join(root, "tests/models/blazeface_short/expected.json")));
  await page.click("#sample");
  await status(/^Found 1 face\./);
  check((await page.textContent("#faces-text")) === `1 face: ${Math.round(100 * want.score)} % sure`, await page.textContent("#faces-text"));
  // the box is drawn in the accent: in the middle of each of its sides
  const pixels = await canvasPixels(page, "source");
  const [left, top, right, bottom] = want.box;
  const reddish = (x, y) => [-1, 0, 1].some((d) => {
    const at = 3 * (320 * Math.round(y + (x === left || x === right ? 0 : d)) + Math.round(x + (x === left || x === right ? d : 0)));
    return pixels[at] - pixels[at + 2] > 120;
  });
  const [x, y] = [(left + right) / 2, (top + bottom) / 2];
  check([[left, y], [right, y], [x, bottom]].every(([a, b]) => reddish(a, b)), `no box is drawn at ${want.box}`);
  const png = await page.evaluate(async () => {
    const canvas = new OffscreenCanvas(80, 60);
    canvas.getContext("2d").fillRect(0, 0, 80, 60);
    return [...new Uint8Array(await (await canvas.convertToBlob()).arrayBuffer())];
  });
  await page.setInputFiles("#picture", { name: "black.png", mimeType: "image/png", buffer: Buffer.from(png) });
  await status(/^Found 0 faces\./);
  // things: the same black picture has none, and the cat is one, as LiteRT has it
  await page.selectOption("#look", "thing");
  await status(/^Found 0 things\./);
  await page.click("#cat");
  await status(/^Found 1 thing\./);
  check(/^1 thing: cat 8[234] % sure$/.test(await page.textContent("#faces-text")), await page.textContent("#faces-text"));
  await page.click("#sample");
  await page.waitForFunction(() => /person/.test(document.querySelector("#faces-text").textContent));
  check(/^1 thing: person (59|60|61) % sure$/.test(await page.textContent("#faces-text")), await page.textContent("#faces-text"));
  return page.textContent("#cost");
}

/** The sentence is written as the reference implementation of Whisper writes it. */
async function wroteDown({ page, status }) {
  await page.click("#sample");
  const text = await status(/^Heard \d+ words in 5\.3 s/);
  const said = await page.textContent("#said li span");
  check(said === "Unless to be rather cold-hearted and rather selfish is to be ill-disposed.", `the page heard: ${said}`);
  return `${text} ${await page.textContent("#cost")}`;
}

/** One cell becomes the moth; hurt by the mouse, it heals. */
async function grown({ page, status }) {
  const caption = async () => /^Step (\d+): (\d+) cells live, the middle is ([\d.]+)/.exec(await page.textContent("#world-text")).slice(1).map(Number);
  const until = (steps) => page.waitForFunction((least) => Number(/^Step (\d+)/.exec(document.querySelector("#world-text").textContent)?.[1]) >= least, steps);
  await page.click("#grow");
  await until(100);
  await page.click("#stop");
  await status(/^Stopped after/);
  const [steps, alive, away] = await caption();
  check(away < MAX_GROWN_ERROR, `after ${steps} steps the cells are ${away} from the picture`);
  await page.locator("#world").scrollIntoViewIfNeeded();
  const box = await page.locator("#world").boundingBox();
  const at = (x, y) => [box.x + (x / 48) * box.width, box.y + (y / 32) * box.height];
  await page.mouse.move(...at(18, 14));
  await page.mouse.down();
  await page.mouse.move(...at(18, 19), { steps: 8 });
  await page.mouse.up();
  await page.waitForFunction((least) => Number(/: (\d+) cells/.exec(document.querySelector("#world-text").textContent)[1]) < least, alive - 10);
  const [, left, hurt] = await caption();
  check(hurt > 2 * away, `${alive - left} cells are gone, and the picture is ${hurt} away`);
  await page.click("#grow");
  await until(steps + 120);
  await page.click("#stop");
  await page.waitForFunction(() => document.querySelector("#stop").hidden);
  const [, , healed] = await caption();
  check(healed < MAX_GROWN_ERROR, `healed, the cells are ${healed} from the picture; hurt they were ${hurt}, and ${away} before`);
  return `${away} from the moth, hurt ${hurt}, healed ${healed}. ${await page.textContent("#cost")}`;
}

/** A network becomes the picture. */
async function fitted({ page, status }) {
  await page.click("#fit");
  const text = await status(/^Fitted in 150 steps/);
  const decibels = Number(/([\d.]+) dB/.exec(text)[1]);
  check(decibels > 24, `a fit of ${decibels} dB is too coarse`);
  const size = await page.evaluate(() => document.getElementById("fitted").width);
  check(size === 256, "the network is not drawn large");
  const rows = (pixels, side) => [0.2, 0.5, 0.8].map((y) => pixels[3 * (Math.floor(y * side) * side + side / 2)]);
  const [from, to] = [rows(await canvasPixels(page, "source"), 64), rows(await canvasPixels(page, "fitted"), 256)];
  check(from.every((v, at) => Math.abs(v - to[at]) < 40), `the network drew ${to} where the picture has ${from}`);
  return `${text} ${await page.textContent("#cost")}`;
}

/** A GPT learns sonnets. */
async function wrote({ page, status }) {
  await page.click("#train");
  const text = await status(/^Trained 150 steps/);
  const loss = Number(/loss (\d+\.\d+)/.exec(text)[1]);
  check(loss < 2.3, `a loss of ${loss} is too high`);
  const written = await page.textContent("#written");
  const read = await page.inputValue("#text");
  const trigrams = Array.from({ length: written.length - 2 }, (_, at) => written.slice(at, at + 3));
  const right = trigrams.filter((each) => read.includes(each)).length / trigrams.length;
  check(right > 0.6, `of its trigrams ${right} are the text's: ${written}`);
  return `${text} ${(100 * right).toFixed(0)} % of its trigrams are the text's. ${await page.textContent("#cost")}`;
}

/** A language model answers, goes on with a second turn and, after another visit, from what was kept; it is exchanged for one that is dropped. */
async function talked({ page, status, after }) {
  const say = async (text) => {
    await page.fill("#words", text);
    await page.click("#send");
  };
  await say("And God said unto Noah,");
  const text = await status(/^Answered with [1-9]\d* tokens\./);
  const first = await page.textContent("#talk li:last-child");
  check(first.trim().split(/\s+/).length > 3, `the model says: ${first}`);
  await after(() => say("Who is wise?"), /^Answered with [1-9]\d* tokens\./);
  const known = Number(/(\d+) of them known/.exec(await page.textContent("#rate"))?.[1]);
  check(known > 10, `${known} tokens were known from the turn before`);
  check((await page.locator("#talk li").count()) === 4, "a turn is missing");
  // another visit
  await page.reload();
  await status(/^Ready: /);
  const [soon, whole, blocked] = await page.evaluate(async () => {
    const tasks = [0];
    const observer = new PerformanceObserver((list) => tasks.push(...list.getEntries().map(({ duration }) => duration)));
    observer.observe({ entryTypes: ["longtask"] });
    const start = performance.now();
    document.querySelector("#send").click();
    while (!document.querySelector("#talk li:nth-child(2)")?.textContent) await new Promise((done) => requestAnimationFrame(done));
    const ms = performance.now() - start;
    while (!/^Answered/.test(document.querySelector("#status").textContent)) await new Promise((done) => setTimeout(done, 50));
    observer.disconnect();
    return [ms, performance.now() - start, Math.max(...tasks)];
  });
  check(blocked < whole / 2, `the page was blocked for ${blocked} of ${whole} ms`);
  const gguf = readFileSync(join(root, "tests/fixtures/llm/qwen2.gguf"));
  await page.setInputFiles("#file", { name: "qwen2.gguf", mimeType: "application/octet-stream", buffer: gguf });
  await status(/^Loaded .*: qwen2, 2 layers/);
  await page.setInputFiles("#file", { name: "no.gguf", mimeType: "application/octet-stream", buffer: Buffer.from("<!doctype html><p>no</p>") });
  await page.waitForFunction(() => /failed: .*web page/.test(document.querySelector("#status").textContent));
  const later = `${soon.toFixed(0)} ms to the first words on a later visit, the page busy for ${blocked.toFixed(0)} ms at most.`;
  return `${text} ${later} ${await page.textContent("#cost")}`;
}

/** Drops a file on an element, as the browser would report it. */
function drop(page, selector, name, type, bytes) {
  return page.evaluate(([to, ...file]) => {
    const [called, mime, data] = file;
    const dataTransfer = new DataTransfer();
    dataTransfer.items.add(new File([Uint8Array.from(data)], called, { type: mime }));
    const target = document.querySelector(to);
    const left = target.dispatchEvent(new DragEvent("dragover", { dataTransfer, bubbles: true, cancelable: true }));
    const taken = target.dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true }));
    return [left, taken];
  }, [selector, name, type, [...bytes]]);
}

/** A WAV file of 16-bit mono samples with so many seconds of silence before its sound. */
function afterSilence(wav, seconds) {
  const at = wav.indexOf("data") + 8;
  const silence = Buffer.alloc(2 * seconds * wav.readUInt32LE(24));
  const whole = Buffer.concat([wav.subarray(0, at), silence, wav.subarray(at)]);
  whole.writeUInt32LE(whole.length - 8, 4);
  whole.writeUInt32LE(whole.length - at, at - 4);
  return whole;
}

/**
 * Files that are dropped, the camera, and the microphone: Chromium shows a pattern, and plays a recorded sentence, once
 * where it is written down, again and again where a page may begin to listen late.
 */
async function media(url) {
  const folder = mkdtempSync(join(tmpdir(), "gradloom-media-"));
  const speechFile = join(folder, "speech.wav");
  // The microphone plays from the moment it is granted: what is said before the page listens is lost, to visitors as well.
  writeFileSync(speechFile, afterSilence(readFileSync(join(root, "tests/models/whisper_tiny_en/speech.wav")), 2));
  const flags = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"];
  const microphone = `--use-file-for-fake-audio-capture=${speechFile}`;
  const browser = await launch({ flags: [...flags, `${microphone}%noloop`] });
  const repeating = await launch({ flags: [...flags, microphone] });
  try {
    const kinds = await open(browser, url, demoPath("files", "wasm"));
    const dropped = await drop(kinds.page, "#drop", "dropped", "", readFileSync(join(root, "tests/fixtures/make_io.py")));
    check(dropped.every((ours) => ours === false), "a dropped file is left to the browser, which would leave the page");
    check(/Python/.test(await kinds.status(/^dropped: /)), "a dropped file is not looked at");
    await kinds.page.close();

    const { page, status } = await open(browser, url, demoPath("style", "wasm"));

    const before = await canvasPixels(page, "source");
    const png = await page.evaluate(async () => {
      const canvas = new OffscreenCanvas(64, 32);
      const pen = canvas.getContext("2d");
      pen.fillStyle = "#f00";
      pen.fillRect(0, 0, 64, 32);
      return [...new Uint8Array(await (await canvas.convertToBlob()).arrayBuffer())];
    });
    await drop(page, "#drop", "red.png", "image/png", png);
    await status(/^Painted\./);
    const red = await canvasPixels(page, "source");
    check(red.every((v, at) => (at % 3 === 0 ? v === 255 : v === 0)), "the dropped picture is not the one painted");
    check(difference(before, red) > 10, "the dropped picture does not replace the sample");

    await page.click("#camera");
    const rate = await status(/^Camera: [\d.]+ frames/);
    check(difference(red, await canvasPixels(page, "source")) > 10, "the camera's picture does not come");
    await page.click("#stop");
    await status(/^The camera is off/);

    await page.close();

    for (const [slug, shown] of [["faces", "#faces-text"], ["classify", "#kinds li"], ["cutout", "#share"]]) {
      const live = await open(browser, url, demoPath(slug, "wasm"));
      await live.page.click("#camera");
      await live.status(/^Camera: [\d.]+ frames/);
      check((await live.page.locator(shown).first().textContent()) !== "", `${slug}: nothing is said of the camera's picture`);
      await live.page.click("#stop");
      await live.status(/^The camera is off/);
      await live.page.close();
    }

    const written = await open(browser, url, demoPath("transcribe", "wasm"));
    await written.page.click("#microphone");
    await written.status(/^Listening\./);
    // the pause after the sentence ends it, while the microphone goes on
    await written.page.waitForFunction(() => /[.?!]$/.test(document.querySelector("#said li span")?.textContent ?? ""), null, { timeout: 2 * MINUTE });
    await written.page.click("#stop");
    await written.status(/^The microphone is off/);
    const words = (await written.page.locator("#said li span").allTextContents()).join(" ");
    check(words === "He was not an old-sposed young man.", `of the microphone's sentence the page wrote: ${words}`);
    await written.page.close();

    const voice = await open(repeating, url, demoPath("speech", "wasm"));
    await voice.page.click("#microphone");
    const isHeard = () => /^Speech in (?!0\.0).* of [1-9][\d.]* s/.test(document.querySelector("#voice-text").textContent);
    await voice.page.waitForFunction(isHeard, null, { timeout: 10 * MINUTE });
    const heard = await voice.page.textContent("#voice-text");
    check((await canvasPixels(voice.page, "voice")).some((v) => v > 0), "the curve of speech is empty");
    await voice.page.click("#stop");
    await voice.status(/^The microphone is off/);
    await voice.page.close();
    console.log(`demo: media: ${rate} ${heard} ${words}`);
  } finally {
    await repeating.close();
    await browser.close();
    rmSync(folder, { recursive: true });
  }
  const refusing = await launch();
  try {
    const context = await refusing.newContext({ permissions: [] });
    const cameras = ["style", "cutout", "faces", "classify"].map((slug) => [slug, "#camera", /camera/]);
    for (const [slug, button, words] of [...cameras, ...["speech", "transcribe"].map((slug) => [slug, "#microphone", /microphone/])]) {
      const page = await context.newPage();
      await page.goto(`${url}/${demoPath(slug, "wasm")}`);
      await page.waitForFunction(() => /^Ready: /.test(document.querySelector("#status").textContent));
      await page.click(button);
      await page.waitForFunction(() => /failed|could not|not allowed|no /i.test(document.querySelector("#status").textContent), null, { timeout: 10 * MINUTE });
      const text = await page.textContent("#status");
      check(words.test(text), `a refused ${button} is told as: ${text}`);
      await page.waitForFunction((id) => !document.querySelector(id).disabled, button);
      await page.close();
    }
  } finally {
    await refusing.close();
  }
}

/** Accessibility of a page of each kind, light and dark; `npm run test:axe` looks at all pages. */
async function axe(browser, url) {
  const demo = ["style", "chat"].map((slug) => demoPath(slug, "wasm"));
  for (const path of ["", "inside/", "docs/start/", "docs/api-gradloom-vision/", "gallery/", ...demo]) await checkAccessibility(browser, url, path);
  console.log("demo: axe: ok");
}

const painted = {};

async function onDevice(browser, url, device, slugs) {
  const visit = async (slug, body, more = "") => {
    const opened = await open(browser, url, demoPath(slug, device) + more);
    check(await opened.page.isChecked(`#device [value=${device}]`), `${device} is not the device in use`);
    const emulated = await emulatedGpu(opened.page);
    const note = await opened.page.textContent("#device-note");
    check(/This GPU is emulated by the processor: WebAssembly is faster here/.test(note) === (emulated && device === "webgpu"), `the page says: ${note}`);
    console.log(`demo: ${device}: ${await body(opened)}`);
    const cost = await opened.page.textContent("#cost");
    check(/^WebGPU, emulated by the processor/.test(cost) === (emulated && device === "webgpu"), `the page says: ${cost}`);
    return opened;
  };
  const chosen = (slug) => slugs.length === 0 || slugs.includes(slug);
  const visitOnce = async (slug, ...what) => chosen(slug) && (await visit(slug, ...what)).page.close();
  await visitOnce("speech", speech);
  await visitOnce("files", fileKinds);
  await visitOnce("upscale", enlarged);
  await visitOnce("cutout", cutOut);
  await visitOnce("notes", heard);
  await visitOnce("classify", classified);
  await visitOnce("faces", faced);
  await visitOnce("cells", grown);
  await visitOnce("search", searched, device === "wasm" ? "" : "&notes=12");
  if (device === "wasm" || process.argv.length > 2) { // some 40 to 80 s each where a processor emulates the GPU
    await visitOnce("read", read);
    await visitOnce("transcribe", wroteDown);
    const dreamerSteps = device === "wasm" ? 300 : 100;
    await visitOnce("dreamer", dreamt(dreamerSteps, device === "wasm" ? 12 : 6), `&steps=${dreamerSteps}`);
    // on SwiftShader onnxruntime-web's WebGPU gives 0.76 for Silero; its WebAssembly gives 0.49, as both of ours do
    await (device === "wasm" ? visitOnce("compare", compared, "&only=magika,vad") : visitOnce("compare", comparedInPart));
    await visitOnce("siren", fitted, "&steps=150");
    await visitOnce("writer", wrote, "&steps=150");
  }
  await visitOnce("chat", talked);
  await visitOnce("style", async (opened) => {
    const { after, text } = await picture(opened);
    painted[device] = after;
    return text;
  });
  if (!chosen("digits")) return;
  const steps = device === "wasm" ? 500 : 200;
  const { page, status } = await visit("digits", digits(steps, device === "wasm" ? 97 : 94), `&steps=${steps}`);
  // Stop ends training early, and the page goes on
  await page.click("#train");
  // the text of the training before stays until the first step of this one
  await page.waitForFunction((last) => !document.querySelector("#loss-text").textContent.startsWith(`Step ${last} `), steps);
  // without the pointer: lines of text that change move the button, and the training may end before the pointer finds it
  await page.dispatchEvent("#stop", "click");
  check(!(await status(/^Trained \d+ steps/, 4 * MINUTE)).startsWith(`Trained ${steps} steps`), "Stop did not stop the training");
  await page.close();
}

const parts = {
  code,
  home,
  inside,
  viz,
  served,
  docs,
  axe,
  keyboard,
  touch,
  wasm: (browser, url, slugs) => onDevice(browser, url, "wasm", slugs),
  webgpu: (browser, url, slugs) => onDevice(browser, url, "webgpu", slugs),
  async narrow(browser, url, slugs) {
    const paths = slugs.length > 0 ? [] : ["", "inside/", "docs/", "docs/start/", "docs/peers/", "docs/models/", "docs/debugging/", "gallery/"];
    for (const path of [...paths, ...demos.filter(({ slug }) => slugs.length === 0 || slugs.includes(slug)).map(({ slug }) => demoPath(slug, "wasm"))]) {
      const { page } = await open(browser, url, path, { viewport: { width: 360, height: 740 }, colorScheme: "dark" });
      check((await page.evaluate(() => document.documentElement.scrollWidth)) <= 360, `/${path} scrolls sideways at 360 px`);
      const small = await page.evaluate(() =>
        [...document.querySelectorAll("button, select, nav a, label")]
          .filter((e) => e.offsetParent && e.getBoundingClientRect().height < 43.5)
          .map((e) => e.textContent),
      );
      check(small.length === 0, `/${path}: too small to touch: ${small}`);
      // options and numbers stay on one line
      const [count, broken] = await page.evaluate(() => {
        const all = [...document.querySelectorAll(".whole")];
        return [all.length, all.filter((e) => e.getClientRects().length > 1).map((e) => e.textContent)];
      });
      check((count > 0 || !/models|debugging/.test(path)) && broken.length === 0, `/${path}: broken over lines: ${broken}`);
      // every link leads to a page
      const links = await page.evaluate(() => [...document.querySelectorAll("a[href]")].map((a) => a.href));
      for (const link of new Set(links)) check((await page.request.get(link)).ok(), `/${path} links to ${link}, which is not there`);
      await page.close();
    }
    const { page } = await open(browser, url, demoPath("digits", "wasm"), { viewport: { width: 360, height: 740 }, colorScheme: "dark" });
    // the keyboard alone reaches the training button and starts it
    await page.focus("#train");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => /Step (?!500 )\d+ /.test(document.querySelector("#loss-text").textContent));
    await page.focus("#stop");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.querySelector("#status").textContent.startsWith("Trained"));
    await page.close();
    console.log("demo: narrow: ok");
  },
  media: (_, url) => media(url),
  "no-webgpu": (_, url) => withoutWebGpu(url),
};

async function withoutWebGpu(url) {
  const browser = await launch({ webgpu: false });
  try {
    const opened = await open(browser, url, "gallery/speech/");
    check(/There is no WebGPU here/.test(await opened.page.textContent("#device-note")), "the page does not say that WebGPU is missing");
    check(await opened.page.isDisabled("#device [value=webgpu]"), "WebGPU can be picked where there is none");
    console.log(`demo: no-webgpu: ${await speech(opened)}`);
  } finally {
    await browser.close();
  }
}

main(async () => {
  const slugs = process.argv.slice(2).filter((name) => demos.some(({ slug }) => slug === name));
  const wanted = process.argv.slice(2).filter((name) => !slugs.includes(name));
  const chosen = (name) => wanted.length === 0 || wanted.includes(name);
  const server = await serve({ "/": join(root, "www/dist") });
  const browsers = [];
  const runParts = async (names) => {
    const browser = await launch();
    browsers.push(browser);
    for (const name of names.filter(chosen)) await parts[name](browser, server.url, slugs);
  };
  try {
    // Two at a time, because no part keeps two processors busy: an emulated GPU waits for its commands, and sounds play in real time.
    // Both halves take about as long.
    const half = ["webgpu", "media", "no-webgpu", "docs", "axe"];
    await Promise.all([runParts(half), runParts(Object.keys(parts).filter((name) => !half.includes(name)))]);
    if (painted.wasm && painted.webgpu) {
      const distance = difference(painted.wasm, painted.webgpu);
      check(distance < 0.5, `the two devices paint differently: ${distance} of 255 on average`);
    }
    console.log("demo: ok");
  } finally {
    await Promise.all(browsers.map((each) => each.close()));
    await server.close();
  }
});
