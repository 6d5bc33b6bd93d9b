// A small convolutional network that learns to read digits.
// `await init()` of gradloom comes first, once in a page.
import { Tensor, nn, optim, tidy } from "gradloom";

export const network = () =>
  new nn.Sequential(
    new nn.Conv2d(1, 8, 5, { stride: 2, padding: 2 }),
    (x) => x.relu(),
    new nn.Conv2d(8, 16, 5, { stride: 2, padding: 2 }),
    (x) => x.relu(),
    (x) => x.flatten(1),
    new nn.Linear(16 * 49, 10),
  );

/** Trains on batches { x: pixels, y: labels } and yields the loss of each step. */
export async function* train(net, batches, learningRate = 4e-3) {
  const optimizer = new optim.Adam(net.parameters(), { learningRate });
  for (const { x, y, progress } of batches) {
    optimizer.learningRate = learningRate * Math.min(1, 2 * (1 - progress));
    const loss = () => net.forward(new Tensor(x, [y.length, 1, 28, 28])).crossEntropy(new Tensor(y));
    yield optimizer.minimize(loss);
  }
}

/** The probabilities of the ten digits for each image. */
export async function read(net, pixels) {
  using p = tidy(() => net.forward(new Tensor(pixels, [pixels.length / 784, 1, 28, 28])).softmax());
  return await p.data("f32");
}
