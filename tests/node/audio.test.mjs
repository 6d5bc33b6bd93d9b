// Sounds as tensors: files of WAV in every form, other rates, spectrograms. Those of Whisper are onnxruntime's example
// (tests/models/whisper_tiny_en).
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { before, test } from "node:test";
import { Tensor, init } from "gradloom";
import { StreamResampler, chunks, fromAudio, isWav, listen, logMel, melFilters, melSpectrogram } from "gradloom/audio";
import { readAudio, readWav, resample, writeWav } from "gradloom/audio";
import { readNpz } from "../lib/npz.mjs";

const speech = new URL("../models/whisper_tiny_en/speech.wav", import.meta.url);
const RATE = 16_000;
const tone = (hz, rate, seconds) => Float32Array.from({ length: rate * seconds }, (_, i) => 0.5 * Math.sin((2 * Math.PI * hz * i) / rate));
const worst = (a, b, from = 0, to = b.length) => Math.max(...Array.from({ length: to - from }, (_, i) => Math.abs(a[from + i] - b[from + i])));

/** A WAV file with samples written as bytes. */
function wav(format, bits, channels, rate, body, { extensible = false, before = [], announced = body.length } = {}) {
  const fmt = Buffer.alloc(extensible ? 40 : 16);
  fmt.writeUInt16LE(extensible ? 0xfffe : format, 0);
  fmt.writeUInt16LE(channels, 2);
  fmt.writeUInt32LE(rate, 4);
  fmt.writeUInt16LE(bits, 14);
  if (extensible) fmt.writeUInt16LE(format, 24);
  const chunk = (name, bytes, length = bytes.length) => {
    const head = Buffer.from(`${name}....`);
    head.writeUInt32LE(length, 4);
    return Buffer.concat([head, bytes, Buffer.alloc(bytes.length & 1)]);
  };
  const parts = [...before.map((bytes) => chunk("LIST", Buffer.from(bytes))), chunk("fmt ", fmt), chunk("data", Buffer.from(body), announced)];
  return new Uint8Array(Buffer.concat([chunk("RIFF", Buffer.from("WAVE"), 36 + body.length), ...parts]));
}

before(() => init({ device: "wasm" }));

test("WAV files in all their forms", async () => {
  const read = (...args) => readWav(wav(...args)).channels.map((c) => [...c]);
  assert.deepEqual(read(1, 8, 1, 8000, [0, 128, 255]), [[-1, 0, Math.fround(127 / 128)]]);
  assert.deepEqual(read(1, 16, 2, 8000, [0, 0x80, 0, 0x40, 0, 0, 1, 0]), [[-1, 0], [0.5, 1 / 32768]]);
  assert.deepEqual(read(1, 24, 1, 8000, [0, 0, 0x80, 0, 0, 0x40, 1, 0, 0]), [[-1, 0.5, 1 / 8388608]]);
  assert.deepEqual(read(1, 32, 1, 8000, [0, 0, 0, 0x80, 0, 0, 0, 0x40], { extensible: true }), [[-1, 0.5]]);
  assert.deepEqual(read(3, 32, 1, 8000, Buffer.from(Float32Array.of(0.25, -2).buffer), { before: [[1, 2, 3]] }), [[0.25, -2]]);
  assert.deepEqual(read(3, 64, 1, 8000, Buffer.from(Float64Array.of(0.25).buffer)), [[0.25]]);
  // the extremes of G.711
  assert.deepEqual(read(7, 8, 1, 8000, [0x00, 0x80, 0xff]), [[Math.fround(-32124 / 32768), Math.fround(32124 / 32768), 0]]);
  assert.deepEqual(read(6, 8, 1, 8000, [0x2a, 0xaa, 0xd5]), [[-0.984375, 0.984375, Math.fround(8 / 32768)]]);
  // a stream that was cut, or that never knew its end
  assert.deepEqual(read(1, 16, 1, 8000, [0, 0x40, 0, 0x20], { announced: 0xffffffff }), [[0.5, 0.25]]);
  assert.throws(() => readWav(wav(1, 16, 0, 8000, [0, 0])), { code: "E_FORMAT", message: /0 channels/ });
  assert.throws(() => readWav(wav(2, 4, 1, 8000, [0, 0])), { code: "E_UNSUPPORTED", message: /format 2 with 4 bits/ });
  assert.throws(() => readWav(new Uint8Array(50)), { code: "E_FORMAT" });
  assert.throws(() => readWav(wav(1, 16, 1, 8000, []).subarray(0, 20)), { code: "E_FORMAT", message: /no samples/ });
  const sound = { channels: [Float32Array.of(0, 0.5, -1), Float32Array.of(0.25, 0, 1)], sampleRate: 22_050 };
  assert.deepEqual(readWav(writeWav(sound, { float: true })), sound);
  assert.deepEqual([...readWav(writeWav(sound)).channels[1]], [0.25, 0, Math.fround(32767 / 32768)]);
});

test("damaged WAV files never do more than fail", () => {
  const whole = wav(1, 16, 2, 8000, Array.from({ length: 64 }, (_, i) => i * 7));
  for (let at = 0; at < whole.length; at += 1) {
    for (const value of [0, 1, 127, 255]) {
      const bytes = whole.slice();
      bytes[at] = value;
      try {
        const { channels } = readWav(bytes);
        assert.ok(channels.length * channels[0].length <= whole.length);
      } catch (error) {
        assert.match(error.code, /^E_(FORMAT|UNSUPPORTED)$/, `byte ${at} is ${value}: ${error.stack}`);
      }
    }
  }
});

test("sounds come from files, bytes, buffers and samples", async () => {
  const path = await fromAudio(speech.pathname);
  const { length } = readWav(readFileSync(speech)).channels[0];
  assert.deepEqual([path.dtype, path.shape], ["f32", [length]]);
  const file = readFileSync(speech);
  for (const source of [speech, file, new Blob([file])]) assert.deepEqual(await (await fromAudio(source)).data(), await path.data());
  const stereo = [Float32Array.of(0, 1, 0.5), Float32Array.of(1, 0, 0.5)];
  const buffer = { numberOfChannels: 2, sampleRate: 8000, getChannelData: (c) => stereo[c] };
  assert.deepEqual(await (await fromAudio(buffer)).tolist(), [0.5, 0.5, 0.5]);
  assert.deepEqual(await (await fromAudio({ channels: stereo, sampleRate: 8000 }, { mono: false })).tolist(), [[0, 1, 0.5], [1, 0, 0.5]]);
  assert.deepEqual((await fromAudio(speech, { sampleRate: 8000 })).shape, [Math.ceil(length / 2)]);
});

test("what is no sound is an error that says what it is", async () => {
  const rejects = (source, code, message) => assert.rejects(readAudio(source), { code, message });
  await rejects(new TextEncoder().encode("<!DOCTYPE html><title>Not found</title>"), "E_FORMAT", /a web page with the title "Not found"/);
  await rejects(new Uint8Array(0), "E_FORMAT", /empty/);
  await rejects(new TextEncoder().encode("OggS and so on"), "E_UNSUPPORTED", /an Ogg sound; only WAV files/);
  await rejects(new Uint8Array(100).fill(200), "E_UNSUPPORTED", /only WAV/);
  await rejects(7, "E_VALUE", /a file comes from/);
  await rejects({ channels: [], sampleRate: 8000 }, "E_VALUE", /needs a channel/);
  await rejects({ channels: [[1, 2]], sampleRate: 8000 }, "E_VALUE", /Float32Arrays/);
  assert.equal(isWav(new Uint8Array(4)), false);
});

test("another rate keeps what it can hold and leaves out the rest", () => {
  for (const [from, to] of [[44_100, RATE], [48_000, RATE], [8000, RATE], [RATE, 22_050], [RATE, 16_000.5]]) {
    const got = resample(tone(1000, from, 0.5), from, to);
    assert.equal(got.length, Math.ceil((0.5 * from * to) / from));
    const want = tone(1000, to, 0.5);
    assert.ok(worst(got, want, 200, Math.min(got.length, want.length) - 200) < 1e-3, `${from} to ${to}: ${worst(got, want, 200, 2000)}`);
  }
  // 10 kHz is above what 16 kHz can hold
  assert.ok(worst(resample(tone(10_000, 44_100, 0.5), 44_100, RATE), new Float32Array(8000), 200, 7800) < 2e-3);
  const flat = resample(new Float32Array(1000).fill(0.25), 44_100, RATE);
  assert.ok(worst(flat, new Float32Array(363).fill(0.25), 40, 320) < 1e-6);
  const same = tone(1, 100, 1);
  assert.equal(resample(same, 5, 5), same);
  assert.throws(() => resample(same, 0, 5), { code: "E_VALUE" });
});

test("Whisper's spectrogram of a sentence", async () => {
  const { mel } = await readNpz(readFileSync(new URL("../models/whisper_tiny_en/expected.npz", import.meta.url)));
  const { channels: [samples] } = await readAudio(speech, { sampleRate: RATE });
  const got = logMel(samples, { pad: 30 * RATE });
  assert.deepEqual(got.shape, [80, 3000]);
  const values = await got.narrow(1, 0, 320).data();
  assert.ok(worst(values, mel.data) < 1e-3, `${worst(values, mel.data)}`);
});

test("a tone is in its band", async () => {
  const options = { sampleRate: RATE, fft: 512, hop: 256, mels: 40, scale: "htk", center: false };
  const power = melSpectrogram(tone(1000, RATE, 1), options);
  assert.deepEqual(power.shape, [40, Math.floor((RATE - 512) / 256) + 1]);
  // 1000 Hz is 1000 mel of the 2840 that 8 kHz are: 41 steps of 69.3
  const [at] = await power.sum(1).argmax(0, true).data("i32");
  assert.equal(at, 13);
  // Parseval: the sum over all bins is that of the windowed squares
  const filters = melFilters({ sampleRate: RATE, fft: 400, mels: 80 });
  const area = filters.subarray(79 * 201, 80 * 201).reduce((a, b) => a + b, 0) * 40;
  assert.ok(Math.abs(area - 1) < 0.05, `a band of area ${area}`);
  assert.throws(() => melSpectrogram(new Float32Array(100)), { code: "E_VALUE" });
  assert.throws(() => melSpectrogram(Tensor.zeros([2, 800])), { code: "E_VALUE" });
  assert.throws(() => melFilters({ scale: "bark" }), { code: "E_VALUE" });
});

test("pieces of a sound", () => {
  const samples = Float32Array.of(1, 2, 3, 4, 5);
  const list = (options) => [...chunks(samples, options)].map(({ start, samples: s }) => [start, ...s]);
  assert.deepEqual(list({ size: 2 }), [[0, 1, 2], [2, 3, 4], [4, 5, 0]]);
  assert.deepEqual(list({ size: 2, pad: false }), [[0, 1, 2], [2, 3, 4], [4, 5]]);
  assert.deepEqual(list({ size: 4, hop: 1 }), [[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]]);
  assert.deepEqual([...chunks(new Float32Array(0), { size: 2 })], []);
  assert.throws(() => list({ size: 0 }), { code: "E_VALUE" });
});

test("a stream is resampled as the whole sound is, whatever its pieces", () => {
  for (const [from, to] of [[48_000, 16_000], [44_100, 16_000], [16_000, 24_000], [22_050, 48_000], [8000, 8000]]) {
    const sound = Float32Array.from(tone(440, from, 1), (v, i) => v + 0.2 * Math.sin(i * i * 1e-4));
    const whole = resample(sound, from, to);
    for (const sizes of [[1024], [1, 700, 33, 5000], [sound.length]]) {
      const stream = new StreamResampler(from, to);
      const out = [];
      for (let at = 0, turn = 0; at < sound.length; turn += 1) {
        const size = sizes[turn % sizes.length];
        out.push(...stream.push(sound.subarray(at, at + size)));
        at += size;
      }
      // what the filter needs of later samples is not there yet
      assert.ok(out.length <= whole.length && out.length > whole.length - 0.02 * to, `${from} to ${to}: ${out.length} of ${whole.length}`);
      assert.ok(worst(out, whole, 0, out.length) < 1e-6, `${from} to ${to}`);
    }
  }
  assert.throws(() => new StreamResampler(0, 16_000), { code: "E_VALUE", message: /from 0 to 16000/ });
});

test("streams are heard in pages alone", async () => {
  await assert.rejects(listen({}).next(), { code: "E_UNSUPPORTED", message: /only a secure page/ });
  await assert.rejects(listen({}, { size: 0 }).next(), { code: "E_VALUE", message: /pieces of 0 samples/ });
});
