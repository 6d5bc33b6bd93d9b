// Read the kernels. At level 4 the log has their code.
import { Tensor, init } from "gradloom";

const lines = [];
await init({ debug: 4, log: (text) => lines.push(text) });
await Tensor.ones([64, 64]).matmul(Tensor.ones([64, 64])).sum().item();
await init({ debug: 0 });
console.log(lines.some((text) => text.startsWith("kernel ")), lines.some((text) => text.includes("GFLOP/s")));
//> true true
