// See what was compiled. The same structure is compiled once.
import { Tensor, init, stats } from "gradloom";

await init({ cache: false });
const run = async () => await Tensor.ones([123]).mul(2).sum().item();
await run();
const [{ kernelsCompiled }] = await stats();
await run();
const [after] = await stats();
console.log(after.kernelsCompiled - kernelsCompiled);
//> 0
