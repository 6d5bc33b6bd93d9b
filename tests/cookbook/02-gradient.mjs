// Get a gradient. `backward` leaves it on every tensor that asks for one.
import { Tensor, init } from "gradloom";

await init();
const x = new Tensor([1, 2, 3], null, { requiresGrad: true });
x.pow(3).sum().backward();
console.log(await x.grad.tolist());
//> [ 3, 12, 27 ]
