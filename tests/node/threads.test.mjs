// Threads of the WASM device go on while the program does something else: whatever is computed, compiled, written, let go or
// read meanwhile comes out right.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Tensor, init, realize, tidy } from "gradloom";

const STEPS = 500;
const SIDES = [1, 7, 32, 96, 130];
const WIDTH = 64;

let state = 20_26;
const below = (n) => (state = (state * 48271) % 2147483647) % n;
const pick = (list) => list[below(list.length)];
// small whole numbers, so that the order of a sum does not matter
const numbers = (n) => Float32Array.from({ length: n }, () => below(7) - 3);
// 0 rather than -0, which a remainder may be
const plain = (values) => values.map((v) => v + 0);
const mod = (x, n) => ((x % n) + n) % n;

function product(a, b, [rows, inner], columns) {
  const out = new Float32Array(rows * columns);
  for (let i = 0; i < rows; i += 1) {
    for (let k = 0; k < inner; k += 1) {
      for (let j = 0; j < columns; j += 1) out[i * columns + j] += a[i * inner + k] * b[k * columns + j];
    }
  }
  return out;
}

function columnSums(a, [rows, columns]) {
  const out = new Float32Array(columns);
  for (let i = 0; i < rows * columns; i += 1) out[i % columns] += a[i];
  return out;
}

test("work in flight is never seen half done", async () => {
  const { threads } = await init({ device: "wasm", threads: 3 });
  assert.equal(threads, 3);
  const live = [];
  const keep = async (t, want) => {
    await realize([t]);
    live.push({ t, want });
  };
  let compared = 0;
  const compare = async ({ t, want }) => {
    assert.deepEqual(plain(await t.data()), plain(want));
    compared += 1;
  };
  for (let step = 0; step < STEPS; step += 1) {
    const one = live.length > 0 ? pick(live) : undefined;
    const what = one ? below(8) : 0;
    if (what === 0) {
      const shape = [pick(SIDES), pick(SIDES)];
      const want = numbers(shape[0] * shape[1]);
      live.push({ t: new Tensor(want.slice(), shape), want });
    } else if (what < 4) {
      const right = numbers(one.t.shape[1] * WIDTH);
      const t = tidy(() => one.t.matmul(new Tensor(right, [one.t.shape[1], WIDTH])).mod(7).sub(3));
      await keep(t, product(one.want, right, one.t.shape, WIDTH).map((v) => mod(v, 7) - 3));
    } else if (what === 4) {
      const sums = columnSums(one.want, one.t.shape);
      await keep(tidy(() => one.t.sum(0, true).add(one.t).mod(5)), one.want.map((v, i) => mod(sums[i % sums.length] + v, 5)));
    } else if (what === 5) {
      one.want = numbers(one.t.size);
      one.t.assign(new Tensor(one.want.slice(), one.t.shape));
      await realize([one.t]);
    } else if (what === 6) live.splice(live.indexOf(one), 1)[0].t.dispose();
    else await compare(one);
    // sometimes the threads are alone, sometimes they have gone to sleep
    if (below(10) === 0) await new Promise((done) => setTimeout(done, below(3)));
  }
  for (const each of live) await compare(each);
  assert.ok(compared > 50, `${compared} comparisons`);
});
