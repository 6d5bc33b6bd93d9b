// The parts of the wasm module: each is loaded before it is first needed and no earlier, once for all instances; one that does not load is
// an error of its own kind and can be tried again.
import assert from "node:assert/strict";
import fs from "node:fs/promises";
import { readFileSync } from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { test } from "node:test";
import { FetchError, Tensor, init, irKernel, load, loadWeights, nn, optim, saveWeights } from "gradloom";
import { loadNetwork } from "gradloom/finetune";
import { readNpz, readZip } from "../lib/npz.mjs";

const folder = new URL("../models/zoo_t5_encoder/", import.meta.url);
const MODEL = new URL("model.onnx", folder);
/** A model with an operator that few networks have: a loop that doubles its input until the sum is above 20. */
const zip = await readZip(readFileSync(new URL("../fixtures/onnx/dynamic.zip", import.meta.url)));
const LOOP = zip.get("dynamic/while/model.onnx");
const pkg = new URL("../node_modules/gradloom/dist/pkg/", import.meta.url);

/** The wasm files that were read since the last look, and what is done to the bytes of the next one of a name. */
let read = [];
const changes = new Map();
const { readFile } = fs;
fs.readFile = async (path, ...rest) => {
  const [, name] = /gradloom_(\w+)_bg\.wasm$/.exec(String(path)) ?? [];
  const bytes = await readFile(path, ...rest);
  if (!name) return bytes;
  read.push(name);
  const change = changes.get(name);
  changes.delete(name);
  return change ? change(bytes) : bytes;
};
syncBuiltinESMExports();
const seen = () => read.splice(0).sort();

const arrays = await readNpz(readFileSync(new URL("input.npz", folder)));
const [expected] = Object.values(await readNpz(readFileSync(new URL("expected.npz", folder))));
async function run(model) {
  const inputs = Object.fromEntries(Object.entries(arrays).map(([name, { data, shape }]) => [name, new Tensor(data, shape)]));
  const [output] = Object.values(await model.run(inputs));
  return (await output.data())[0];
}
const right = (value) => assert.ok(Math.abs(value - expected.data[0]) <= 1e-3 * Math.abs(expected.data[0]), `${value}`);

test("tensors and training need the device's part and no other", async () => {
  await init({ device: "wasm", threads: 2 });
  assert.deepEqual(seen(), ["wasm", "web"]);
  const layer = new nn.Linear(3, 2);
  const x = new Tensor([[1, 2, 3], [4, 5, 6]]);
  const step = new optim.SGD(layer.parameters(), { learningRate: 0.1 });
  const before = await layer.forward(x).softmax(-1).tolist();
  layer.forward(x).softmax(-1).mul(new Tensor([[1, 0], [0, 1]])).sum().backward();
  step.step();
  const after = await layer.forward(x).softmax(-1).tolist();
  assert.equal(before.length, 2);
  assert.notDeepEqual(after, before);
  assert.ok(after.flat().every(Number.isFinite), `${after}`);
  assert.deepEqual(await new Tensor([[1, 2], [3, 4]]).matmul(new Tensor([[1], [1]])).tolist(), [[3], [7]]);
  assert.deepEqual(await new Tensor([3, 1, 2]).sort()[0].tolist(), [1, 2, 3]);
  assert.deepEqual(seen(), []);
});

const refused = (part, what) => (error) => error instanceof FetchError && error.code === "E_FETCH" && error.message.includes(part) && what.test(error.message);

test("kernels as loops need their reader", async () => {
  const kernel = await irKernel(readFileSync(new URL("../fixtures/kernels/softmax.ir", import.meta.url), "utf8"));
  assert.deepEqual(seen(), ["loops"]);
  assert.equal((await kernel.launch([Tensor.zeros([5, 7])]).data())[3].toFixed(4), "0.1429");
  assert.deepEqual(seen(), []);
});

test("a part that does not load is a FetchError, all else goes on, and the next call tries again", async () => {
  changes.set("onnx", () => {
    throw new Error("the disk is gone");
  });
  await assert.rejects(load(MODEL), refused("onnx", /the disk is gone/));
  changes.set("onnx", () => Buffer.from("<!doctype html>"));
  await assert.rejects(load(MODEL), refused("onnx", /compile/i));
  // a part of another build: the memory that it asks for has another name
  changes.set("onnx", (bytes) => {
    const at = bytes.indexOf("$$m0.") + 5;
    bytes[at] = bytes[at] === 0x30 ? 0x31 : 0x30;
    return bytes;
  });
  await assert.rejects(load(MODEL), refused("onnx", /import/i));
  assert.deepEqual(seen(), ["onnx", "onnx", "onnx"]);
  assert.deepEqual(await new Tensor([1, 2]).add(1).tolist(), [2, 3]);
  right(await run(await load(MODEL)));
  assert.deepEqual(seen(), ["onnx"]);
});

const doubled = async (model) => Array.from(await (await model.run({ x: Float32Array.of(20, 30) })).y.data());

test("a file with an operator that few networks have brings the part of such, once and after that for models", async () => {
  changes.set("rare", () => {
    throw new Error("the disk is gone");
  });
  await assert.rejects(load(LOOP), refused("rare", /the disk is gone/));
  assert.deepEqual(seen(), ["rare"]);
  const [first, second] = await Promise.all([load(LOOP), load(LOOP)]);
  assert.deepEqual(await doubled(first), [40, 60]);
  assert.deepEqual(await doubled(second), [40, 60]);
  assert.deepEqual(seen(), ["rare"]);
  // a part that comes after another one needs that in an instance of its own too
  const device = await init({ device: "wasm", threads: 1, isolated: true });
  const network = await loadNetwork(new URL("../models/zoo_densenet/model.onnx", import.meta.url), { device });
  assert.ok(network.parameters().length > 0);
  assert.deepEqual(await doubled(await load(LOOP, { device })), [40, 60]);
  assert.deepEqual(seen(), ["learn"]);
  device.dispose();
});

test("what nobody supports is told by the part that has all operators", async () => {
  const bytes = Uint8Array.from(LOOP);
  const at = Buffer.from(bytes).indexOf("Loop");
  bytes.set(Buffer.from("Lxxp"), at);
  await assert.rejects(load(bytes), (error) => error.code === "E_UNSUPPORTED" && /Lxxp/.test(error.message));
});

test("other parts come when they are needed, once", async () => {
  const [first, second] = await Promise.all([load(MODEL), load(MODEL)]);
  right(await run(first));
  right(await run(second));
  assert.deepEqual(seen(), []);
  const file = await saveWeights({ a: new Tensor([1, 2, 3]) });
  assert.deepEqual(seen(), ["weights"]);
  assert.deepEqual(await (await loadWeights(file)).a.tolist(), [1, 2, 3]);
  assert.deepEqual(seen(), []);
  await first.device.tune({ ms: 1 });
  await first.device.tune({ ms: 1 });
  assert.deepEqual(seen(), ["tune"]);
});

test("an instance of its own is joined by the parts that were loaded", async () => {
  const device = await init({ device: "wasm", threads: 1, isolated: true });
  right(await run(await load(MODEL, { device })));
  assert.deepEqual(seen(), []);
  device.dispose();
});

test("a module that has all parts in it loads none", async () => {
  const bytes = readFileSync(new URL("gradloom_whole_bg.wasm", pkg));
  const device = await init({ device: "wasm", threads: 1, isolated: true, bytes });
  right(await run(await load(MODEL, { device })));
  const file = await saveWeights({ a: new Tensor([1, 2, 3], null, { device }) });
  assert.deepEqual(await (await loadWeights(file, { device })).a.tolist(), [1, 2, 3]);
  assert.deepEqual(seen(), []);
  device.dispose();
});
