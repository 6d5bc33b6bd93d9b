// The layers of `gradloom/nn` that `nn` of the package's core has not, against PyTorch's numbers.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Tensor, init, nn as core, tidy } from "gradloom";
import * as nn from "gradloom/nn";
import { cases, close, layer, numbers } from "./cases.mjs";

await init();

const small = { feedForward: 5, dropout: 0 };

test("the entry has all of the core's layers, as the same classes or more of them", () => {
  for (const [name, value] of Object.entries(core)) {
    assert.ok(nn[name] === value || nn[name].prototype instanceof value, name);
  }
});

test("the plain ones", async () => {
  await layer("nn_linear", new nn.Linear(4, 3));
  await layer("nn_mlp", new nn.Sequential(new nn.Linear(4, 5), (x) => x.tanh(), new nn.Linear(5, 2)));
  await layer("nn_embedding", new nn.Embedding(7, 3));
  await layer("nn_layer_norm", new nn.LayerNorm([3, 4]));
  const order = ["running_mean", "running_var", "weight", "bias"];
  await layer("nn_batch_norm", new nn.BatchNorm(3), (m, x) => [m.forward(x), m.running_mean, m.running_var], order);
});

test("recurrent networks from a state", async () => {
  await layer("nn_gru", new nn.GRU(3, 4), (m, x) => m.run(x));
  await layer("nn_lstm_state", new nn.LSTM(2, 3), (m, x, h, c) => m.run(x, [h, c]));
  await layer("nn_rnn_deep", new nn.RNN(2, 3, { layers: 2, bidirectional: true }), (m, x) => m.run(x));
  const projected = new nn.LSTM(3, 4, { layers: 2, bidirectional: true, projection: 2 });
  await layer("nn_lstm_projected", projected, (m, x, h, c) => m.run(x, [h, c]));
  assert.deepEqual(projected.forward(Tensor.ones([2, 5, 3])).shape, [2, 5, 4]);
  assert.deepEqual(projected.run(Tensor.ones([2, 5, 3])).map((t) => t.shape), [[2, 5, 4], [4, 2, 2], [4, 2, 4]]);
  for (const projection of [4, -1, NaN]) assert.throws(() => new nn.LSTM(3, 4, { projection }), { code: "E_VALUE" });
  assert.throws(() => new nn.GRU(3, 4, { projection: 2 }).forward(Tensor.ones([1, 1, 3])), { code: "E_VALUE" });
  await layer("nn_gru_time_first", new nn.GRU(3, 2, { layers: 2, bias: false, batchFirst: false }), (m, x, h) => m.run(x, [h]));
});

test("convolutions of other ranks, and transposed ones", async () => {
  await layer("nn_conv", new nn.Conv(2, 4, [3, 3], { padding: 1, groups: 2 }));
  await layer("nn_conv_transpose", new nn.ConvTranspose1d(2, 3, 3, { stride: 2 }));
  const line = new nn.Conv1d(1, 1, 2, { bias: false });
  await line.loadStateDict({ weight: new Tensor([1, 10], [1, 1, 2]) });
  assert.deepEqual(await line.forward(new Tensor([1, 2, 3], [1, 1, 3])).tolist(), [[[21, 32]]]);
  const solid = new nn.Conv3d(1, 2, [1, 2, 1], { stride: [1, 2, 1] });
  await solid.loadStateDict({ weight: new Tensor([1, 10, 2, 3], [2, 1, 1, 2, 1]), bias: new Tensor([0.5, 0]) });
  assert.deepEqual(await solid.forward(new Tensor([1, 2, 3, 4], [1, 1, 1, 4, 1])).tolist(), [[[[[21.5], [43.5]]], [[[8], [18]]]]]);
  // each number is spread by the weight, two apart, and one more place is asked for
  const plane = new nn.ConvTranspose2d(1, 1, [1, 2], { stride: [1, 2], outputPadding: [0, 1], bias: false });
  await plane.loadStateDict({ weight: new Tensor([1, 10], [1, 1, 1, 2]) });
  assert.deepEqual(await plane.forward(new Tensor([3, 4], [1, 1, 1, 2])).tolist(), [[[[3, 30, 4, 40, 0]]]]);
  const grown = new nn.ConvTranspose3d(2, 4, [1, 1, 2], { groups: 2 });
  assert.deepEqual([grown.weight.shape, grown.bias.shape], [[2, 2, 1, 1, 2], [4]]);
  assert.deepEqual(grown.forward(Tensor.ones([1, 2, 1, 1, 3])).shape, [1, 4, 1, 1, 4]);
  assert.throws(() => new nn.Conv1d(3, 4, 1, { groups: 2 }), { code: "E_VALUE" });
  assert.throws(() => new nn.Conv3d(1, 1, [2, 2]), { code: "E_VALUE" });
});

test("cells", async () => {
  await layer("nn_rnn_cell", new nn.RNNCell(3, 4), (m, x, h) => m.run(x, [h]));
  await layer("nn_gru_cell", new nn.GRUCell(3, 4), (m, x, h) => [m.forward(x, h)]);
  await layer("nn_lstm_cell", new nn.LSTMCell(3, 4), (m, x, h, c) => m.run(x, [h, c]));
  // two steps from zeros are the network's
  const rnn = new nn.RNN(2, 3, { nonlinearity: "relu", bias: false });
  const cell = new nn.RNNCell(2, 3, { nonlinearity: "relu", bias: false });
  const { weight_ih_l0, weight_hh_l0 } = rnn.stateDict();
  await cell.loadStateDict({ weight_ih: weight_ih_l0, weight_hh: weight_hh_l0 });
  const x = new Tensor(numbers(3, 8, -2, 2), [2, 2, 2]);
  const at = (t) => x.slice([null, null], [t, t + 1]).squeeze(1);
  const [, last] = rnn.run(x);
  close("two steps", await cell.forward(at(1), cell.forward(at(0))).data(), [...(await last.data())], 1e-6);
});

test("decoders and whole transformers", async () => {
  await layer("nn_decoder_layer", new nn.TransformerDecoderLayer(4, 2, small), (m, x, memory) => [m.forward(x, memory, { causal: true })]);
  await layer("nn_transformer", new nn.Transformer(4, 2, [1, 2], small), (m, x, y) => [m.forward(x, y)]);
  const names = Object.keys(new nn.Transformer(2, 1, [1, 1], { feedForward: 1 }).stateDict());
  assert.equal(names.length, 12 + 18 + 4);
  for (const name of ["encoder.layers.0.self_attn.in_proj_weight", "encoder.norm.weight", "decoder.layers.0.multihead_attn.in_proj_bias",
    "decoder.layers.0.norm3.weight", "decoder.norm.bias"]) assert.ok(names.includes(name), name);
});

test("attention tells what each query saw", async () => {
  const net = new nn.MultiheadAttention(6, 2);
  await layer("nn_attention_weights", net, (m, q, k) => m.run(q, k, k, { averageWeights: false }));
  const [x, k, v] = [[2, 3, 6], [2, 4, 6], [2, 4, 6]].map((shape, seed) => new Tensor(numbers(seed, shape[0] * shape[1] * 6, -2, 2), shape));
  const [y, heads] = net.run(x, k, v, { averageWeights: false });
  const [same, mean] = net.run(x, k, v);
  assert.deepEqual([heads.shape, mean.shape], [[2, 2, 3, 4], [2, 3, 4]]);
  close("mean", await mean.data(), [...(await heads.mean(1).data())], 1e-6);
  close("output", await same.data(), [...(await y.data())], 1e-6);
  close("rows", await mean.sum(-1).data(), Array(6).fill(1), 1e-5);
  // keys and values are projected by weights of their own
  assert.notDeepEqual([...(await net.run(x, k, k)[0].data())], [...(await same.data())]);
  const [, own] = net.run(x, undefined, undefined, { causal: true });
  assert.deepEqual((await own.tolist())[0][0].slice(1), [0, 0]);
  const [, masked] = net.run(x, k, v, { mask: new Tensor(Uint8Array.of(1, 1, 0, 1), [1, 1, 1, 4], { dtype: "bool" }) });
  assert.ok((await masked.tolist()).flat().every((row) => row[2] === 0));
  const plain = new nn.MultiheadAttention(6, 2, { bias: false });
  assert.deepEqual(Object.keys(plain.stateDict()), ["in_proj_weight", "out_proj.weight"]);
  assert.deepEqual(plain.forward(x).shape, x.shape);
});

test("attention begins without biases", async () => {
  const { in_proj_bias, out_proj } = new nn.MultiheadAttention(4, 2);
  assert.deepEqual([await in_proj_bias.tolist(), await out_proj.bias.tolist()], [Array(12).fill(0), Array(4).fill(0)]);
  assert.ok((await out_proj.weight.abs().sum().item()) > 0);
});

test("bilinear maps and the adaptive softmax", async () => {
  await layer("nn_bilinear", new nn.Bilinear(3, 2, 4), (m, x, y) => [m.forward(x, y)]);
  assert.throws(() => new nn.Bilinear(3, 2, 4).forward(Tensor.ones([2, 3]), Tensor.ones([2, 1])), { code: "E_SHAPE" });
  const softmax = new nn.AdaptiveLogSoftmax(6, 12, [4, 7], { divide: 2 });
  await layer("nn_adaptive_softmax", softmax, (m, x, target) => m.run(x, target));
  const all = await softmax.forward(Tensor.ones([6])).exp().sum().item();
  assert.ok(Math.abs(all - 1) < 1e-5, `the probabilities sum to ${all}`);
  assert.throws(() => new nn.AdaptiveLogSoftmax(6, 12, [4, 4]), { code: "E_VALUE" });
});

test("instance norm with running statistics and without", async () => {
  const tracked = () => new nn.InstanceNorm(3, { trackRunningStats: true });
  await layer("nn_instance_tracked", tracked(), (m, x) => [m.forward(x), m.running_mean, m.running_var]);
  await layer("nn_instance_tracked_use", tracked().eval());
  const plain = new nn.InstanceNorm(2, { affine: false });
  assert.deepEqual(plain.stateDict(), {});
  close("plain", await plain.forward(new Tensor([1, 3, 10, 30], [1, 2, 2])).data(), [-1, 1, -1, 1], 1e-4);
});

test("weights that are computed of others", async () => {
  await layer("nn_weight_norm", new nn.WeightNorm(new nn.Conv1d(2, 4, 3)));
  await layer("nn_weight_norm_along", new nn.WeightNorm(new nn.Linear(3, 4), 1));
  await layer("nn_spectral_norm", new nn.SpectralNorm(new nn.ConvTranspose1d(2, 3, 2)).eval());
  await layer("nn_spectral_norm_train", new nn.SpectralNorm(new nn.Linear(3, 4)), (m, x) => [m.forward(x), ...m.vectors]);
  // at first nothing is changed by the one, and the largest singular value is 1 by the other
  const inner = new nn.Linear(3, 3);
  await inner.realize();
  const before = [...(await inner.weight.data())];
  close("same", await new nn.WeightNorm(inner).weight().data(), before, 1e-6);
  const weight = new Tensor([3, 0, 0, 0, 1, 0, 0, 0, 0.5], [3, 3]);
  await inner.loadStateDict({ weight, bias: Tensor.zeros([3]) });
  close("spectral", await new nn.SpectralNorm(inner).weight().data(), [1, 0, 0, 0, 1 / 3, 0, 0, 0, 1 / 6], 1e-4);
  const names = Object.keys(new nn.SpectralNorm(new nn.Conv2d(1, 1, 1)).stateDict());
  assert.deepEqual(names, ["bias", ...["original", "0._u", "0._v"].map((name) => `parametrizations.weight.${name}`)]);
  assert.throws(() => new nn.WeightNorm(new nn.Linear(2, 2), 2), { code: "E_VALUE" });
});

test("padding rows, and bags by offsets", async () => {
  await layer("nn_bag_mean", new nn.EmbeddingBag(7, 3, "mean", { padding: 2 }));
  await layer("nn_bag_sum", new nn.EmbeddingBag(7, 3, "sum"), (m, ids, offsets, factors) => [m.forwardOffsets(ids, offsets, factors)]);
  await layer("nn_bag_max", new nn.EmbeddingBag(7, 3, "max"));
  const empty = new nn.EmbeddingBag(3, 2, "max").forwardOffsets(new Tensor(Int32Array.of(1)), new Tensor(Int32Array.of(0, 1)));
  assert.deepEqual((await empty.tolist())[1], [0, 0]);
  const table = new nn.Embedding(4, 2, { padding: 1 });
  const y = table.forward(new Tensor(Int32Array.of(0, 1, 1, 3)));
  y.sum().backward();
  assert.deepEqual((await y.tolist()).slice(1, 3), [[0, 0], [0, 0]]);
  assert.deepEqual(await table.weight.grad.tolist(), [[1, 1], [0, 0], [0, 0], [1, 1]]);
  assert.throws(() => new nn.Embedding(4, 2, { padding: 4 }), { code: "E_VALUE" });
});

test("dropout of channels, and for SELU", async () => {
  const x = Tensor.full([40, 50, 3], 2);
  const channels = new nn.ChannelDropout(0.25);
  const rows = (await channels.forward(x).reshape([2000, 3]).tolist()).map((row) => row.join());
  const scaled = String(Math.fround(2 / 0.75));
  const kept = rows.filter((row) => row === [scaled, scaled, scaled].join()).length;
  const dropped = rows.filter((row) => row === "0,0,0").length;
  assert.equal(kept + dropped, 2000);
  assert.ok(Math.abs(dropped / 2000 - 0.25) < 0.04, `${dropped} of 2000 were dropped`);
  assert.equal(channels.eval().forward(x), x);
  const alpha = new nn.AlphaDropout(0.2);
  const y = alpha.forward(Tensor.randn([20_000]));
  const [mean, std] = [await y.mean().item(), await y.std().item()];
  assert.ok(Math.abs(mean) < 0.05 && Math.abs(std - 1) < 0.05, `mean ${mean}, deviation ${std}`);
  assert.throws(() => new nn.AlphaDropout(1), { code: "E_VALUE" });
});

test("two layers of dropout do not drop the same", async () => {
  const x = Tensor.ones([64]);
  for (const kind of ["Dropout", "AlphaDropout"]) {
    const [a, b] = [new nn[kind](0.5), new nn[kind](0.5)];
    assert.notDeepEqual(await a.forward(x).tolist(), await b.forward(x).tolist(), kind);
  }
});

test("layers are made in a tidy of the caller's too, and freed", async () => {
  const net = tidy(() => ({ norm: new nn.WeightNorm(new nn.Linear(2, 3)).stateDict(), cell: new nn.GRUCell(2, 2).weight_ih }));
  assert.ok(net.cell && !net.cell.disposed);
  const module = new nn.SpectralNorm(new nn.Linear(2, 3));
  const parts = Object.values(module.stateDict());
  module.dispose();
  assert.ok(parts.every((t) => t.disposed));
});

test("every recorded layer is run from JavaScript", () => {
  const text = ["layers", "train"].map((name) => readFileSync(new URL(`${name}.test.mjs`, import.meta.url), "utf8")).join();
  const names = [...cases.keys()].filter((name) => name.startsWith("nn_"));
  assert.deepEqual(names.filter((name) => !text.includes(`layer("${name}"`)), []);
});
