// Digits from noise: a network learns to denoise digits (flow matching, arXiv:2210.02747).
// `await init()` of gradloom comes first, once in a page.
import { Tensor, nn, optim, tidy } from "gradloom";

const [PIXELS, DIGITS, WIDTH, WAVES] = [784, 10, 512, 16];
const [norm, square] = [() => new nn.LayerNorm(WIDTH), () => new nn.Linear(WIDTH, WIDTH)];

export class Dreamer extends nn.Module {
  enter = new nn.Linear(PIXELS + DIGITS + 2 * WAVES, WIDTH);
  blocks = [0, 1, 2].map(() => new nn.Sequential(norm(), square(), (x) => x.silu(), square()));
  leave = new nn.Linear(WIDTH, PIXELS);
  /** Denoises pictures [n, 784] at times [n, 1] from 0 (noise) to 1, for one-hot digits [n, 10]. */
  forward(x, t, digit) {
    const turns = t.mul(Tensor.arange(1, WAVES + 1).cast("f32").mul(Math.PI));
    const start = this.enter.forward(Tensor.cat([x, digit, turns.sin(), turns.cos()], 1)).silu();
    return this.leave.forward(this.blocks.reduce((h, block) => h.add(block.forward(h)), start));
  }
}

/** Trains on batches of pictures (from -1 to 1) and digits, and yields the loss of each step. */
export async function* train(net, batches, learningRate = 1e-3) {
  const optimizer = new optim.Adam(net.parameters(), { learningRate, betas: [0.9, 0.99] });
  for (const { picture, digit, progress } of batches) {
    optimizer.learningRate = learningRate * Math.min(1, 20 * progress + 0.05, 1.5 * (1.02 - progress));
    yield optimizer.minimize(() => {
      const [noise, t] = [Tensor.randn(picture.shape), Tensor.rand([picture.shape[0], 1])];
      // a random point on the line from the noise to the picture
      return net.forward(noise.add(picture.sub(noise).mul(t)), t, digit).mseLoss(picture);
    });
  }
}

/** Draws digits [n, 10] from noise in `moves` steps, and yields the pictures after each. */
export async function* dream(net, digits, moves = 24) {
  let picture = Tensor.randn([digits.shape[0], PIXELS]);
  for (let move = 0; move < moves; move += 1) {
    using before = picture;
    const end = () => net.forward(before, Tensor.full([digits.shape[0], 1], move / moves), digits);
    // move a fraction of the way to the predicted picture
    picture = tidy(() => before.add(end().sub(before).div(moves - move)));
    yield await picture.data("f32");
  }
  picture.dispose();
}
