// Attention with a causal mask: products, a softmax, a product.
import { Tensor } from "gradloom";

const [heads, words, size] = [4, 64, 32];
const draw = async () => await Tensor.randn([heads, words, size]).realize();
const [q, k, v] = [await draw(), await draw(), await draw()];
const at = Tensor.arange(0, words);
const later = at.reshape([1, words]).gt(at.reshape([words, 1]));
const scores = q.matmul(k.transpose(1, 2)).div(Math.sqrt(size));
const weights = scores.sub(later.cast("f32").mul(1e9)).softmax();
const out = weights.matmul(v);
await out.data();
console.log(String(out));
