// Cells that grow into a picture, each by what it sees of its neighbours
// (Mordvintsev et al. 2020, Growing Neural Cellular Automata).
// `await init()` of gradloom comes first, once in a page.
import { Tensor, nn, tidy } from "gradloom";

/** Per cell: red, green, blue, aliveness, and eight hidden state values. */
export const CHANNELS = 12;

/** Per channel: the cell's own value, and the horizontal and vertical gradients around it. */
function sight() {
  const [self, slope] = [[0, 0, 0, 0, 1, 0, 0, 0, 0], [-1, 0, 1, -2, 0, 2, -1, 0, 1].map((v) => v / 8)];
  const down = slope.map((_, i) => slope[3 * (i % 3) + Math.floor(i / 3)]);
  const each = Array.from({ length: CHANNELS }, () => [self, slope, down]);
  return new Tensor(each.flat(2), [3 * CHANNELS, 1, 3, 3]);
}

export class Cells extends nn.Module {
  think = new nn.Conv2d(3 * CHANNELS, 40, 1);
  act = new nn.Conv2d(40, CHANNELS, 1, { bias: false });

  /** One step of a world [n, 12, height, width]: updates the cells that are alive or next to one. */
  step(world, seen = sight()) {
    const lives = (x) => x.narrow(1, 3, 1).maxPool([3, 3], { stride: 1, padding: 1 }).gt(0.1);
    const near = world.conv(seen, null, { padding: 1, groups: CHANNELS });
    const change = this.act.forward(this.think.forward(near).relu());
    const next = world.add(change);
    return lives(world).logicalAnd(lives(next)).where(next, 0);
  }
}

/** Runs steps: `keep` is 0 for damaged cells, `plant` 1 for a new seed, both [height * width]. */
export function later(cells, world, { keep, plant, steps = 2 }) {
  return tidy(() => {
    const place = [1, 1, ...world.shape.slice(2)];
    const grows = Tensor.arange(0, CHANNELS).ge(3).reshape([1, CHANNELS, 1, 1]).cast("f32");
    const seed = new Tensor(plant, place).mul(grows);
    let next = world.mul(new Tensor(keep, place)).add(seed);
    for (let at = 0, seen = sight(); at < steps; at += 1) next = cells.step(next, seen);
    return next;
  });
}
