// An AbortSignal ends building, compiling and running on the WASM device, soon, and nothing is left of what it ended.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Tensor, init, load, memory, tidy } from "gradloom";
import { readNpz } from "../lib/npz.mjs";

const reason = new Error("enough");

/** Aborts after some milliseconds. Gives how long the work then took to end. */
async function ended(work, ms) {
  const controller = new AbortController();
  let fired = Infinity;
  setTimeout(() => {
    fired = performance.now();
    controller.abort(reason);
  }, ms);
  await assert.rejects(work(controller.signal), (error) => error === reason);
  return performance.now() - fired;
}

/** A signal that is found to have fired when it is looked at for the nth time. */
function atLook(n) {
  const { signal } = new AbortController();
  let looks = 0;
  Object.defineProperty(signal, "aborted", { get: () => (looks += 1) > n });
  Object.defineProperty(signal, "reason", { value: reason });
  return signal;
}

const folder = new URL("../models/style_multistyle26/", import.meta.url);
const file = (name) => new Uint8Array(readFileSync(new URL(name, folder)));

test("building and compiling a model end soon, and the next run is right", async (t) => {
  await init({ device: "wasm" });
  const [inputs, expected] = [await readNpz(file("input.npz")), await readNpz(file("expected.npz"))];
  const given = () => Object.fromEntries(Object.entries(inputs).map(([name, v]) => [name, new Tensor(v.data, v.shape)]));
  const took = [];
  // the second time, when the compiler itself is compiled
  let wholeMs;
  for (let time = 0; time < 2; time += 1) {
    const start = performance.now();
    const whole = await load(file("model.onnx"), { device: "wasm" });
    for (const v of Object.values(await whole.run(given()))) v.dispose();
    whole.dispose();
    wholeMs = performance.now() - start;
  }
  for (const part of [0.01, 0.1, 0.3]) {
    const model = await load(file("model.onnx"), { device: "wasm" });
    took.push(await ended((signal) => model.run(given(), { signal }), part * wholeMs));
    if (part === 0.3) {
      const out = await model.run(given());
      for (const [name, want] of Object.entries(expected)) {
        const got = await out[name].data();
        const error = want.data.reduce((most, v, at) => Math.max(most, Math.abs(v - got[at])), 0);
        const scale = want.data.reduce((most, v) => Math.max(most, Math.abs(v)), 1e-3);
        assert.ok(error <= 1e-2 * scale, `${name}: ${error} of ${scale}`);
        out[name].dispose();
      }
    }
    model.dispose();
  }
  t.diagnostic(`ended after ${took.map((ms) => ms.toFixed(1)).join(", ")} ms, the whole takes ${wholeMs.toFixed(0)} ms`);
  // one in three may meet a busy machine
  assert.ok(took.sort((a, b) => a - b)[1] < wholeMs / 2, `${took} of ${wholeMs} ms`);
});

/** A chain of products, some seconds of work for a slow machine. */
function chain(n, size) {
  const w = new Tensor(new Float32Array(size * size).fill(1 / size), [size, size]);
  let y = new Tensor(new Float32Array(size * size).fill(2), [size, size]);
  for (let i = 0; i < n; i += 1) y = y.matmul(w).relu();
  return y;
}

/** A signal that counts how often it is looked at, and does something each time. */
function counted(also = () => {}) {
  const { signal } = new AbortController();
  let looks = 0;
  const look = () => {
    looks += 1;
    also();
    return false;
  };
  Object.defineProperty(signal, "aborted", { get: look });
  Object.defineProperty(signal, "throwIfAborted", { value: look });
  return { signal, looks: () => looks };
}

test("every phase looks at the signal, and often", async (t) => {
  const device = await init({ device: "wasm", cache: false, isolated: true });
  const whole = counted();
  // a file of some megabytes is copied in parts
  const large = new Uint8Array(readFileSync(new URL("../models/ppocrv4_det/model.onnx", import.meta.url)));
  (await load(large, { device, signal: whole.signal })).dispose();
  const loading = whole.looks();
  const inputs = await readNpz(file("input.npz"));
  const given = Object.fromEntries(Object.entries(inputs).map(([name, v]) => [name, new Tensor(v.data, v.shape)]));
  const model = await load(file("model.onnx"), { device });
  // what was done whenever somebody looked
  const seen = { programs: new Set(), bytes: new Set() };
  const { signal } = counted(() => {
    const counters = device.raw.counters();
    for (const [name, values] of Object.entries(seen)) values.add(counters[name]);
  });
  const out = await model.run(given, { signal });
  const { kernelsCompiled } = model.timing;
  const [kernels, bytes] = Object.values(seen).map(({ size }) => size);
  const pieces = `${kernelsCompiled} kernels were compiled in ${kernels}, weights brought in ${bytes} pieces`;
  t.diagnostic(`${loading} looks while loading; ${pieces}`);
  assert.ok(loading >= large.length / 2 ** 22, `${loading} looks for ${large.length} bytes`);
  assert.ok(kernelsCompiled > 20 && kernels >= kernelsCompiled, `${kernels} looks for ${kernelsCompiled} kernels`);
  assert.ok(bytes >= 2, `${bytes} looks`);
  Object.values(out).forEach((value) => value.dispose());
  device.dispose();
});

test("a kernel that is cut into slices gives the same", async () => {
  const numbers = (size, k) => Float32Array.from({ length: size * size }, (_, i) => ((i * k) % 101) / 50 - 1);
  for (const threads of [1, 3]) {
    const device = await init({ device: "wasm", threads, cache: false, isolated: true });
    const product = (size) => tidy(() => {
      const [a, b] = [37, 53].map((k) => new Tensor(numbers(size, k), [size, size], { device }));
      return a.matmul(b).relu();
    });
    const looksAt = async (size) => {
      const { signal, looks } = counted();
      const [whole, cut] = [product(size), product(size)];
      assert.deepEqual(await cut.data(undefined, { signal }), await whole.data());
      return looks();
    };
    // 6 Gflop are some slices of eight milliseconds for any processor, and the page has its turn after each
    const [little, much] = [await looksAt(16), await looksAt(1440)];
    assert.ok(much >= little + 2, `${much} looks, and ${little} at a product that takes no time`);
    device.dispose();
  }
});

test("nothing of a later phase begins after an abort in an earlier one", async () => {
  const inputs = await readNpz(file("input.npz"));
  for (const phase of ["device", "parse", "compile", "run"]) {
    const device = await init({ device: "wasm", cache: false, isolated: true });
    const controller = new AbortController();
    const phases = [];
    const onProgress = (progress) => {
      phases.push(progress.phase);
      if (progress.phase === phase) controller.abort(reason);
    };
    const how = { signal: controller.signal, onProgress };
    const work = async () => {
      const model = await load(file("model.onnx"), { device, ...how });
      return model.run(Object.fromEntries(Object.entries(inputs).map(([name, v]) => [name, new Tensor(v.data, v.shape)])), how);
    };
    await assert.rejects(work(), (error) => error === reason, phase);
    // waits until nothing is under way
    await device.raw.collect();
    const { plans, programs, launches } = device.raw.counters();
    assert.equal(phases.at(-1), phase, phases.join());
    if (phase !== "run") assert.deepEqual([plans, programs, launches], [0, 0, 0], phase);
    else assert.ok(plans === 1 && launches < programs, `${plans} plans, ${launches} launches of ${programs} kernels`);
    device.dispose();
  }
});

test("a long run ends soon, and computes the same when it is asked for again", async (t) => {
  await init({ device: "wasm" });
  const whole = tidy(() => chain(120, 512));
  const start = performance.now();
  await whole.realize();
  // worker threads may still be at it
  const givenMs = performance.now() - start;
  await whole.data();
  const wholeMs = performance.now() - start;
  whole.dispose();
  const run = tidy(() => chain(120, 512));
  const took = await ended((signal) => run.realize({ signal }), givenMs / 10);
  t.diagnostic(`ended after ${took.toFixed(1)} ms, the whole takes ${wholeMs.toFixed(0)} ms`);
  assert.ok(took < wholeMs / 2, `${took} of ${wholeMs} ms`);
  run.dispose();
  const small = tidy(() => chain(6, 64));
  assert.ok((await small.data()).every((v) => Math.abs(v - 2) < 1e-3));
  small.dispose();
});

test("work that is ended at any look leaves nothing behind", async () => {
  await init({ device: "wasm" });
  const held = async () => (await memory()).map(({ bytes, tensors }) => ({ bytes, tensors }));
  let looks = 0;
  let before;
  for (; ; looks += 1) {
    const x = new Tensor(Float32Array.from({ length: 24 + looks }, (_, i) => i), [24 + looks]);
    const y = tidy(() => x.mul(2).add(1).sum());
    const done = await y.realize({ signal: atLook(looks) }).then(() => true, (error) => error !== reason && Promise.reject(error));
    assert.equal(await y.item(), (23 + looks) * (24 + looks) + 24 + looks);
    x.dispose();
    y.dispose();
    // every length has a plan of its own, and temporaries of about the same size
    const now = await held();
    before ??= now;
    assert.deepEqual(now.map((m) => m.tensors), before.map((m) => m.tensors));
    if (done) break;
  }
  assert.ok(looks > 5, `${looks} looks`);
});
