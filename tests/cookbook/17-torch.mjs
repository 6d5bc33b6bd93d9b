// Use an operator by PyTorch's name. More than five hundred, typed and differentiable.
import { Tensor, init, torch } from "gradloom";

await init();
const { linalg } = await torch();
const a = new Tensor([[3, 1], [1, 2]]);
const b = new Tensor([[9], [8]]);
const x = await linalg.solve(a, b).flatten().tolist();
console.log(x.map((v) => v.toFixed(3)).join(" "));
//> 2.000 3.000
