// Sum over named axes. A batch of products by one equation.
import { Tensor, init } from "gradloom";

await init();
const a = Tensor.ones([2, 3, 4]);
const b = Tensor.full([2, 4, 5], 2);
const c = a.matmul(b);
console.log(c.shape.join(" "), (await c.data())[0]);
//> 2 3 5 8
