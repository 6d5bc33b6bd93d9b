// What makes the package pleasant to work with: tensors on the console, data of any form, training in one call, memory that is
// found again.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { before, test } from "node:test";
import { inspect } from "node:util";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { InputError, OutOfMemoryError, Tensor, init, load, loadWeights, memory, nn, optim, tidy, torch } from "gradloom";
import { DataLoader, examples } from "gradloom/data";
import { fit, opfsCheckpoint } from "gradloom/fit";
import * as rules from "gradloom/optim";

let device;
before(async () => {
  device = await init({ device: "wasm", threads: 1 });
});

test("the console shows what is known of a tensor, and computes nothing", async () => {
  assert.equal(inspect(new Tensor([[1, 2.5], [3, 4]])), "Tensor(f32, [2, 2], host: 1, 2.5, 3, 4)");
  const y = Tensor.arange(0, 100).add(1);
  const { launches } = (await memory())[0];
  assert.equal(inspect(y), "Tensor(i32, [100], wasm)");
  assert.equal((await memory())[0].launches, launches);
  await y.data();
  assert.equal(inspect({ y }), "{ y: Tensor(i32, [100], wasm: 1, 2, 3, 4, 5, 6, ..) }");
  const w = Tensor.ones([2], { requiresGrad: true });
  await w.data();
  w.assign(w.add(1));
  assert.equal(inspect(w), "Tensor(f32, [2], wasm)");
  y.dispose();
  assert.equal(inspect(y), "Tensor(disposed)");
  assert.equal(inspect(new Tensor(BigInt64Array.of(7n), [])), "Tensor(i64, [], host: 7)");
});

test("print writes the values", async (t) => {
  const lines = [];
  t.mock.method(console, "log", (text) => lines.push(text));
  const shown = async (tensor) => {
    lines.length = 0;
    assert.equal(await tensor.print(), tensor);
    return lines.join("\n");
  };
  assert.equal(await shown(new Tensor([[1, -2], [30, 4]])), "Tensor(f32, [2, 2]) on host\n[[ 1, -2],\n [30,  4]]");
  assert.equal(await shown(new Tensor([0.5, Number.NaN, Number.POSITIVE_INFINITY])), "Tensor(f32, [3]) on host\n[  0.5000,      NaN, Infinity]");
  assert.equal(await shown(new Tensor([[[1], [2]], [[3], [4]]])), "Tensor(f32, [2, 2, 1]) on host\n[[[1],\n  [2]],\n\n [[3],\n  [4]]]");
  assert.equal(await shown(new Tensor([1e-9, 1.5])), "Tensor(f32, [2]) on host\n[1.0000e-9, 1.5000e+0]");
  assert.equal(await shown(new Tensor([true, false])), "Tensor(bool, [2]) on host\n[1, 0]");
  assert.equal(await shown(Tensor.full([], 3)), "Tensor(f32, []) on wasm\n3");
  assert.equal(await shown(Tensor.zeros([0, 3])), "Tensor(f32, [0, 3]) on wasm\n[]");
  const long = await shown(Tensor.arange(0, 5000));
  assert.equal(long, "Tensor(i32, [5000]) on wasm\n[   0,    1,    2, .., 4997, 4998, 4999]");
  const wide = await shown(Tensor.arange(0, 10_000).reshape([100, 100]));
  assert.equal(wide.split("\n").length, 8);
  assert.match(wide, /^ \.\.,$/m);
});

test("select takes one place of an axis, from either end", async () => {
  const t = new Tensor([[1, 2, 3], [4, 5, 6]], null, { requiresGrad: true });
  const values = async (x) => [x.shape, [...(await x.data())]];
  assert.deepEqual(await values(t.select(0, 1)), [[3], [4, 5, 6]]);
  assert.deepEqual(await values(t.select(-1, 0)), [[2], [1, 4]]);
  assert.deepEqual(await values(t.select(1, -3)), [[2], [1, 4]]);
  t.select(1, -1).sum().backward();
  assert.deepEqual([...(await t.grad.data())], [0, 0, 1, 0, 0, 1]);
  for (const [axis, index] of [[0, 2], [0, -3], [1, 0.5], [2, 0]]) assert.throws(() => t.select(axis, index), { name: "ValueError", code: "E_VALUE" });
});

test("data of any form", async () => {
  const all = async (loader) => {
    const seen = [];
    for await (const batch of loader) {
      if (batch instanceof Tensor) seen.push(await batch.tolist());
      else seen.push(Object.fromEntries(await Promise.all(Object.entries(batch).map(async ([k, t]) => [k, await t.tolist()]))));
    }
    return seen;
  };
  const by = { batchSize: 2 };
  assert.deepEqual(await all(new DataLoader([[1, 2], [3, 4], [5, 6]], by)), [[[1, 2], [3, 4]], [[5, 6]]]);
  assert.deepEqual(await all(new DataLoader(Uint8Array.of(1, 2, 3), by)), [[1, 2], [3]]);
  const onDevice = Tensor.arange(0, 6).reshape([3, 2]);
  assert.deepEqual(await all(new DataLoader(onDevice, by)), [[[0, 1], [2, 3]], [[4, 5]]]);
  const columns = { x: onDevice, y: Int32Array.of(7, 8, 9), z: [[1], [2], [3]], flag: [true, false, true] };
  const [first] = await all(new DataLoader(columns, by));
  assert.deepEqual(first, { y: [7, 8], z: [[1], [2]], flag: [1, 0], x: [[0, 1], [2, 3]] });
  assert.deepEqual(await all(new DataLoader([{ x: [1, 2], y: 3 }, { x: [4, 5], y: 6 }], by)), [{ x: [[1, 2], [4, 5]], y: [3, 6] }]);
  assert.deepEqual(await all(new DataLoader([Float32Array.of(1, 2), Float32Array.of(3, 4)], by)), [[[1, 2], [3, 4]]]);
  assert.deepEqual(await all(new DataLoader([Tensor.ones([2]), Tensor.zeros([2])], by)), [[[1, 1], [0, 0]]]);
  const own = { length: 3, batch: async (rows) => new Tensor(Int32Array.from(rows)) };
  assert.deepEqual(await all(new DataLoader(own, by).map((t) => t.mul(10))), [[0, 10], [20]]);
  const { dtype } = await examples(Uint8Array.of(1)).batch([0]);
  assert.equal(dtype, "u8");

  const numbers = examples([0, 1, 2, 3, 4]);
  const list = async (set) => (await set.batch([...Array(set.length).keys()])).tolist();
  assert.deepEqual(await list(numbers.take(2)), [0, 1]);
  assert.deepEqual(await list(numbers.skip(3).map((t) => t.neg())), [-3, -4]);
  const mixed = await list(numbers.shuffle(3));
  assert.notDeepEqual(mixed, [0, 1, 2, 3, 4]);
  assert.deepEqual(mixed.toSorted(), [0, 1, 2, 3, 4]);
  assert.deepEqual(await list(numbers.shuffle(3)), mixed);
  const taken = [];
  for await (const t of new DataLoader(numbers, by).take(2)) taken.push(await t.tolist());
  assert.deepEqual(taken, [[0, 1], [2, 3]]);
});

test("data that do not fit together are errors that say where", () => {
  const fails = (from, message) => assert.throws(() => examples(from), { code: /E_(VALUE|SHAPE)/, message });
  fails({ x: [1, 2], y: [1] }, /as many examples each, not of 2, 1/);
  fails({ x: 5 }, /x: examples come in/);
  fails({}, /as many examples/);
  fails(null, /a data set comes of/);
  fails([[1, 2], [3]], /not all equally long/);
  fails([Float32Array.of(1), Float32Array.of(1, 2)], /differ in length/);
  fails([Tensor.ones([2]), Tensor.ones([3])], /no example beside/);
  fails([{ x: 1 }, { y: 1 }], /example 1 has not the names x/);
  fails(Tensor.ones([]), /a scalar has no examples/);
  assert.throws(() => examples([1, 2]).select([2]), { code: "E_VALUE", message: /no example 2 of 2/ });
});

const xor = { x: [[0, 0], [0, 1], [1, 0], [1, 1]], y: [[0], [1], [1], [0]] };
const network = () => new nn.Sequential(new nn.Linear(2, 8), (x) => x.tanh(), new nn.Linear(8, 1));

test("shapes that do not fit say what may be meant", async () => {
  const hint = (body) => {
    try {
      body();
    } catch (error) {
      assert.equal(error.code, "E_SHAPE");
      return error.hint;
    }
    assert.fail("it fits");
  };
  const [linear, conv] = [new nn.Linear(784, 10), new nn.Conv2d(3, 8, 3)];
  // what says it is fetched once there is a layer
  const flat = () => hint(() => linear.forward(Tensor.ones([64, 1, 28, 28])));
  for (const start = Date.now(); flat() === undefined && Date.now() - start < 10_000; ) await new Promise((done) => setImmediate(done));
  assert.equal(flat(), "the last axis is 28 and the layer takes 784: flatten(1) first?");
  assert.equal(hint(() => linear.forward(Tensor.ones([2, 5, 28, 28]))), "the last axis is 28 and the layer takes 784: flatten(2) first?");
  assert.equal(hint(() => linear.forward(Tensor.ones([64, 783]))), undefined);
  assert.match(hint(() => conv.forward(Tensor.ones([2, 32, 32, 3]))), /^this looks like channels last \(NHWC\).*permute\(\[0, 3, 1, 2\]\)/);
  assert.match(hint(() => conv.forward(Tensor.ones([3, 32, 32]))), /^the batch's axis is missing: unsqueeze\(0\)/);
  assert.equal(hint(() => conv.forward(Tensor.ones([2, 4, 32, 32]))), undefined);
  assert.equal(hint(() => Tensor.ones([2, 3]).matmul(Tensor.ones([4, 5]))), undefined);
});

test("inputs of a model that do not fit say how to change them", async () => {
  const model = async (path) => load(readFileSync(new URL(`../models/${path}`, import.meta.url)), { device });
  const hintFor = async (loaded, shape) => {
    const error = await loaded.run({ [loaded.inputs[0].name]: Tensor.zeros(shape) }).then(() => assert.fail("it fits"), (error) => error);
    assert.ok(error instanceof InputError && error.code === "E_INPUT", error.stack);
    return error.hint;
  };
  const first = await model("ppocr_cls/model.onnx");
  assert.deepEqual(first.inputs[0].shape, [null, 3, "?", "?"]);
  assert.equal(await hintFor(first, [1, 48, 192, 3]), 'the image is channels last: permute([0, 3, 1, 2]), or fromImage(image, { layout: "nchw" })');
  assert.equal(await hintFor(first, [48, 192, 3]), 'the image is channels last: permute([2, 0, 1]).unsqueeze(0), or fromImage(image, { layout: "nchw" })');
  assert.equal(await hintFor(first, [3, 48, 192]), "the batch axis is missing: add it with unsqueeze(0)");
  assert.equal(await hintFor(first, [1, 1, 3, 48, 192]), "there is a batch axis too many: remove it with squeeze(0)");
  assert.equal(await hintFor(first, [1, 4, 48, 192]), undefined);
  assert.equal(await hintFor(first, [48]), undefined);
  // what the advice makes of the input fits
  const image = Tensor.zeros([48, 192, 3]);
  for (const x of [image.unsqueeze(0).permute([0, 3, 1, 2]), image.permute([2, 0, 1]).unsqueeze(0)]) await first.run({ x });
  const last = await model("selfie_segmentation/model.tflite");
  const [n, height, width, channels] = last.inputs[0].shape;
  const flipped = 'the image is channels first: permute([0, 2, 3, 1]), or fromImage(image, { layout: "nhwc" })';
  assert.equal(await hintFor(last, [n, channels, height, width]), flipped);
  assert.equal(await hintFor(last, [channels, height, width]), flipped.replace("permute([0, 2, 3, 1])", "permute([1, 2, 0]).unsqueeze(0)"));
  first.dispose();
  last.dispose();
});

test("names and forms of PyTorch that are others here are errors that say so", async () => {
  const told = (body) => {
    try {
      body();
    } catch (error) {
      return [error.code, error.message, error.hint];
    }
    return assert.fail("it was accepted");
  };
  const net = new nn.Linear(2, 2);
  assert.deepEqual(told(() => new optim.Adam(net.parameters(), { lr: 0.1 })), ["E_VALUE", "an optimiser has no option `lr`", "it is called learningRate here"]);
  assert.deepEqual(told(() => new rules.Lion(net.parameters(), { weight_decay: 0.1 }))[2], "it is called weightDecay here");
  assert.match(told(() => new optim.SGD(net.parameters(), {}))[1], /^the learning rate is NaN$/);
  assert.deepEqual(told(() => new optim.Adam(net)), ["E_VALUE", "an optimiser needs parameters", "net.parameters()"]);
  const x = new Tensor([1, 2, 3, 4]);
  assert.deepEqual(told(() => x.reshape(2, 2)), ["E_VALUE", "reshape takes an array of numbers", "for example [2, 3], not 2, 3"]);
  assert.equal(told(() => x.add(undefined))[1], "an operand is undefined, not a tensor");
  for (const [foreign, own] of [["float32", "f32"], ["bfloat16", "bf16"], ["uint8", "u8"], ["Int64", "i64"]]) {
    assert.deepEqual(told(() => x.cast(foreign)).filter((_, at) => at !== 1), ["E_DTYPE", `it is called ${own} here`], foreign);
  }
  assert.equal(told(() => x.cast("complex64"))[2], undefined);
});

test("minimize is a step and gives the loss", async () => {
  const w = new Tensor([4, -2], null, { requiresGrad: true });
  const optimizer = new optim.SGD([w], { learningRate: 0.25 });
  assert.equal(await optimizer.minimize(() => w.square().sum()), 20);
  assert.deepEqual([await w.tolist(), w.grad], [[2, -1], null]);
  assert.equal(await optimizer.minimize(() => w.square().sum()), 5);
  await assert.rejects(optimizer.minimize(async () => w.sum()), { code: "E_VALUE" });
});

test("fit trains, tells, and keeps what was best", async () => {
  Tensor.manualSeed(1);
  const net = network();
  const optimizer = new optim.Adam(net.parameters(), { learningRate: 0.05 });
  const loader = new DataLoader(xor, { batchSize: 2, shuffle: 4 });
  const held = async () => (await memory())[0].tensors;
  const steps = [];
  const files = [];
  const scheduler = new rules.LRScheduler(optimizer, rules.Schedule.cosine({ steps: 400 }));
  const validation = [{ x: new Tensor(xor.x), y: new Tensor(xor.y) }];
  const options = { optimizer, scheduler, epochs: 60, loss: ({ x, y }) => net.forward(x).mseLoss(y), validation };
  let early;
  const result = await fit(net, loader, {
    ...options,
    onStep: (s) => void steps.push(s),
    onEpoch: async ({ epoch }) => {
      if (epoch === 1) early = await held();
    },
    checkpoint: (file, epoch) => void files.push([file, epoch]),
  });
  assert.equal(result.ended, "epochs");
  assert.deepEqual([result.epochs.length, steps.length, steps[0].steps, steps.at(-1).step], [60, 120, 120, 120]);
  assert.ok(result.epochs.at(-1).validation < result.epochs[0].validation / 3, JSON.stringify(result.epochs.at(-1)));
  assert.equal(net.training, false);
  const best = result.epochs.filter((e) => e.best);
  assert.deepEqual([files.length, files.at(-1)[1].epoch, result.best], [best.length, best.at(-1).epoch, best.at(-1).epoch]);
  assert.ok((await held()) <= early + 2, "batches are freed");
  const other = network();
  await other.loadStateDict(await loadWeights(files.at(-1)[0]));
  const again = await other.forward(new Tensor(xor.x)).mseLoss(new Tensor(xor.y)).item();
  assert.ok(Math.abs(again - result.epochs[result.best].validation) < 1e-6);
});

test("fit ends early and puts the best weights back", async () => {
  const net = new nn.Linear(1, 1, { bias: false });
  await net.loadStateDict({ weight: new Tensor([[0]]) });
  const optimizer = new optim.SGD(net.parameters(), { learningRate: 1 });
  // steps of 1 towards 10, while the validation wants 3
  const loss = ({ to }) => net.weight.sub(to).abs().sum();
  const result = await fit(net, [{ to: 10 }], { optimizer, loss, epochs: 100, patience: 2, validation: [{ to: 3 }] });
  assert.deepEqual([result.ended, result.best, result.epochs.map((e) => e.validation)], ["patience", 2, [2, 1, 0, 1, 2]]);
  assert.equal(await net.weight.item(), 3);
  const stop = new AbortController();
  const ended = await fit(net, [{ to: 10 }, { to: 10 }], { optimizer, loss, epochs: 9, signal: stop.signal, onStep: ({ step }) => step === 3 && stop.abort() });
  assert.deepEqual([ended.ended, ended.epochs.length], ["signal", 2]);
  await assert.rejects(fit(net, [], { optimizer, loss }), { code: "E_VALUE", message: /no batches/ });
  await assert.rejects(fit(net, [{ to: Number.NaN }], { optimizer, loss }), { code: "E_VALUE", message: /not a number/ });
  await assert.rejects(opfsCheckpoint("x").load(), { code: "E_UNSUPPORTED" });
});

test("memory that forgotten tensors hold is found again", async (t) => {
  /** How many tensors there were at each call. */
  const held = [];
  const refused = (times) => {
    let left = times;
    return (original) =>
      function (...args) {
        held.push(device.raw.counters().tensors);
        if (left-- > 0) return Promise.reject(Object.assign(new Error("no memory"), { code: "E_OUT_OF_MEMORY" }));
        return original.apply(this, args);
      };
  };
  const failing = (name, times) => t.mock.method(device.raw, name, refused(times)(device.raw[name]));
  const forget = () => {
    for (let i = 0; i < 500; i += 1) Tensor.ones([64]).add(i);
  };
  // the engine looks when it is told to here, and in pages when memory is short
  setFlagsFromString("--expose-gc");
  globalThis.gc = runInNewContext("gc");
  t.after(() => delete globalThis.gc);
  forget();
  failing("realize", 1);
  failing("data", 1);
  const x = await Tensor.ones([3]).add(1).realize();
  assert.equal(held.length, 2, "it is tried once more");
  assert.ok(held[1] < held[0] - 500, `what was forgotten is freed before that: ${held}`);
  assert.deepEqual(await x.tolist(), [2, 2, 2]);
  failing("realize", 9);
  await assert.rejects(Tensor.ones([3]).realize(), (error) => error instanceof OutOfMemoryError && error.message === "no memory");
  t.mock.restoreAll();
  failing("runModel", 1);
  const model = await load(new URL("../models/magika/model.onnx", import.meta.url), { device: "wasm" });
  const { target_label: p } = await model.run({ bytes: new Int32Array(2048).fill(32) });
  assert.ok(Math.abs((await p.sum().item()) - 1) < 1e-4);
  model.dispose();
});

test("a whole number leaves integers what they are", async () => {
  const x = new Tensor([3, 16777217, -5], undefined, { dtype: "i32" });
  const same = { add: [1, [4, 16777218, -4]], sub: [1, [2, 16777216, -6]], mul: [2, [6, 33554434, -10]], maximum: [0, [3, 16777217, 0]], mod: [2, [1, 1, 1]] };
  for (const [name, [number, want]] of Object.entries(same)) {
    const got = x[name](number);
    assert.equal(got.dtype, "i32", name);
    assert.deepEqual(await got.tolist(), want, name);
  }
  assert.deepEqual(await x.eq(16777217).cast("i32").tolist(), [0, 1, 0]);
  assert.equal(x.clamp(0, 9).dtype, "i32");
  assert.deepEqual(await new Tensor([3, -2], undefined, { dtype: "i32" }).pow(2).tolist(), [9, 4]);
  // what they do not hold, and fractions, give floats
  for (const got of [x.add(0.5), x.mul(2 ** 31), x.div(2), x.pow(-1), new Tensor([3], undefined, { dtype: "u8" }).sub(256)]) assert.equal(got.dtype, "f32");
  assert.equal(new Tensor([1, 2]).cast("f16").add(1).dtype, "f16");
  assert.equal(new Tensor([true]).add(1).dtype, "i32");
});

test("small things", async () => {
  const { einsum } = await torch();
  const [a, b] = [new Tensor([[1, 2], [3, 4]]), new Tensor([[5, 6], [7, 8]])];
  const product = [[19, 22], [43, 50]];
  assert.deepEqual(await einsum("ij,jk->ik", a, b).tolist(), product);
  assert.deepEqual(await einsum("ij,jk->ik", [a, b]).tolist(), product);
  assert.deepEqual(await einsum([a, b], "ij,jk->ik").tolist(), product);
  // a host's own array of halves, as far as one can stand in for it here
  const halves = Object.defineProperty(Uint16Array.of(0x3c00, 0xc100), Symbol.toStringTag, { value: "Float16Array" });
  const h = new Tensor(halves);
  assert.deepEqual([h.dtype, [...(await h.data())]], ["f16", [1, -2.5]]);
  let unhandled = 0;
  const count = () => void (unhandled += 1);
  process.on("unhandledRejection", count);
  assert.throws(() => tidy(async () => Promise.reject(new Error("late"))), { code: "E_VALUE" });
  await new Promise((done) => setTimeout(done, 5));
  process.off("unhandledRejection", count);
  assert.equal(unhandled, 0);
});

test("each of the 65,536 numbers of 16 bits becomes a number of 32 bits and comes back", async () => {
  const bits = Uint16Array.from({ length: 1 << 16 }, (_, i) => i);
  const value = (h) => {
    const [sign, exponent, fraction] = [h >> 15 ? -1 : 1, (h >> 10) & 31, (h & 1023) / 1024];
    if (exponent === 31) return fraction === 0 ? sign * Infinity : NaN;
    return exponent === 0 ? sign * 2 ** -14 * fraction : sign * 2 ** (exponent - 15) * (1 + fraction);
  };
  const half = new Tensor(bits, [bits.length], { dtype: "u16" }).bitcast("f16");
  const wide = half.cast("f32");
  // NaNs have many bits
  const values = await wide.data();
  assert.deepEqual([...bits].filter((h) => !Object.is(values[h], Math.fround(value(h)))), []);
  const back = await wide.cast("f16").bitcast("u16").data();
  const wrong = bits.filter((h) => !Number.isNaN(value(h)) && back[h] !== h);
  assert.deepEqual([...wrong], []);
});
