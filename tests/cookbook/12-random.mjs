// Repeat random numbers. The same seed gives the same numbers, on every device.
import { Tensor, init } from "gradloom";

await init();
Tensor.manualSeed(7);
const a = await Tensor.randn([1000]).data();
Tensor.manualSeed(7);
const b = await Tensor.randn([1000]).data();
console.log(a.every((v, i) => v === b[i]));
//> true
