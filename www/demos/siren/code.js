// A picture as a network that maps a position to a colour, with sines as activations (SIREN).
// `await init()` of gradloom comes first, once in a page.
import { Tensor, nn, optim, tidy } from "gradloom";

const SPEED = 18;

/** A linear layer; the bound on its weights keeps the distribution of activations in all layers. */
function sine(inputs, outputs, bound) {
  const linear = new nn.Linear(inputs, outputs);
  nn.init.uniform(linear.weight, -bound, bound);
  nn.init.constant(linear.bias, 0);
  return new nn.Sequential(linear, (x) => x.mul(SPEED).sin());
}

export function network(width = 48) {
  const hidden = () => sine(width, width, Math.sqrt(6 / width) / SPEED);
  return new nn.Sequential(sine(2, width, 1 / 2), hidden(), hidden(), new nn.Linear(width, 3));
}

/** Positions of a grid from -1 to 1, as [side * side, 2]. */
export function places(side) {
  const at = Array.from({ length: side }, (_, i) => (2 * i + 1) / side - 1);
  return new Tensor(at.flatMap((y) => at.map((x) => [x, y])));
}

/** Fits the colours (0 to 1, [n, 3]) at these positions, and yields the loss of each step. */
export async function* fit(net, x, colours, steps) {
  const optimizer = new optim.Adam(net.parameters(), { learningRate: 2e-3 });
  for (let step = 0; step < steps; step += 1) {
    optimizer.learningRate = 2e-3 * (1 - step / steps);
    yield optimizer.minimize(() => net.forward(x).mseLoss(colours));
  }
}

/** Renders the picture at any size, as the network is a function of continuous positions. */
export async function draw(net, side) {
  using y = tidy(() => net.forward(places(side)).clamp(0, 1));
  return await y.data();
}
