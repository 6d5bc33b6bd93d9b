// A picture as a network: from a place to a colour, through sines (SIREN).
import { Tensor, nn, optim, tidy } from "gradloom";

const SPEED = 18;

class Sine extends nn.Module {
  constructor(inputs, outputs, bound) {
    super();
    this.weight = Tensor.uniform([outputs, inputs], -bound, bound, { requiresGrad: true });
    this.bias = Tensor.zeros([outputs], { requiresGrad: true });
  }
  forward(x) {
    return x.linear(this.weight, this.bias).mul(SPEED).sin();
  }
}

export function network(width = 48) {
  const bound = Math.sqrt(6 / width) / SPEED;
  const hidden = () => new Sine(width, width, bound);
  return new nn.Sequential(new Sine(2, width, 1 / 2), hidden(), hidden(), new nn.Linear(width, 3));
}

/** Places of a grid from -1 to 1, as [side * side, 2]. */
export function places(side) {
  const at = (i) => (2 * i + 1) / side - 1;
  return new Tensor(Float32Array.from({ length: 2 * side * side }, (_, i) => at(i % 2 ? (i >> 1) / side | 0 : (i >> 1) % side)), [side * side, 2]);
}

/** Fits the colours (0 to 1, [n, 3]) at these places, and tells the loss of each step. */
export async function* fit(net, x, colours, steps) {
  const optimizer = new optim.Adam(net.parameters(), { learningRate: 2e-3 });
  for (let step = 0; step < steps; step += 1) {
    optimizer.learningRate = 2e-3 * (1 - step / steps);
    yield optimizer.minimize(() => net.forward(x).mseLoss(colours));
  }
}

/** The picture in any size: the network knows no points. */
export async function draw(net, side) {
  using y = tidy(() => net.forward(places(side)).clamp(0, 1));
  return await y.data();
}
