// A GPT of two blocks that learns to write from a page of text, letter by letter.
import { Tensor, nn, optim, tidy } from "gradloom";

const [WIDTH, HEADS, CONTEXT] = [64, 4, 32];

class Block extends nn.Module {
  a = new nn.LayerNorm(WIDTH);
  qkv = new nn.Linear(WIDTH, 3 * WIDTH);
  out = new nn.Linear(WIDTH, WIDTH);
  b = new nn.LayerNorm(WIDTH);
  up = new nn.Linear(WIDTH, 4 * WIDTH);
  down = new nn.Linear(4 * WIDTH, WIDTH);
  forward(x, mask) {
    const [n, t] = x.shape;
    const all = this.qkv.forward(this.a.forward(x)).reshape([n, t, 3, HEADS, WIDTH / HEADS]).permute([2, 0, 3, 1, 4]);
    const [q, k, v] = [0, 1, 2].map((i) => all.slice([i, i + 1]).reshape([n, HEADS, t, WIDTH / HEADS]));
    const weights = q.matmul(k.transpose(2, 3)).div(Math.sqrt(WIDTH / HEADS)).add(mask).softmax();
    const mixed = weights.matmul(v).permute([0, 2, 1, 3]).reshape([n, t, WIDTH]);
    const y = x.add(this.out.forward(mixed));
    return y.add(this.down.forward(this.up.forward(this.b.forward(y)).gelu()));
  }
}

export class Writer extends nn.Module {
  constructor(letters) {
    super();
    this.letters = new nn.Embedding(letters, WIDTH);
    this.places = new nn.Embedding(CONTEXT, WIDTH);
    this.blocks = [new Block(), new Block()];
    this.norm = new nn.LayerNorm(WIDTH);
    this.head = new nn.Linear(WIDTH, letters);
  }
  /** [batch, CONTEXT] -> [batch, CONTEXT, letters] */
  forward(ids) {
    const at = Tensor.arange(0, CONTEXT);
    const mask = at.reshape([1, CONTEXT]).gt(at.reshape([CONTEXT, 1])).cast("f32").mul(-1e9);
    let x = this.letters.forward(ids).mul(0.1).add(this.places.forward(at).mul(0.1));
    for (const block of this.blocks) x = block.forward(x, mask);
    return this.head.forward(this.norm.forward(x));
  }
}

/** Trains on pieces of a text (numbers of letters), and tells the loss of each step. */
export async function* train(net, ids, steps, random, batch = 16) {
  const optimizer = new optim.AdamW(net.parameters(), { learningRate: 3e-3 });
  for (let step = 0; step < steps; step += 1) {
    optimizer.learningRate = 3e-3 * Math.min(1, (step + 1) / 20, 1.2 - step / steps);
    const starts = Array.from({ length: batch }, () => Math.floor(random() * (ids.length - CONTEXT - 1)));
    const piece = (by) => new Tensor(Int32Array.from(starts.flatMap((s) => [...ids.subarray(s + by, s + by + CONTEXT)])), [batch, CONTEXT]);
    const [x, y] = [piece(0), piece(1)];
    yield optimizer.minimize(() => net.forward(x).flatten(0, 1).crossEntropy(y.flatten()));
    x.dispose();
    y.dispose();
  }
}

/** Writes so many letters after a start. */
export async function write(net, start, count, random, temperature = 0.6) {
  const ids = [...start];
  for (let n = 0; n < count; n += 1) {
    const seen = ids.slice(-CONTEXT);
    const x = new Tensor(Int32Array.from({ length: CONTEXT }, (_, i) => seen[i] ?? 0), [1, CONTEXT]);
    using p = tidy(() => net.forward(x).slice([], [seen.length - 1, seen.length]).flatten().div(temperature).softmax());
    let left = random();
    const chances = await p.data();
    const next = chances.findIndex((each) => (left -= each) < 0);
    ids.push(next < 0 ? chances.length - 1 : next);
    x.dispose();
  }
  return ids;
}
