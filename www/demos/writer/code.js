// A GPT of two blocks with four heads that learns to write from a page of text, letter by letter.
// `await init()` of gradloom comes first, once in a page.
import { Tensor, nn, optim, tidy } from "gradloom";

export const CONTEXT = 32; // so many letters it sees at once
const WIDTH = 64;

class Blocks extends nn.Module {
  places = new nn.Embedding(CONTEXT, WIDTH);
  blocks = new nn.TransformerEncoder(WIDTH, 4, 2, { feedForward: 4 * WIDTH, normFirst: true, dropout: 0 });
  norm = new nn.LayerNorm(WIDTH);
  forward(x) {
    return this.norm.forward(this.blocks.forward(x.add(this.places.weight).mul(0.1), { causal: true }));
  }
}

/** [batch, CONTEXT] -> [batch, CONTEXT, letters]: logits of the letter that follows each prefix. */
export const writer = (letters) =>
  new nn.Sequential(new nn.Embedding(letters, WIDTH), new Blocks(), new nn.Linear(WIDTH, letters));

/** Trains on random pieces of a text (indices of letters), and yields the loss of each step. */
export async function* train(net, text, steps, batch = 16) {
  const optimizer = new optim.AdamW(net.parameters(), { learningRate: 3e-3 });
  for (let step = 0; step < steps; step += 1) {
    optimizer.learningRate = 3e-3 * Math.min(1, (step + 1) / 20, 1.2 - step / steps);
    yield optimizer.minimize(() => {
      // random pieces, and the same shifted by one letter
      const start = Tensor.randint([batch, 1], 0, text.length - CONTEXT);
      const at = (by) => start.add(Tensor.arange(by, CONTEXT + by)).flatten();
      const [x, y] = [at(0), at(1)].map((places) => new Tensor(text).indexSelect(0, places));
      return net.forward(x.reshape([batch, CONTEXT])).flatten(0, 1).crossEntropy(y);
    });
  }
}

/** Continues after CONTEXT letters, one letter at a time, until the consumer stops. */
export async function* write(net, ids, temperature = 0.6) {
  for (;;) {
    const logits = () => net.forward(new Tensor(ids, [1, CONTEXT])).narrow(1, CONTEXT - 1, 1);
    using next = tidy(() => logits().sample({ temperature }));
    ids = Int32Array.of(...ids.subarray(1), await next.item());
    yield ids[CONTEXT - 1];
  }
}
