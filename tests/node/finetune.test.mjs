// Models from files that learn: the same steps as layers make, adapters, saving, fit, and what is refused.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { DTypeError, StateError, Tensor, ValueError, init, load, nn, optim, saveWeights } from "gradloom";
import { DataLoader, examples } from "gradloom/data";
import { loadNetwork } from "gradloom/finetune";
import { fit } from "gradloom/fit";
import { model } from "../bench/browser/onnx.mjs";
import { readNpz } from "../lib/npz.mjs";

await init({ device: "wasm" });
const wasm = { device: "wasm" };
const values = (n, seed) => Float32Array.from({ length: n }, (_, at) => ((at * 7919 + seed * 31) % 101) / 101 - 0.5);
const weight = (shape, seed) => ({ data: values(shape.reduce((a, b) => a * b, 1), seed), shape, dtype: "float32" });

/** Two layers, `[8, 4]` to `[8, 3]`, the weights as `nn.Linear` has them. */
function mlp() {
  const weights = { "a.weight": weight([16, 4], 1), "a.bias": weight([16], 2), "b.weight": weight([3, 16], 3), "b.bias": weight([3], 4) };
  const nodes = [
    ["Gemm", ["x", "a.weight", "a.bias"], "h", { transB: 1 }],
    ["Tanh", ["h"], "t"],
    ["Gemm", ["t", "b.weight", "b.bias"], "y", { transB: 1 }],
  ];
  return { file: model({ x: { shape: [8, 4], dtype: "float32" } }, weights, nodes, [8, 3]), weights };
}

const x = new Tensor(values(32, 40), [8, 4]);
const y = new Tensor(values(24, 41), [8, 3]);

async function losses(parameters, forward) {
  const optimizer = new optim.Adam(parameters, { learningRate: 0.02 });
  const out = [];
  for (let step = 0; step < 10; step += 1) out.push(await optimizer.minimize(() => forward().sub(y).square().mean()));
  optimizer.dispose();
  return out;
}

async function close(actual, expected, tolerance = 1e-5) {
  const [a, b] = [await actual.data(), await expected.data()];
  assert.equal(a.length, b.length);
  a.forEach((value, at) => assert.ok(Math.abs(value - b[at]) <= tolerance * Math.max(1, Math.abs(b[at])), `${value} is not ${b[at]}`));
}

test("a loaded graph learns as the same layers do, and what is saved has learned", async () => {
  const { file, weights } = mlp();
  const net = await loadNetwork(file, wasm);
  assert.deepEqual(net.weights.map((w) => w.name), Object.keys(weights));
  assert.deepEqual(net.weights[0], { name: "a.weight", dtype: "f32", shape: [16, 4] });
  assert.deepEqual(Object.keys(net.stateDict()), Object.keys(weights));
  const same = new nn.Sequential(new nn.Linear(4, 16), (t) => t.tanh(), new nn.Linear(16, 3));
  const state = Object.keys(same.stateDict());
  const given = Object.values(weights).map(({ data, shape }) => new Tensor(data, shape));
  await same.loadStateDict(Object.fromEntries(state.map((name, at) => [name, given[at]])));
  const want = await losses(same.parameters(), () => same.forward(x));
  const got = await losses(net.parameters(), () => net.forward(x));
  assert.ok(want[9] < 0.7 * want[0], `${want}`);
  got.forEach((loss, at) => assert.ok(Math.abs(loss - want[at]) <= 1e-5, `step ${at}: ${got}, not ${want}`));
  const saved = await load(await net.save(), wasm);
  await close((await saved.run({ x })).y, same.forward(x));
  await close((await net.run({ x: values(32, 40) })).y, same.forward(x));
});

test("some weights learn, the others stay", async () => {
  const { file, weights } = mlp();
  const net = await loadNetwork(file, { ...wasm, train: ["b.*"] });
  assert.deepEqual(Object.keys(net.stateDict()), ["b.weight", "b.bias"]);
  await losses(net.parameters(), () => net.forward({ x }));
  const again = await loadNetwork(await net.save(), wasm);
  const { "a.weight": a, "b.weight": b } = again.stateDict();
  assert.deepEqual([...(await a.data())], [...weights["a.weight"].data]);
  assert.notDeepEqual([...(await b.data())], [...weights["b.weight"].data]);
});

test("adapters begin as nothing, fit trains them, and the file that is saved is the network", async () => {
  const { file } = mlp();
  const plain = await load(file, wasm);
  const net = await loadNetwork(file, { ...wasm, lora: { rank: 2, alpha: 4 } });
  assert.deepEqual(Object.keys(net.stateDict()), ["a.weight.lora_A", "a.weight.lora_B", "b.weight.lora_A", "b.weight.lora_B"]);
  await close(net.forward(x), (await plain.run({ x })).y);
  const split = (list, width) => Array.from({ length: 8 }, (_, at) => [...list.slice(width * at, width * (at + 1))]);
  const rows = examples({ x: split(values(32, 40), 4), y: split(values(24, 41), 3) });
  const { epochs } = await fit(net, new DataLoader(rows, { batchSize: 8 }), {
    optimizer: new optim.AdamW(net.parameters(), { learningRate: 0.05 }),
    loss: (batch) => net.forward(batch.x).sub(batch.y).square().mean(),
    epochs: 8,
    patience: 8,
  });
  assert.ok(epochs.at(-1).loss < epochs[0].loss, epochs.map((e) => e.loss).join());
  const merged = await load(await net.save(), wasm);
  await close((await merged.run({ x })).y, net.forward(x));
  assert.ok((await saveWeights(net.stateDict())).length > 0);
});

test("a real model learns: inputs of integers, several shapes", async () => {
  const folder = new URL("../models/zoo_t5_encoder/", import.meta.url);
  const inputs = Object.fromEntries(
    Object.entries(await readNpz(readFileSync(new URL("input.npz", folder)))).map(([name, { data, shape }]) => [name, new Tensor(data, shape)]),
  );
  const net = await loadNetwork(new URL("model.onnx", folder), { ...wasm, lora: { rank: 2 } });
  const plain = await load(new URL("model.onnx", folder), wasm);
  const [name, want] = Object.entries(await plain.run(inputs))[0];
  await close((await net.run(inputs))[name], want, 1e-3);
  const optimizer = new optim.Adam(net.parameters(), { learningRate: 1e-3 });
  const out = [];
  for (let step = 0; step < 4; step += 1) out.push(await optimizer.minimize(() => net.forward(inputs).square().mean()));
  assert.ok(out[3] < out[0], `${out}`);
});

test("a network of PyTorch's learns as it does there", async () => {
  const folder = new URL("../fixtures/finetune/", import.meta.url);
  const recorded = await readNpz(readFileSync(new URL("losses.npz", folder)));
  const tensor = (name) => new Tensor(recorded[name].data, recorded[name].shape);
  const ways = {
    everything: [{}, (p) => new optim.Adam(p, { learningRate: 0.003 })],
    some: [{ train: ["up.*", "head.*"] }, (p) => new optim.SGD(p, { learningRate: 0.05, momentum: 0.9, nesterov: true })],
    lora: [{ lora: { rank: 2, alpha: 6 } }, (p) => new optim.AdamW(p, { learningRate: 0.01, weightDecay: 0.02 })],
  };
  for (const [way, [options, make]] of Object.entries(ways)) {
    const net = await loadNetwork(new URL("network.onnx", folder), { ...wasm, ...options });
    if (way === "lora") {
      const first = ([name, { shape }]) => [name, name.endsWith("_A") ? tensor(name) : Tensor.zeros(shape)];
      await net.loadStateDict(Object.fromEntries(Object.entries(net.stateDict()).map(first)));
    }
    const optimizer = make(net.parameters());
    const want = recorded[way].data;
    for (let step = 0; step < want.length; step += 1) {
      const [image, words, labels] = ["image", "words", "labels"].map((name) => tensor(`${name}${step % 3}`));
      const loss = await optimizer.minimize(() => net.forward({ image, words }).crossEntropy(labels));
      assert.ok(Math.abs(loss - want[step]) <= 5e-6, `${way}, step ${step}: ${loss}, not ${want[step]}`);
    }
    net.dispose();
  }
});

test("what cannot learn is refused by name", async () => {
  const { file } = mlp();
  const refused = (options, what, kind = ValueError) =>
    assert.rejects(loadNetwork(file, { ...wasm, ...options }), (e) => e instanceof kind && e.message.includes(what));
  await refused({ train: ["none"] }, "no weight is called `none`");
  await refused({ train: [] }, "names no weight");
  await refused({ lora: { rank: 0 } }, "a rank of 0");
  await refused({ lora: { rank: 2 }, train: "all" }, "exclude each other");
  await refused({ lora: { rank: 2, weights: ["a.bias"] } }, "`a.bias` of shape [16]");
  const codes = { data: Int8Array.from({ length: 32 }, (_, at) => at), shape: [4, 8], dtype: "int8" };
  const scale = { data: Float32Array.of(0.1), shape: [], dtype: "float32" };
  const nodes = [["DequantizeLinear", ["codes", "scale"], "w"], ["MatMul", ["x", "w"], "y"]];
  const quantised = model({ x: { shape: [8, 4], dtype: "float32" } }, { codes, scale }, nodes, [8, 8]);
  await assert.rejects(loadNetwork(quantised, wasm), (e) => e instanceof DTypeError && e.message.includes("`codes` holds int8"));
  const net = await loadNetwork(file, wasm);
  net.dispose();
  assert.throws(() => net.forward(x), StateError);
});
