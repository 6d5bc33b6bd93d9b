// Two arms of a spiral, which a small network learns to tell apart.
import { Tensor, nn, optim, tidy } from "gradloom";

const n = 200, points = new Float32Array(4 * n), arms = new Int32Array(2 * n);
for (let i = 0; i < 2 * n; i++) {
  const t = 0.5 + 9 * Math.sqrt((i % n) / n), side = i < n ? 1 : -1;
  points[2 * i] = (side * t * Math.cos(t)) / 10;
  points[2 * i + 1] = (side * t * Math.sin(t)) / 10;
  arms[i] = i < n ? 1 : 0;
}
const x = new Tensor(points, [2 * n, 2]), y = new Tensor(arms);

const net = new nn.Sequential(
  new nn.Linear(2, 48), (h) => h.tanh(),
  new nn.Linear(48, 48), (h) => h.tanh(),
  new nn.Linear(48, 2),
);
const optimizer = new optim.Adam(net.parameters(), { learningRate: 0.01 });
for (let step = 0; step < 400; step++) {
  plot("loss", await optimizer.minimize(() => net.forward(x).crossEntropy(y)));
}

// The network's prediction for every point of the plane.
const side = 96, grid = new Float32Array(2 * side * side);
for (let i = 0; i < side * side; i++) {
  grid[2 * i] = ((i % side) / side) * 2 - 1;
  grid[2 * i + 1] = (Math.floor(i / side) / side) * 2 - 1;
}
const p = tidy(() => net.forward(new Tensor(grid, [side * side, 2])).softmax());
await show(p.slice([], [0, 1]).reshape([side, side]), "the plane, divided");
const right = tidy(() => net.forward(x).argmax(1).eq(y).cast("f32").mean());
console.log(`${(100 * (await right.item())).toFixed(1)} % of the points are on their side`);
