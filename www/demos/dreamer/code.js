// Digits out of noise: a network learns what a noisy digit was before the noise (flow matching, Lipman et al. 2022, arXiv:2210.02747).
import { Tensor, nn, optim, tidy } from "gradloom";

const [PIXELS, DIGITS, WIDTH, WAVES] = [784, 10, 512, 16];

export class Dreamer extends nn.Module {
  enter = new nn.Linear(PIXELS + DIGITS + 2 * WAVES, WIDTH);
  blocks = [0, 1, 2].map(() => new nn.Sequential(new nn.LayerNorm(WIDTH), new nn.Linear(WIDTH, WIDTH), (x) => x.silu(), new nn.Linear(WIDTH, WIDTH)));
  leave = new nn.Linear(WIDTH, PIXELS);
  /** Pictures [n, 784], times [n, 1] from 0 (noise) to 1, and digits [n, 10] as ones and zeros: the pictures without noise. */
  forward(x, t, digit) {
    const turns = t.mul(Tensor.arange(1, WAVES + 1).cast("f32").mul(Math.PI));
    let h = this.enter.forward(Tensor.cat([x, digit, turns.sin(), turns.cos()], 1)).silu();
    for (const block of this.blocks) h = h.add(block.forward(h));
    return this.leave.forward(h);
  }
}

/** Trains on batches { x: pixels from -1 to 1, y: digits as ones and zeros }, and tells the loss of each step. */
export async function* train(net, batches, learningRate = 1e-3) {
  const optimizer = new optim.Adam(net.parameters(), { learningRate, betas: [0.9, 0.99] });
  for (const { x, y, progress } of batches) {
    optimizer.learningRate = learningRate * Math.min(1, 20 * progress + 0.05, 1.5 * (1.02 - progress));
    const n = y.length / DIGITS;
    yield optimizer.minimize(() => {
      const [picture, digit, noise, t] = [new Tensor(x, [n, PIXELS]), new Tensor(y, [n, DIGITS]), Tensor.randn([n, PIXELS]), Tensor.rand([n, 1])];
      // somewhere on the straight way from the noise to the picture
      const moving = noise.add(picture.sub(noise).mul(t));
      return net.forward(moving, t, digit).mseLoss(picture);
    });
  }
}

/** Draws digits [n * 10 ones and zeros]: from noise, in so many moves. Yields what it has after each. */
export async function* dream(net, digits, moves = 24) {
  const n = digits.length / DIGITS;
  let picture = await Tensor.randn([n, PIXELS]).realize();
  for (let move = 0; move < moves; move += 1) {
    const next = tidy(() => {
      const end = net.forward(picture, Tensor.full([n, 1], move / moves), new Tensor(digits, [n, DIGITS]));
      // a part of the way to where it should end
      return picture.add(end.sub(picture).div(moves - move));
    });
    picture.dispose();
    picture = next;
    yield await picture.data("f32");
  }
  picture.dispose();
}
