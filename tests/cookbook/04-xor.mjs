// Learn XOR with `fit`. Loaders take arrays by name; training is one call.
import { nn, optim, init } from "gradloom";
import { DataLoader, examples } from "gradloom/data";
import { fit } from "gradloom/fit";
import { Tensor } from "gradloom";

await init();
Tensor.manualSeed(3);
const data = examples({ x: [[0, 0], [0, 1], [1, 0], [1, 1]], y: [[0], [1], [1], [0]] });
const net = new nn.Sequential(new nn.Linear(2, 16), (h) => h.tanh(), new nn.Linear(16, 1));
await fit(net, new DataLoader(data, { batchSize: 4 }), {
  optimizer: new optim.Adam(net.parameters(), { learningRate: 0.05 }),
  loss: ({ x, y }) => net.forward(x).mseLoss(y),
  epochs: 200,
});
const answers = await net.forward(new Tensor([[0, 0], [0, 1], [1, 0], [1, 1]])).round().abs().flatten().tolist();
console.log(answers);
//> [ 0, 1, 1, 0 ]
