// Fit a line. One `minimize` is a whole step: loss, gradients, update.
import { Tensor, init, nn, optim } from "gradloom";

await init();
const x = Tensor.linspace(-1, 1, 64).reshape([64, 1]);
const y = x.mul(3).add(2);
const line = new nn.Linear(1, 1);
const optimizer = new optim.Adam(line.parameters(), { learningRate: 0.1 });
for (let step = 0; step < 300; step += 1) await optimizer.minimize(() => line.forward(x).mseLoss(y));
console.log((await line.weight.item()).toFixed(2), (await line.bias.item()).toFixed(2));
//> 3.00 2.00
