// Operators by torch's names in Node: torch's own samples of them (tests/fixtures/opinfo), and gradients through them.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Tensor, grad, init, torch } from "gradloom";
import { cases, close, numbers } from "./cases.mjs";

/** Of so many samples of an operator one is run. */
const EVERY = 9;
/** Results that are not unique, or whose length the values say; sizes that follow from values. */
const NOT_ALONE = /svd|eigh|^(nonzero|argwhere|masked_select|unique|bincount|repeat_interleave|tensor_split)$|one_hot/;

const folder = new URL("../fixtures/opinfo/", import.meta.url);
const blob = readFileSync(new URL("values.bin", folder));

/** `f:2,3@16`: letter of the dtype, shape, offset in the values. */
function array(text) {
  const [letter, rest] = [text[0], text.slice(2)];
  const [sizes, at] = rest.split("@");
  const shape = sizes.split(",").filter(Boolean).map(Number);
  const count = shape.reduce((a, b) => a * b, 1);
  const [dtype, size, read] = {
    f: ["f32", 4, (p) => blob.readFloatLE(p)],
    i: ["i32", 4, (p) => blob.readInt32LE(p)],
    l: ["i64", 8, (p) => blob.readBigInt64LE(p)],
    u: ["u8", 1, (p) => blob[p]],
    b: ["bool", 1, (p) => blob[p] !== 0],
  }[letter];
  const values = Array.from({ length: count }, (_, i) => read(Number(at) + i * size));
  return { dtype, shape, values };
}

function split(text) {
  const out = [];
  let [depth, from] = [0, 0];
  for (let i = 0; i <= text.length; i++) {
    const c = text[i];
    if (c === "[") depth++;
    else if (c === "]") depth--;
    const item = text.slice(from, i);
    // a tensor's sizes are separated by commas too, before its offset
    const ends = i === text.length || (c === "," && depth === 0 && (item[1] !== ":" || item.includes("@")));
    if (ends) {
      if (item) out.push(item);
      from = i + 1;
    }
  }
  return out;
}

/** An argument; undefined where JavaScript cannot say it: a whole number that is a float. */
function argument(text) {
  if (text[0] === "[") return split(text.slice(1, -1)).map(argument);
  if (text[0] === '"') return text.slice(1, -1);
  if (text[0] === ".") return text.slice(1);
  if (text === "none") return null;
  if (text === "true" || text === "false") return text === "true";
  if (text[1] === ":") {
    const { dtype, shape, values } = array(text);
    const plain = dtype === "i64" ? BigInt64Array.from(values) : dtype === "bool" ? Uint8Array.from(values) : values;
    const types = { f32: Float32Array, i32: Int32Array, u8: Uint8Array };
    return new Tensor(types[dtype] ? types[dtype].from(plain) : plain, shape, { dtype });
  }
  const n = Number(text === "inf" ? "Infinity" : text === "-inf" ? "-Infinity" : text);
  return Number.isInteger(n) && !/^-?\d+$/.test(text) ? undefined : n;
}

const missing = (x) => x === undefined || (Array.isArray(x) && x.some(missing));

test("torch's samples of every operator", async () => {
  await init();
  const all = await torch();
  const lines = readFileSync(new URL("cases.txt", folder), "utf8").trimEnd().split("\n");
  const seen = new Map();
  let ran = 0;
  for (const [at, line] of lines.entries()) {
    const [name, tolerance, args, outs] = line.split("\t");
    const op = name.split(".").reduce((space, part) => space?.[part], all);
    const turn = seen.get(name) ?? 0;
    seen.set(name, turn + 1);
    if (typeof op !== "function" || NOT_ALONE.test(name) || turn % EVERY !== 0) continue;
    const [list, named] = [[], {}];
    for (const a of args.split(" ").filter(Boolean)) {
      const pair = /^(\w+)=(.*)$/s.exec(a);
      if (pair) named[pair[1]] = argument(pair[2]);
      else list.push(argument(a));
    }
    if (missing(list) || missing(Object.values(named))) continue;
    const got = [op(...list, named)].flat();
    const wanted = outs.split(" ").filter(Boolean).map(array);
    assert.ok(got.length >= wanted.length, `${name} (line ${at + 1}): ${got.length} results`);
    for (const [i, want] of wanted.entries()) {
      const where = `${name} (line ${at + 1}), result ${i}`;
      assert.deepEqual(got[i].shape, want.shape, where);
      const values = Array.from(await got[i].data(), Number);
      const finite = want.values.map((v) => Math.abs(Number(v))).filter(Number.isFinite);
      const scale = finite.reduce((a, b) => Math.max(a, b), 0.05);
      const limit = scale * (2e-5 + 20 * Number(tolerance.split(" ")[0]));
      values.forEach((v, j) => {
        const w = Number(want.values[j]);
        assert.ok(Object.is(v, w) || v === w || Math.abs(v - w) <= limit, `${where}: [${j}] is ${v}, torch has ${w}`);
      });
    }
    ran++;
  }
  assert.ok(seen.size > 350 && ran > 300, `${ran} samples of ${seen.size} operators alone`);
});

test("gradients, random streams and errors", async () => {
  await init();
  const { linalg, fft, erfinv, special } = await torch();
  const a = new Tensor([[4, 1], [2, 3]], null, { requiresGrad: true });
  linalg.det(a).backward();
  // the adjugate, transposed
  assert.deepEqual(await a.grad.tolist(), [[3, -2], [-1, 4]]);
  const x = new Tensor([1, 2, 3, 4]);
  const back = fft.irfft(fft.rfft(x, { norm: "ortho" }), { norm: "ortho", complex: true });
  (await back.data()).forEach((v, i) => assert.ok(Math.abs(v - (i + 1)) < 1e-5));
  assert.ok(Math.abs((await erfinv(new Tensor([0.5])).item()) - 0.4769363) < 1e-6);
  assert.equal(typeof special.i0e, "function");
  assert.throws(() => linalg.det(new Tensor([1, 2])), { code: /^E_/ });
  assert.throws(() => linalg.det(a, { axes: 1 }), /no parameter `axes`/);
  assert.throws(() => linalg.det({ a: 1 }, 3), { code: "E_VALUE" });
});

/** Runs what PyTorch computed for the native tests: outputs, and the gradients of the first. */
async function recorded(name, run) {
  const { inputs, outs, grads } = cases.get(name);
  const tensors = inputs.map(({ shape, values, dtype }) => {
    return new Tensor(values, shape, { dtype, requiresGrad: dtype === "f32" });
  });
  const results = [run(...tensors)].flat();
  // before the values, which are no longer computed of anything once they are there
  const seed = new Tensor(numbers(999, outs[0].values.length, -1, 1), outs[0].shape);
  const at = [...grads.keys()];
  const slopes = at.length > 0 ? grad(results[0].mul(seed).sum(), at.map((i) => tensors[i])) : [];
  for (const [i, out] of outs.entries()) {
    assert.deepEqual(results[i].shape, out.shape, name);
    close(`${name} out${i}`, await results[i].data(), [...out.values]);
  }
  for (const [i, slope] of slopes.entries()) close(`${name} grad${at[i]}`, await slope.data(), [...grads.get(at[i]).values], 1e-4);
}

test("pools and indices that torch's samples leave out", async () => {
  await init();
  const { nn, gather_nd, scatter_nd, quick_gelu } = await torch();
  const f = nn.functional;
  await recorded("lp_pool", (x) => f.lp_pool2d(x, 2, [2, 3], 2));
  await recorded("lp_pool_ceil", (x) => f.lp_pool1d(x, 3, 3, 2, true));
  await recorded("fractional_pool", (x, s) => f.fractional_max_pool2d(x, [3, 2], [4, 5], { _random_samples: s }));
  const samples = Tensor.full([1, 2, 2], 0.4);
  await recorded("fractional_pool_grad", (x) => f.fractional_max_pool2d(x, 2, { output_size: 3, _random_samples: samples }));
  await recorded("quick_gelu", quick_gelu);
  await recorded("gather_nd", (x, at) => gather_nd(x, at));
  await recorded("scatter_nd", (x, at, updates) => scatter_nd(x, at, updates));
  const x = Tensor.rand([2, 5, 7, 6]);
  // drawn: half of each axis, and every value one of the input's
  const drawn = f.fractional_max_pool2d(x, 2, { output_ratio: 0.5 });
  assert.deepEqual(drawn.shape, [2, 5, 3, 3]);
  const all = new Set(await x.data());
  assert.ok((await drawn.data()).every((v) => all.has(v)));
  assert.deepEqual(f.fractional_max_pool3d(Tensor.rand([3, 4, 4, 4]), 2, 2).shape, [3, 2, 2, 2]);
  assert.throws(() => f.fractional_max_pool2d(x, 2, 3, null, true), { code: "E_VALUE" });
  assert.throws(() => f.fractional_max_pool2d(x, 2), { code: "E_VALUE" });
  const added = scatter_nd(new Tensor([1, 2, 3]), new Tensor(Int32Array.of(1, 1), [2, 1]), new Tensor([10, 100]), "add");
  assert.deepEqual(await added.tolist(), [1, 112, 3]);
});

test("boxes: suppression as everyone does it, and aligned samples of regions", async () => {
  await init();
  const { ops } = await torch();
  const n = 40;
  const raw = numbers(7, n * 4, 0, 10);
  const boxes = Float32Array.from(raw, (v, i) => (i % 4 < 2 ? v : raw[i - 2] + 1 + v / 2));
  const scores = numbers(8, n, 0, 1);
  const overlap = (a, b) => {
    const [p, q] = [boxes.subarray(4 * a, 4 * a + 4), boxes.subarray(4 * b, 4 * b + 4)];
    const common = Math.max(0, Math.min(p[2], q[2]) - Math.max(p[0], q[0])) * Math.max(0, Math.min(p[3], q[3]) - Math.max(p[1], q[1]));
    return common / ((p[2] - p[0]) * (p[3] - p[1]) + (q[2] - q[0]) * (q[3] - q[1]) - common);
  };
  for (const threshold of [0.1, 0.3, 0.5]) {
    const order = [...scores.keys()].sort((a, b) => scores[b] - scores[a]);
    const kept = order.reduce((list, i) => (list.some((j) => overlap(i, j) > threshold) ? list : [...list, i]), []);
    assert.ok(kept.length > 1 && kept.length < n, `${kept.length} of ${n} stay`);
    const [found, count] = ops.nms(new Tensor(boxes, [n, 4]), new Tensor(scores), threshold);
    assert.equal(await count.item(), kept.length);
    assert.deepEqual([...(await found.data())].slice(0, kept.length).map(Number), kept);
  }
  assert.throws(() => ops.nms(Tensor.ones([3, 5]), Tensor.ones([3]), 0.5), { code: "E_SHAPE" });

  const [h, w] = [6, 7];
  const image = numbers(9, 2 * 3 * h * w, -1, 1);
  const regions = [[0, 0.5, 1, 5, 4.5], [1, -1, -2, 3.25, 6], [1, 2, 2, 2.5, 2.5]];
  const x = new Tensor(image, [2, 3, h, w]);
  const at = (b, c, i, j) => image[((b * 3 + c) * h + i) * w + j];
  const bilinear = (b, c, y, z) => {
    if (y < -1 || y > h || z < -1 || z > w) return 0;
    const [i, j] = [Math.min(Math.max(y, 0), h - 1), Math.min(Math.max(z, 0), w - 1)];
    const [i0, j0] = [Math.floor(i), Math.floor(j)];
    const [i1, j1] = [Math.min(i0 + 1, h - 1), Math.min(j0 + 1, w - 1)];
    const [p, q] = [i - i0, j - j0];
    return (1 - p) * ((1 - q) * at(b, c, i0, j0) + q * at(b, c, i0, j1)) + p * ((1 - q) * at(b, c, i1, j0) + q * at(b, c, i1, j1));
  };
  for (const [aligned, scale, ratio, [rows, columns]] of [[true, 1, 2, [2, 3]], [false, 0.5, 1, [3, 3]]]) {
    const want = regions.flatMap(([b, ...corners]) => {
      const [x1, y1, x2, y2] = corners.map((v) => v * scale - (aligned ? 0.5 : 0));
      const size = (v) => (aligned ? v : Math.max(v, 1));
      const [sy, sx] = [size(y2 - y1) / rows, size(x2 - x1) / columns];
      const bins = [0, 1, 2].flatMap((c) => Array.from({ length: rows * columns }, (_, k) => [c, Math.floor(k / columns), k % columns]));
      return bins.map(([c, i, j]) => {
        let sum = 0;
        for (let p = 0; p < ratio; p += 1) {
          for (let q = 0; q < ratio; q += 1) {
            sum += bilinear(b, c, y1 + sy * (i + (p + 0.5) / ratio), x1 + sx * (j + (q + 0.5) / ratio));
          }
        }
        return sum / ratio ** 2;
      });
    });
    const got = ops.roi_align(x, new Tensor(regions.flat(), [3, 5]), [rows, columns], scale, ratio, aligned);
    assert.deepEqual(got.shape, [3, 3, rows, columns]);
    close(`aligned ${aligned}`, await got.data(), want, 1e-5);
  }
  assert.throws(() => ops.roi_align(x, Tensor.ones([1, 5]), 2), { code: "E_VALUE" });
});

test("random numbers by torch's names have their distributions", async () => {
  await init();
  const { cauchy, distributions, geometric, log_normal, normal, rand_like, randn_like } = await torch();
  const like = Tensor.zeros([40_000]);
  const check = async (name, t, mean, std) => {
    const [m, s] = [await t.mean().item(), await t.std().item()];
    assert.ok(Math.abs(m - mean) < 0.05 * std && Math.abs(s - std) < 0.06 * std, `${name}: mean ${m}, deviation ${s}`);
  };
  await check("rand_like", rand_like(like), 0.5, Math.sqrt(1 / 12));
  await check("randn_like", randn_like(like), 0, 1);
  await check("log_normal", log_normal(like, 0, 0.5), Math.exp(0.125), Math.sqrt((Math.exp(0.25) - 1) * Math.exp(0.25)));
  await check("geometric", geometric(like, 0.3), 1 / 0.3, Math.sqrt(0.7) / 0.3);
  await check("gumbel", distributions.gumbel(1, 2, 40_000), 1 + 2 * 0.5772157, (2 * Math.PI) / Math.sqrt(6));
  await check("laplace", distributions.laplace(1, 2, [200, 200]), 1, Math.sqrt(8));
  await check("normal", normal(new Tensor([5, -5]).unsqueeze(1).expand([2, 20_000]), 0).add(0), 0, 5);
  const inside = await cauchy(like, 1, 2).sub(1).abs().lt(2).cast("f32").mean().item();
  assert.ok(Math.abs(inside - 0.5) < 0.02, `${inside} of Cauchy's lie within the scale`);
  // the stream moves on, and a seed brings it back
  Tensor.manualSeed(5);
  const [a, b] = [await rand_like(like).sum().item(), await rand_like(like).sum().item()];
  Tensor.manualSeed(5);
  assert.deepEqual([await rand_like(like).sum().item(), a === b], [a, false]);
  assert.equal(randn_like(Tensor.zeros([2], { dtype: "f16" })).dtype, "f16");
});

test("axes by name, lengths at the end, closeness as a whole", async () => {
  await init();
  const { rearrange, pad_to, shrink_to, allclose } = await torch();
  const x = Tensor.arange(0, 12).reshape([2, 6]);
  const split = rearrange(x, "b (h d) -> d b h", "h", [3]);
  assert.deepEqual(split.shape, [2, 2, 3]);
  assert.deepEqual(await split.tolist(), [[[0, 2, 4], [6, 8, 10]], [[1, 3, 5], [7, 9, 11]]]);
  assert.deepEqual(await shrink_to(pad_to(x, [3, -1]), [-1, 1]).tolist(), [[0], [6], [0]]);
  assert.equal(await allclose(x, x.mul(1 + 1e-6)).tolist(), 1);
  assert.equal(await allclose(x, x.add(1)).tolist(), 0);
  assert.throws(() => rearrange(x, "b c -> b"), /missing on the right/);
});

test("istft without a window undoes stft with the same win_length", async () => {
  const { stft, istft } = await torch();
  const x = new Tensor(Float32Array.from({ length: 64 }, (_, i) => Math.sin(i * i)), [64]);
  const options = { hop_length: 2, win_length: 8 };
  const back = await istft(stft(x, 16, options), 16, { ...options, length: 64 }).data();
  const given = await x.data();
  back.forEach((v, i) => assert.ok(Math.abs(v - given[i]) < 1e-5, `${i}: ${v}, not ${given[i]}`));
});
