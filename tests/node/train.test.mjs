// Layers, gradients of one's own, random numbers and data sets from JavaScript. Layers against PyTorch's numbers, as recorded
// for the native tests.
import assert from "node:assert/strict";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { Tensor, checkpoint, grad, init, nn } from "gradloom";
import * as data from "gradloom/data";
import { close, layer } from "./cases.mjs";

await init();

const deep = { layers: 2, bidirectional: true };
const small = { feedForward: 5, dropout: 0 };
test("recurrent networks", async () => {
  await layer("nn_lstm", new nn.LSTM(3, 4), (m, x) => m.run(x));
  await layer("nn_lstm_deep", new nn.LSTM(2, 3, deep), (m, x) => m.run(x));
  await layer("nn_gru_deep", new nn.GRU(2, 3, deep), (m, x) => m.run(x));
  await layer("nn_rnn_relu", new nn.RNN(2, 3, { nonlinearity: "relu", bias: false, batchFirst: false }), (m, x, h) => m.run(x, [h]));
});

test("transformers, bags and slopes", async () => {
  await layer("nn_attention", new nn.MultiheadAttention(6, 2), (m, q, k) => [m.forward(q, k)]);
  await layer("nn_encoder_layer", new nn.TransformerEncoderLayer(4, 2, small));
  const pre = new nn.TransformerEncoderLayer(4, 2, { ...small, normFirst: true, activation: (x) => x.gelu() });
  await layer("nn_encoder_layer_pre", pre, (m, x) => [m.forward(x, { causal: true })]);
  await layer("nn_bag_max", new nn.EmbeddingBag(7, 3, "max"));
  await layer("nn_prelu", new nn.PReLU(3));
  await layer("nn_group_norm", new nn.GroupNorm(2, 4));
});

test("batch norm trains its statistics and uses them", async () => {
  const m = new nn.BatchNorm(2);
  assert.deepEqual(Object.keys(m.stateDict()), ["weight", "bias", "running_mean", "running_var"]);
  assert.equal(m.parameters().length, 2);
  const y = m.forward(new Tensor([[1, 10], [3, 30]]));
  close("y", await y.data(), [-1, -1, 1, 1], 1e-4);
  close("mean", await m.running_mean.data(), [0.2, 2]);
  close("variance", await m.running_var.data(), [0.9 + 0.2, 0.9 + 20]);
  m.eval();
  close("use", await m.forward(new Tensor([[0.2, 2]])).data(), [0, 0]);
});

test("gradients of one's own, and checkpoints", async () => {
  const x = new Tensor([0.4, 1.6, -2.7], null, { requiresGrad: true });
  const y = x.round().customGrad([x], (g) => [g.mul(2)]);
  assert.deepEqual(await grad(y.sum(), [x])[0].tolist(), [2, 2, 2]);
  assert.throws(() => x.exp().customGrad([x], () => []), { code: "E_VALUE" });
  const z = checkpoint([x], (t) => t.mul(t).mul(t)).sum();
  close("cube", await grad(z, [x])[0].data(), [0.48, 7.68, 21.87]);
});

test("initial values", async () => {
  const t = Tensor.zeros([6, 4], { requiresGrad: true });
  nn.init.orthogonal(t, 2);
  close("orthogonal", await t.transpose().matmul(t).data(), [4, 0, 0, 0, 0, 4, 0, 0, 0, 0, 4, 0, 0, 0, 0, 4]);
  nn.init.constant(t, 3);
  assert.equal(await t.sum().item(), 72);
});

test("random choices", async () => {
  const p = [0.1, 0.4, 0.05, 0.3, 0.15];
  const logits = new Tensor(p.map(Math.log)).unsqueeze(0).expand([4000, 5]);
  const shares = async (t) => {
    const drawn = [...(await t.data("i32"))];
    return p.map((_, i) => drawn.filter((x) => x === i).length / drawn.length);
  };
  const near = (got, want) => got.forEach((v, i) => assert.ok(Math.abs(v - want[i]) < 0.04, `${got} is not ${want}`));
  near(await shares(logits.categorical()), p);
  near(await shares(logits.sample({ topK: 2 })), [0, 4 / 7, 0, 3 / 7, 0]);
  near(await shares(logits.sample({ topP: 0.71, key: new Tensor(Uint32Array.of(1, 2)) })), [0, 8 / 17, 0, 6 / 17, 3 / 17]);
  assert.equal((await shares(logits.sample({ temperature: 0, seen: new Tensor(Int32Array.of(1), [1]), repetitionPenalty: 5 })))[3], 1);
  near(await shares(new Tensor(p).multinomial(4000, true)), p);
  const order = [...(await Tensor.randperm(20).data("i32"))];
  assert.deepEqual(order.toSorted((a, b) => a - b), [...order.keys()]);
  const rates = await Tensor.full([2000], 4).poisson().mean().item();
  assert.ok(Math.abs(rates - 4) < 0.25, `${rates}`);
});

test("data sets and loaders", async () => {
  const images = Uint8Array.of(0, 0, 8, 3, 0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 2, 0, 1, 10, 11, 20, 21, 30, 31, 40, 41);
  const labels = Uint8Array.of(0, 0, 8, 1, 0, 0, 0, 5, 0, 1, 2, 3, 4);
  const set = await data.mnist(new Uint8Array(gzipSync(images)), labels);
  assert.equal(set.length, 5);
  const epoch = async (loader) => {
    const seen = [];
    for await (const { x, y } of loader) {
      assert.deepEqual(x.shape, [y.shape[0], 1, 1, 2]);
      const [pixels, classes] = [await x.data("u8"), await y.data("u8")];
      classes.forEach((c, i) => assert.equal(pixels[2 * i], 10 * c));
      seen.push([...classes]);
    }
    return seen;
  };
  const plain = new data.DataLoader(set, { batchSize: 2 });
  assert.deepEqual(await epoch(plain), [[0, 1], [2, 3], [4]]);
  assert.equal(plain.length, 3);
  const loader = new data.DataLoader(set, { batchSize: 2, shuffle: 1, dropLast: true, prefetch: 0 });
  const epochs = [];
  for (let i = 0; i < 6; i += 1) epochs.push(JSON.stringify(await epoch(loader)));
  assert.ok(new Set(epochs).size > 1 && JSON.parse(epochs[0]).length === 2);
  const again = new data.DataLoader(set, { batchSize: 2, shuffle: 1, dropLast: true });
  assert.equal(JSON.stringify(await epoch(again)), epochs[0]);
  const broken = { length: 3, batch: async (rows) => (rows[0] === 1 ? Promise.reject(new Error("no such row")) : rows) };
  await assert.rejects(async () => {
    for await (const _ of new data.DataLoader(broken)) continue;
  }, /no such row/);
  await assert.rejects(data.readIdx(labels.subarray(0, 9)), { code: "E_FORMAT" });
  const cifar = new Uint8Array(2 * 3074).fill(9);
  assert.deepEqual((await data.cifar(cifar, 100)).arrays.x.shape, [2, 3, 32, 32]);
  await assert.rejects(data.cifar(cifar, 10), { code: "E_FORMAT" });
});
