// Five networks learn from the beginning as they do in PyTorch: losses of forty steps, and the size of each tensor after them. Weights, data and noise
// are numbers that names give (tests/zoo/curves.py is PyTorch's side, tests/it/curves.rs that of Rust).
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Tensor, init, tidy } from "gradloom";
import * as nn from "gradloom/nn";
import * as optim from "gradloom/optim";
import { numbers as pseudo } from "./cases.mjs";

const [STEPS, BATCH, SIDE, CLASSES, WINDOW, WIDTH, MOMENTS, LATENT, SEED_NOISE] = [40, 16, 12, 10, 24, 32, 10, 4, 8];
const PIXELS = SIDE * SIDE;
/** Pictures from here on have no place where rounding would decide which gradient a rectifier or a pool has (`curves.py`). */
const FIRST = 900;
/** How far losses and sizes may be off, relative to themselves, where nothing has grown yet: some dozens of roundings. */
const LIMIT = 3e-6;
/** How many times as far off as PyTorch's own f32 is from its f64 up to that step. */
const TIMES = 10;

const recorded = JSON.parse(readFileSync(new URL("../fixtures/curves.json", import.meta.url), "utf8"));
await init({ device: "wasm" });

const numbers = (name, n, lo, hi) => pseudo([...name].reduce((h, c) => (Math.imul(h, 31) + c.charCodeAt(0)) >>> 0, 0), n, lo, hi);
/** Integers below a limit. */
const places = (name, n, limit) => [...numbers(name, n, 0, limit)].map((x) => Math.min(Math.floor(x), limit - 1));
const count = (shape) => shape.reduce((a, b) => a * b, 1);
/** Of mean 0 and variance 1, but uniform. */
const normal = (name, shape) => new Tensor(numbers(name, count(shape), -Math.sqrt(3), Math.sqrt(3)), shape);

/** Noisy pictures `[batch, 1, side, side]` within -1 and 1, and of which class each is; a share of them is the class's pattern. */
function pictures(batch, classes, share) {
  const pixels = new Float32Array(BATCH * PIXELS);
  const labels = new Int32Array(BATCH);
  for (let i = 0; i < BATCH; i += 1) {
    const at = batch * BATCH + i;
    labels[i] = at % classes;
    const pattern = numbers(`pattern${labels[i]}`, PIXELS, -1, 1);
    const noise = numbers(`picture${at}`, PIXELS, -1, 1);
    pattern.forEach((p, k) => (pixels[i * PIXELS + k] = share * p + (1 - share) * noise[k]));
  }
  return [new Tensor(pixels, [BATCH, 1, SIDE, SIDE]), new Tensor(labels, [BATCH])];
}

/** Weights that their names give, as `fill` of `curves.py` makes them. */
async function fill(job, net) {
  const given = ([name, t]) => {
    const [n, limit] = [count(t.shape), Math.sqrt(3 / count(t.shape.slice(1)))];
    const [lo, hi] = t.rank > 1 ? [-limit, limit] : name.endsWith("weight") ? [0.9, 1.1] : [-0.1, 0.1];
    return [name, t.requiresGrad ? new Tensor(numbers(`${job}.${name}`, n, lo, hi), t.shape) : t];
  };
  await net.loadStateDict(Object.fromEntries(Object.entries(net.stateDict()).map(given)));
  return net;
}

/** Parts of a network by their names. */
class Parts extends nn.Module {
  constructor(parts) {
    super();
    Object.assign(this, parts);
  }
}

const jobs = {
  async classifier(rows) {
    const net = await fill("classifier", new nn.Sequential(
      new nn.Conv2d(1, 8, 3, { padding: 1, bias: false }), new nn.BatchNorm(8), (x) => x.maxPool([2, 2]), (x) => x.relu(),
      new nn.Conv2d(8, 16, 3, { stride: 2, padding: 1, bias: false }), new nn.BatchNorm(16), (x) => x.relu(), (x) => x.flatten(1),
      new nn.Linear(144, CLASSES),
    ));
    const sgd = new optim.SGD(net.parameters(), { learningRate: 0.05, momentum: 0.9, weightDecay: 1e-3 });
    for (let step = 0; step < STEPS; step += 1) {
      const [x, y] = pictures(FIRST + step, CLASSES, 0.25);
      rows.push([await sgd.minimize(() => net.forward(x).crossEntropy(y))]);
    }
    const [x, y] = pictures(FIRST + STEPS, CLASSES, 0.25);
    rows.push([await net.eval().forward(x).crossEntropy(y).item()]);
    return net;
  },

  async letters(rows) {
    const codes = [...recorded.text].map((c) => recorded.letters.indexOf(c));
    const encoder = new nn.TransformerEncoder(WIDTH, 4, 2, { feedForward: 2 * WIDTH, dropout: 0, normFirst: true, activation: (x) => x.gelu() });
    encoder.norm = new nn.LayerNorm(WIDTH);
    const parts = { letters: new nn.Embedding(recorded.letters.length, WIDTH), places: new nn.Embedding(WINDOW, WIDTH), encoder };
    const net = await fill("letters", new Parts(parts));
    const adam = new optim.AdamW(net.parameters(), { learningRate: 5e-3, weightDecay: 0.1 });
    const rate = new optim.LRScheduler(adam, optim.Schedule.warmup({ steps: 5, then: optim.Schedule.cosine({ steps: STEPS - 5 }) }));
    for (let step = 0; step < STEPS; step += 1) {
      const starts = places(`letters.start${step}`, BATCH, codes.length - WINDOW);
      const windows = (after) => Int32Array.from(starts.flatMap((at) => codes.slice(at + after, at + after + WINDOW)));
      const loss = tidy(() => {
        const x = net.letters.forward(new Tensor(windows(0), [BATCH, WINDOW])).add(net.places.weight);
        const logits = encoder.forward(x, { causal: true }).matmul(net.letters.weight.transpose()).flatten(0, 1);
        return logits.crossEntropy(new Tensor(windows(1), [BATCH * WINDOW]));
      });
      adam.zeroGrad();
      tidy(() => loss.backward());
      const length = optim.clipGradNorm(net.parameters(), 1);
      await adam.step();
      rate.step();
      rows.push([await loss.item(), await length.item()]);
      for (const t of [loss, length]) t.dispose();
    }
    return net;
  },

  async sums(rows) {
    const net = await fill("sums", new Parts({ lstm: new nn.LSTM(2, 16), gru: new nn.GRU(16, 16), head: new nn.Linear(16, 1) }));
    const adam = new optim.Adam(net.parameters(), { learningRate: 0.01 });
    for (let step = 0; step < STEPS; step += 1) {
      const values = numbers(`sums.value${step}`, BATCH * MOMENTS, -1, 1);
      const first = places(`sums.first${step}`, BATCH, 5);
      const second = places(`sums.second${step}`, BATCH, 5).map((at) => 5 + at);
      const x = new Float32Array(2 * BATCH * MOMENTS);
      const wanted = new Float32Array(BATCH);
      values.forEach((value, i) => {
        const [b, t] = [Math.floor(i / MOMENTS), i % MOMENTS];
        x.set([value, Number(t === first[b] || t === second[b])], 2 * i);
      });
      for (let b = 0; b < BATCH; b += 1) wanted[b] = values[b * MOMENTS + first[b]] + values[b * MOMENTS + second[b]];
      const [given, sum] = [new Tensor(x, [BATCH, MOMENTS, 2]), new Tensor(wanted, [BATCH, 1])];
      rows.push([
        await adam.minimize(() => net.head.forward(net.gru.forward(net.lstm.forward(given)).narrow(1, MOMENTS - 1, 1).squeeze(1)).mseLoss(sum)),
      ]);
    }
    return net;
  },

  async vae(rows) {
    const linear = (from, to) => new nn.Linear(from, to);
    const parts = { hidden: linear(PIXELS, 32), up: linear(LATENT, 32), out: linear(32, PIXELS), mean: linear(32, LATENT), log_var: linear(32, LATENT) };
    const net = await fill("vae", new Parts(parts));
    const adam = new optim.Adam(net.parameters(), { learningRate: 3e-3, betas: [0.9, 0.99], weightDecay: 1e-3 });
    for (let step = 0; step < STEPS; step += 1) {
      const [loss, apart] = tidy(() => {
        const x = pictures(step % 4, 4, 0.5)[0].flatten(1).mul(0.5).add(0.5);
        const h = net.hidden.forward(x).tanh();
        const [mean, logVar] = [net.mean.forward(h), net.log_var.forward(h)];
        const z = mean.add(logVar.mul(0.5).exp().mul(normal(`vae.noise${step}`, [BATCH, LATENT])));
        const logits = net.out.forward(net.up.forward(z).relu());
        const told = logits.softplus().sub(logits.mul(x)).sum(1).mean();
        const far = mean.square().add(logVar.exp()).sub(logVar).sub(1).sum(1).mean().mul(0.5);
        return [told.add(far), far];
      });
      adam.zeroGrad();
      tidy(() => loss.backward());
      const before = await apart.item();
      await adam.step();
      rows.push([await loss.item(), before]);
      for (const t of [loss, apart]) t.dispose();
    }
    return net;
  },

  async gan(rows) {
    const [twice, half] = [{ stride: 2, padding: 1 }, { stride: 2, padding: 1 }];
    const made = new nn.Sequential(
      new nn.Linear(SEED_NOISE, 72, { bias: false }), (x) => x.reshape([BATCH, 8, 3, 3]), new nn.BatchNorm(8), (x) => x.silu(),
      new nn.ConvTranspose2d(8, 8, 4, { ...twice, bias: false }), new nn.BatchNorm(8), (x) => x.silu(), new nn.ConvTranspose2d(8, 1, 4, twice),
      (x) => x.tanh(),
    );
    const told = new nn.Sequential(
      new nn.Conv2d(1, 8, 4, half), (x) => x.elu(), new nn.Conv2d(8, 16, 3, half), (x) => x.elu(), (x) => x.flatten(1),
      new nn.Linear(144, 1),
    );
    const net = await fill("gan", new Parts({ made, told }));
    const first = new optim.RMSprop(told.parameters(), { learningRate: 5e-4, alpha: 0.9, momentum: 0.5 });
    const second = new optim.AdamW(made.parameters(), { learningRate: 2e-3, betas: [0.5, 0.999], weightDecay: 0.01 });
    for (let step = 0; step < STEPS; step += 1) {
      const [real] = pictures(step % 4, CLASSES, 0.5);
      const fake = tidy(() => made.forward(normal(`gan.noise${step}`, [BATCH, SEED_NOISE])));
      const wrong = await first.minimize(() => told.forward(real).neg().softplus().add(told.forward(fake.detach()).softplus()).mean());
      // by the other network as it has become
      rows.push([wrong, await second.minimize(() => told.forward(fake).neg().softplus().mean())]);
      fake.dispose();
    }
    return net;
  },
};

/** How far numbers are off, relative to what they should be. */
function off(got, want) {
  assert.equal(got.length, want.length);
  return Math.max(...got.map((x, i) => Math.abs((x - want[i]) / want[i])));
}

for (const [name, job] of Object.entries(jobs)) {
  test(`a job learns as in PyTorch: ${name}`, async (t) => {
    const { losses, rounding, sizes } = recorded.jobs[name];
    const rows = [];
    const net = await job(rows);
    assert.ok(rows.length >= STEPS && rows.length === losses.length, `${rows.length} rows`);
    let [grown, most] = [0, 0];
    for (const [step, row] of rows.entries()) {
      grown = Math.max(grown, rounding[step]);
      const by = off(row, losses[step]);
      assert.ok(by <= LIMIT + TIMES * grown, `step ${step}: ${row}, not ${losses[step]}, off by ${by}`);
      most = Math.max(most, by);
    }
    const own = net.stateDict();
    let largest = 0;
    for (const [tensor, size] of Object.entries(sizes)) {
      const got = Math.hypot(...(await own[tensor].data()));
      const by = off([got], [size]);
      assert.ok(by <= LIMIT + TIMES * grown, `${tensor} is ${got} long, not ${size}`);
      largest = Math.max(largest, by);
    }
    t.diagnostic(`losses off PyTorch's by ${most.toExponential(1)} at most, sizes ${largest.toExponential(1)}`);
    net.dispose();
  });
}

test("every recorded job is run", () => assert.deepEqual(Object.keys(jobs), Object.keys(recorded.jobs)));
