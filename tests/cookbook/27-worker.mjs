// Feed outputs back. In a page models work in a worker, which all of them share, so that the page is never blocked; with `stay` what they give remains
// there, `data` reads it, and given to the next run it is not copied. A cache that grows is one plan: from the third step on nothing is compiled.
import { Tensor, load } from "gradloom";

const model = await load(new URL("../models/zoo_llama_past/model.onnx", import.meta.url));
const names = ["past_k0", "past_v0", "past_k1", "past_v1"];
let cache = names.map(() => Tensor.zeros([1, 2, 2, 8]));
const compiled = [];
let token = 1n;
for (let length = 2; length < 12; length += 1) {
  const inputs = { input_ids: [[token]], attention_mask: Tensor.ones([1, length + 1], { dtype: "i64" }) };
  names.forEach((name, at) => (inputs[name] = cache[at]));
  const [logits, ...next] = Object.values(await model.run(inputs, { stay: true }));
  compiled.push(model.timing.kernelsCompiled);
  const scores = await logits.data();
  token = BigInt(scores.indexOf(Math.max(...scores)));
  cache.forEach((each) => each.dispose());
  logits.dispose();
  cache = next;
}
console.log(cache[0].shape.join(" "));
//> 1 2 12 8
console.log(compiled.slice(3).every((count) => count === 0));
//> true
model.dispose();
