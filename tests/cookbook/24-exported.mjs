// Run a model without a compiler. `gradloom export model.onnx --target web -o densenet/` wrote the module beforehand, with plan, kernels and weights.
import { load } from "../tmp/export/web/zoo_densenet/model.js";

const model = await load({ device: "wasm" });
const [{ name, shape }] = model.inputs;
const size = shape.reduce((a, b) => a * b, 1);
const outputs = await model.run({ [name]: new Float32Array(size).fill(0.5) });
const [values] = Object.values(outputs);
console.log(model.device, shape.join("x"), values.length, values.every(Number.isFinite));
//> wasm 2x3x64x64 20 true
model.dispose();
