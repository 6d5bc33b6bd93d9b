// Multiply two matrices. Tensors are lazy: nothing is computed before `tolist`.
import { Tensor, init } from "gradloom";

await init();
const a = new Tensor([[1, 2], [3, 4]]);
const b = new Tensor([[5, 6], [7, 8]]);
console.log(await a.matmul(b).tolist());
//> [ [ 19, 22 ], [ 43, 50 ] ]
