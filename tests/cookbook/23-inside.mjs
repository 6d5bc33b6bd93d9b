// Look inside a model. Its graph is plain data, and inner values can be what a run computes.
import { Tensor, load } from "gradloom";

const model = await load(new URL("../models/zoo_densenet/model.onnx", import.meta.url), { device: "wasm" });
const { nodes, initializers } = model.graph;
console.log(nodes.filter(({ op }) => op === "Conv").length > 1, initializers.every(({ bytes }) => bytes > 0));
//> true true
const [first] = nodes.filter(({ op }) => op === "Conv");
const [name] = first.outputs;
const [{ name: input, shape }] = model.inputs;
const x = Tensor.zeros(shape.map((n) => (typeof n === "number" ? n : 1)));
const { [name]: features } = await model.run({ [input]: x }, { outputs: [name] });
console.log(features.shape.length, features.shape[1] === initializers.find((t) => t.name === first.inputs[1]).shape[0]);
//> 4 true
