// A product and a ReLU: one kernel.
import { Tensor } from "gradloom";

const a = new Tensor(new Float32Array(96 * 64).fill(0.5), [96, 64]);
const b = new Tensor(new Float32Array(64 * 96).fill(2), [64, 96]);
const c = a.matmul(b).relu();
console.log(String(c), (await c.data())[0]);
