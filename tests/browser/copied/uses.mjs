// How somebody uses the code of each demo: `script` is a module of a bare page beside `code.js`, which leaves a `result`; `files` are what else lies
// beside it, by path; `check` says whether the result is right.
import assert from "node:assert/strict";

const near = (got, want, most, what) => assert.ok(Math.abs(got - want) <= most, `${what}: ${got}, not ${want}`);
const has = (holds, result) => assert.ok(holds, JSON.stringify(result)?.slice(0, 400));

/** The planes of red, green and blue of a square picture in a file, as an `ImageData`. */
const PICTURE = `
const pictureOf = async (file, side, which = 0) => {
  const bytes = new Uint8Array(await (await fetch(file)).arrayBuffer());
  const picture = new ImageData(side, side);
  const plane = side * side;
  for (let i = 0; i < 4 * plane; i += 1) picture.data[i] = i % 4 === 3 ? 255 : bytes[plane * (3 * which + (i % 4)) + (i >> 2)];
  return picture;
};`;
/** A drawing that every test of pictures can do with. */
const DRAWING = `
const canvas = Object.assign(document.createElement("canvas"), { width: 80, height: 60 });
const pen = canvas.getContext("2d", { willReadFrequently: true });
pen.fillStyle = "#eee";
pen.fillRect(0, 0, 80, 60);
pen.fillStyle = "#b31";
pen.fillRect(20, 10, 30, 40);`;

const photographs = { "photographs.bin": "www/dist/data/photographs.bin" };
const speech = { "speech.wav": "tests/models/whisper_tiny_en/speech.wav" };
const SAMPLES = `
import { readAudio } from "gradloom/audio";
const { channels: [samples] } = await readAudio("speech.wav", { sampleRate: 16000 });`;
/** The samples as a stream that ends with them. */
const LIVE = `
const context = new AudioContext();
const buffer = new AudioBuffer({ length: samples.length, sampleRate: 16000 });
buffer.copyToChannel(samples, 0);
const player = new AudioBufferSourceNode(context, { buffer });
const end = context.createMediaStreamDestination();
player.connect(end);
player.onended = () => end.stream.getTracks()[0].stop();
player.start(context.currentTime + 0.5);
const { stream } = end;`;

export const uses = {
  classify: {
    files: photographs,
    script: `${PICTURE} import { kindsIn } from "./code.js"; globalThis.result = await kindsIn(await pictureOf("photographs.bin", 224));`,
    check: (result) => assert.equal(result[0].label, "Egyptian cat"),
  },
  cutout: {
    files: photographs,
    script: `${PICTURE} import { cutLine, cutOut } from "./code.js"; const cat = await pictureOf("photographs.bin", 224);
      const [soft, sharp] = [await cutOut(cat), await cutLine(cat)];
      globalThis.result = [soft.share, sharp.share, soft.image.width, sharp.image.data.length];`,
    // there is nobody in it
    check: (result) => has(result[0] < 0.5 && result[1] < 0.5 && result[2] === 224 && result[3] === 4 * 224 * 224, result),
  },
  faces: {
    files: { "astronaut.bin": "www/dist/data/astronaut.bin", ...photographs },
    script: `${PICTURE} import { draw, facesOf, thingsOf } from "./code.js";
      const faces = await facesOf(await pictureOf("astronaut.bin", 320));
      const things = await thingsOf(await pictureOf("photographs.bin", 224));
      const canvas = new OffscreenCanvas(320, 320);
      draw(canvas, faces, "red", "white");
      globalThis.result = { faces, things, painted: canvas.getContext("2d").getImageData(0, 0, 320, 320).data.some((v) => v > 0) };`,
    check: ({ faces, things, painted }) => {
      has(faces.length >= 1 && faces[0].score > 0.8 && faces[0].points.length === 6, faces);
      has(things.some(({ label }) => label === "cat"), things);
      has(painted, painted);
    },
  },
  files: {
    files: { "script.js": "tests/browser/page/harness.mjs" },
    script: `import { kindOf } from "./code.js"; globalThis.result = await kindOf("script.js");`,
    check: (result) => assert.equal(result.label, "javascript"),
  },
  notes: {
    script: `import { listen } from "./code.js";
      const tone = Float32Array.from({ length: 44100 }, (_, i) => 0.5 * Math.sin((2 * Math.PI * 440 * i) / 22050));
      const { notes, file } = await listen({ channels: [tone], sampleRate: 22050 });
      globalThis.result = { pitches: notes.map(({ pitch }) => pitch), bytes: file.length };`,
    // the A of 440 Hz
    check: (result) => has(result.pitches.includes(69) && result.bytes > 20, result),
  },
  read: {
    script: `import { linesOf, read } from "./code.js";
      const canvas = Object.assign(document.createElement("canvas"), { width: 480, height: 120 });
      const pen = canvas.getContext("2d", { willReadFrequently: true });
      pen.fillStyle = "#fff";
      pen.fillRect(0, 0, 480, 120);
      pen.fillStyle = "#000";
      pen.font = "48px sans-serif";
      pen.fillText("Hello world", 40, 75);
      globalThis.result = { lines: (await linesOf(canvas)).length, text: (await read(canvas)).text };`,
    check: (result) => has(result.lines === 1 && /hello ?world/i.test(result.text), result),
  },
  search: {
    script: `import { Index, passages } from "./code.js";
      const index = new Index();
      await index.add(passages("Stock prices fell.\\n\\nThe kitten sleeps on the couch.\\n\\nHow to bake bread."), "here");
      globalThis.result = await index.find("a cat on the sofa", 2);`,
    check: (result) => has(result.length === 2 && result[0].text === "The kitten sleeps on the couch." && result[0].from === "here", result),
  },
  speech: {
    files: speech,
    script: `${SAMPLES} import { detect, kindsOf, listenTo } from "./code.js"; ${LIVE}
      const heard = await detect(samples);
      const kinds = (await kindsOf(samples)).map(({ label }) => label);
      const live = [];
      await listenTo(stream, ({ probabilities }) => void live.push(...probabilities));
      globalThis.result = { count: heard.length, most: Math.max(...heard), expected: Math.ceil(samples.length / 512), live: Math.max(...live), kinds };`,
    check: (result) => has(String(result.kinds) === "speech" && result.count === result.expected && result.most > 0.9 && result.live > 0.9, result),
  },
  style: {
    script: `${DRAWING} import { paint } from "./code.js"; const { width, height, data } = await paint(canvas, { mix: 0.5 });
      globalThis.result = { width, height, different: data.filter((v, i) => i % 4 < 3 && Math.abs(v - data[i % 4]) > 20).length };`,
    check: (result) => has(result.width === 256 && result.height === 256 && result.different > 1000, result),
  },
  transcribe: {
    files: speech,
    script: `${SAMPLES} import { hear, write } from "./code.js"; ${LIVE}
      const live = [];
      await hear(stream, (sentence) => void live.push(sentence));
      globalThis.result = { text: await write(samples), live };`,
    check: ({ text, live }) => {
      assert.match(text, /^He was not an .*posed young man\.$/);
      assert.match(live.at(-1).text, /^He was not an .*posed young man\.$/);
      assert.deepEqual(live.map(({ final }) => final), [...live.slice(1).map(() => false), true]);
    },
  },
  upscale: {
    script: `${DRAWING} import { enlarge } from "./code.js"; const tiles = [];
      const { width, height, data } = await enlarge(canvas, { onTile: (done, all) => tiles.push([done, all]) });
      globalThis.result = { width, height, tiles, paper: [...data.slice(4 * (100 * width + 16), 4 * (100 * width + 16) + 3)] };`,
    check: (result) => {
      assert.deepEqual([result.width, result.height, result.tiles], [160, 120, [[1, 1]]]);
      for (const v of result.paper) near(v, 0xee, 12, "paper");
    },
  },
  chat: {
    script: `import { answer, open } from "./code.js"; const llm = await open("models/verses/verses-q8_0.gguf");
      globalThis.result = await answer(llm, [{ role: "user", content: "The LORD is my shepherd;" }], { maxTokens: 12 });`,
    check: (result) => has(typeof result === "string" && result.length > 10, result),
  },
  compare: {
    files: { "model.onnx": "tests/models/ppocr_cls/model.onnx" },
    script: `import { init } from "gradloom"; import { gradloom } from "./code.js"; const device = await init();
      const bytes = new Uint8Array(await (await fetch("model.onnx")).arrayBuffer());
      const inputs = [{ name: "x", type: "float32", dims: [1, 3, 48, 192], data: new Float32Array(3 * 48 * 192) }];
      const { values, first, again } = await gradloom(bytes, inputs, "save_infer_model/scale_0.tmp_1", { device });
      globalThis.result = { sum: values[0] + values[1], first, again: await again() };`,
    check: (result) => {
      near(result.sum, 1, 1e-3, "probabilities");
      has(result.first > 0 && result.again > 0, result);
    },
  },
  digits: {
    script: `import { init } from "gradloom"; import { network, read, train } from "./code.js"; await init(); const net = network();
      // two drawings to tell apart: a bar and a ring
      const isInk = { ring: (x, y) => Math.abs(Math.hypot(x, y) - 8) < 2, bar: (x) => Math.abs(x) < 2 };
      const draw = (isInk) => Float32Array.from({ length: 784 }, (_, i) => Number(isInk((i % 28) - 14, i / 28 - 14)));
      const x = Float32Array.of(...draw(isInk.bar), ...draw(isInk.ring));
      const batches = Array.from({ length: 40 }, (_, at) => ({ x, y: Int32Array.of(1, 0), progress: at / 40 }));
      const losses = [];
      for await (const loss of train(net, batches)) losses.push(loss);
      const p = await read(net, x);
      globalThis.result = { first: losses[0], last: losses.at(-1), bar: p[1], ring: p[10] };`,
    check: (result) => has(result.first > 1 && result.last < 0.1 && result.bar > 0.9 && result.ring > 0.9, result),
  },
  dreamer: {
    script: `import { Tensor, init } from "gradloom"; import { Dreamer, dream, train } from "./code.js"; await init(); const net = new Dreamer();
      const digit = new Tensor(new Int32Array(8)).oneHot(10).cast("f32");
      const batches = Array.from({ length: 6 }, (_, at) => ({ picture: Tensor.full([8, 784], 0.5), digit, progress: at / 6 }));
      const losses = [];
      for await (const loss of train(net, batches)) losses.push(loss);
      let picture;
      for await (const values of dream(net, digit, 3)) picture = values;
      globalThis.result = { losses, size: picture.length, isFinite: picture.every(Number.isFinite) };`,
    check: ({ losses, size, isFinite }) => has(losses.length === 6 && losses.at(-1) < losses[0] && size === 8 * 784 && isFinite, { losses, size }),
  },
  siren: {
    script: `import { Tensor, init } from "gradloom"; import { draw, fit, network, places } from "./code.js"; await init(); const net = network();
      const colours = new Tensor(Array.from({ length: 256 }, (_, i) => (i % 16 < 8 ? [0.9, 0.2, 0.1] : [0.1, 0.3, 0.8])));
      const losses = [];
      for await (const loss of fit(net, places(16), colours, 120)) losses.push(loss);
      const picture = await draw(net, 32);
      globalThis.result = { first: losses[0], last: losses.at(-1), red: picture[0], size: picture.length };`,
    check: (result) => {
      has(result.last < 0.02 && result.last < result.first && result.size === 32 * 32 * 3, result);
      near(result.red, 0.9, 0.3, "red");
    },
  },
  writer: {
    script: `import { init } from "gradloom"; import { CONTEXT, train, write, writer } from "./code.js"; await init();
      const text = Int32Array.from({ length: 400 }, (_, i) => i % 4);
      const net = writer(4);
      const losses = [];
      for await (const loss of train(net, text, 60)) losses.push(loss);
      const letters = [];
      for await (const letter of write(net, text.slice(0, CONTEXT), 0.1)) if (letters.push(letter) === 8) break;
      globalThis.result = { first: losses[0], last: losses.at(-1), letters };`,
    check: (result) => {
      has(result.last < 0.3 && result.first > 1, result);
      assert.deepEqual(result.letters, [0, 1, 2, 3, 0, 1, 2, 3]);
    },
  },
  cells: {
    files: { "cells.safetensors": "www/demos/cells/cells.safetensors" },
    script: `import { Tensor, init, loadWeights } from "gradloom"; import { CHANNELS, Cells, later } from "./code.js"; await init(); const cells = new Cells();
      await cells.loadStateDict(await loadWeights("cells.safetensors"));
      const side = 24;
      const plant = new Float32Array(side * side);
      plant[(side * side) / 2 + side / 2] = 1;
      const all = new Float32Array(side * side).fill(1);
      let world = Tensor.zeros([1, CHANNELS, side, side]);
      const alive = [];
      for (let at = 0; at < 6; at += 1) {
        world = later(cells, world, { keep: all, plant: at === 0 ? plant : new Float32Array(side * side) });
        alive.push((await world.narrow(1, 3, 1).data()).filter((v) => v > 0.1).length);
      }
      globalThis.result = alive;`,
    check: (result) => has(result[0] >= 1 && result.at(-1) > result[0], result),
  },
};
