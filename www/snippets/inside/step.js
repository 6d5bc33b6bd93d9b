// One training step: forward, backward and Adam, all planned at once.
import { Tensor, nn, optim } from "gradloom";

const net = new nn.Sequential(new nn.Linear(64, 32), (x) => x.gelu(), new nn.Linear(32, 10));
await net.realize();
const optimizer = new optim.Adam(net.parameters(), { learningRate: 1e-3 });
const x = Tensor.rand([16, 64]);
const y = Tensor.arange(0, 16).mod(10).cast("i32");
console.log("loss", await optimizer.minimize(() => net.forward(x).crossEntropy(y)));
