// Write a kernel. It runs on WebGPU; the fallback is what WebAssembly computes, and where gradients come from.
import { Tensor, init } from "gradloom";

await init();
const swish = (x) =>
  Tensor.customKernel({
    name: "swish",
    inputs: { x },
    outputs: { y: { shape: x.shape } },
    workgroups: ({ y }) => Math.ceil(y.reduce((a, b) => a * b, 1) / 64),
    wgsl: `@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3u) {
      if (id.x < arrayLength(&y)) { y[id.x] = x[id.x] / (1.0 + exp(-x[id.x])); }
    }`,
    fallback: ({ x }) => x.mul(x.sigmoid()),
  }).y;

const x = new Tensor([0, 1, 2], null, { requiresGrad: true });
const y = swish(x);
y.sum().backward();
const rounded = async (t) => [...(await t.data())].map((v) => v.toFixed(3)).join(" ");
console.log(await rounded(y), "|", await rounded(x.grad));
//> 0.000 0.731 1.762 | 0.500 0.928 1.091
