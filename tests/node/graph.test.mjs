// The graph of a loaded model, and its inner values as outputs of a run.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Tensor, ValueError, init, load, memory } from "gradloom";
import { readNpz } from "../lib/npz.mjs";

const folder = new URL("../models/zoo_t5_encoder/", import.meta.url);
const arrays = async (name) => Object.entries(await readNpz(readFileSync(new URL(name, folder))));

await init({ device: "wasm" });
const model = await load(new URL("model.onnx", folder), { device: "wasm" });
const inputs = Object.fromEntries((await arrays("input.npz")).map(([name, { data, shape }]) => [name, new Tensor(data, shape)]));

test("the graph has nodes in order, with names of their values, attributes, and constants with sizes", () => {
  const { graph } = model;
  assert.equal(graph, model.graph);
  assert.equal(graph.nodes.length, model.nodes);
  assert.deepEqual(graph.outputs, model.outputs.map((port) => port.name));
  const known = new Set([...graph.inputs, ...graph.initializers.map((t) => t.name), ""]);
  for (const { op, inputs, outputs, attributes } of graph.nodes) {
    assert.ok(op && inputs.every((name) => known.has(name)), `${op} reads ${inputs}`);
    outputs.forEach((name) => known.add(name));
    assert.equal(Object.getPrototypeOf(attributes), Object.prototype);
  }
  assert.ok(graph.outputs.every((name) => known.has(name)));
  const elements = graph.initializers.reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0);
  assert.equal(elements, model.parameters);
  for (const { dtype, shape, bytes } of graph.initializers.filter((t) => t.dtype === "f32")) {
    assert.equal(bytes, 4 * shape.reduce((a, b) => a * b, 1), dtype);
  }
  const types = Object.fromEntries(graph.values.map((value) => [value.name, value]));
  for (const { name, dtype, shape } of [...model.inputs, ...model.outputs]) assert.deepEqual([types[name].dtype, types[name].shape], [dtype, shape]);
  const constant = graph.nodes.find(({ op }) => op === "Constant")?.attributes.value;
  assert.ok(constant === undefined || (Array.isArray(constant.shape) && constant.bytes >= 0));
});

test("inner values are computed where they are asked for, beside outputs, and the weights are not there twice", async () => {
  const every = await load(new URL("model.onnx", folder), { device: "wasm", everyValue: true });
  const all = await every.run(inputs);
  every.dispose();
  const [expected] = await arrays("expected.npz");
  const { nodes } = model.graph;
  const softmax = nodes.find(({ op }) => op === "Softmax").outputs[0];
  const product = nodes.find(({ op }) => op === "MatMul").outputs[0];
  await model.run(inputs);
  const [{ bytes }] = await memory();
  const names = [softmax, expected[0], product];
  const out = await model.run(inputs, { outputs: names });
  assert.deepEqual(Object.keys(out), names);
  for (const name of names) {
    const [got, want] = [await out[name].data(), await all[name].data()];
    assert.deepEqual(out[name].shape, all[name].shape);
    assert.ok(got.every((v, i) => Math.abs(v - want[i]) <= 1e-4 * (1 + Math.abs(want[i]))), name);
  }
  const [more] = await memory();
  assert.ok(more.bytes - bytes < 2e6, `${bytes} and then ${more.bytes} bytes`);
  // again, and the model's own after it
  assert.deepEqual(Object.keys(await model.run(inputs, { outputs: [softmax] })), [softmax]);
  assert.equal((await model.run(inputs))[expected[0]].size, expected[1].data.length);
});

test("names that no node gives are errors", async () => {
  const is = (text) => (error) => error instanceof ValueError && error.message.includes(text);
  await assert.rejects(model.run(inputs, { outputs: ["nothing"] }), is("`nothing`"));
  await assert.rejects(model.run(inputs, { outputs: [model.inputs[0].name] }), is(model.inputs[0].name));
  await assert.rejects(model.run(inputs, { outputs: [] }), is("no name"));
  const { name } = model.outputs[0];
  await assert.rejects(model.run(inputs, { outputs: [name, name] }), is("twice"));
  await assert.rejects(model.run(inputs, { outputs: name }), is("list of names"));
});

test("many choices of outputs stay bounded, and go with the model", async () => {
  const names = model.graph.nodes.filter(({ op }) => op === "MatMul" || op === "Add").map(({ outputs }) => outputs[0]).slice(0, 10);
  for (const name of names) assert.ok((await model.run(inputs, { outputs: [name] }))[name].size > 0);
  model.dispose();
  await assert.rejects(model.run(inputs, { outputs: [names[0]] }), (error) => error.code === "E_STATE");
});
