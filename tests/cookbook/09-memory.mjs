// Free what is not needed. `tidy` lets go of all that a function makes except what it returns.
import { Tensor, init, memory, tidy } from "gradloom";

await init();
const held = async () => (await memory())[0].tensors;
const before = await held();
const mean = tidy(() => {
  const x = Tensor.ones([100, 100]).mul(4);
  return x.sqrt().mean();
});
console.log(await mean.item(), (await held()) - before);
//> 2 1
