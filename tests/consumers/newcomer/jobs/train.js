// Train a network, and save it.
import { Tensor, init, nn, optim, saveWeights } from "gradloom";

await init();
const [x, y] = [new Tensor([[0, 0], [0, 1], [1, 0], [1, 1]]), new Tensor([[0], [1], [1], [0]])];
const net = new nn.Sequential(new nn.Linear(2, 16), (h) => h.tanh(), new nn.Linear(16, 1));
const optimizer = new optim.Adam(net.parameters(), { learningRate: 0.05 });
for (let step = 0; step < 300; step += 1) globalThis.loss = await optimizer.minimize(() => net.forward(x).mseLoss(y));
globalThis.result = { loss, bytes: (await saveWeights(net.stateDict())).length };
