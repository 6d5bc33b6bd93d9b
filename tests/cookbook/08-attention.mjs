// Compute attention with a causal mask. Each word sees itself and those before it.
import { Tensor, init } from "gradloom";

await init();
const [words, size] = [4, 8];
const [q, k] = [Tensor.ones([words, size]), Tensor.ones([words, size])];
const at = Tensor.arange(0, words);
const later = at.reshape([1, words]).gt(at.reshape([words, 1])).cast("f32");
const weights = q.matmul(k.transpose(0, 1)).div(Math.sqrt(size)).sub(later.mul(1e9)).softmax();
console.log((await weights.slice([3, 4]).flatten().tolist()).join(" "));
//> 0.25 0.25 0.25 0.25
console.log((await weights.slice([0, 1]).flatten().tolist()).join(" "));
//> 1 0 0 0
