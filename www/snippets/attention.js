// Attention. Change anything: it runs as you type.
import { Tensor } from "gradloom";

const [words, size] = [8, 32];
const q = Tensor.randn([words, size]);
const k = Tensor.randn([words, size]);
const v = Tensor.randn([words, size]);

const scores = q.matmul(k.transpose(0, 1)).div(Math.sqrt(size));
const weights = scores.softmax();
const mixed = weights.matmul(v);

// show() and plot() are this page's, all else the package's
await show(weights, "who looks at whom");
await show(mixed, "what each word takes along");
console.log("rows add up to", await weights.sum([1]).tolist());
