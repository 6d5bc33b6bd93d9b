// Random changes of training data, with numbers that are not random: values computed by hand.
import assert from "node:assert/strict";
import { before, test } from "node:test";
import { Tensor, init, memory } from "gradloom";
import {
  DataLoader, colorJitter, mixup, randomCrop, randomHorizontalFlip, randomShift, randomVerticalFlip, seededRandom, softCrossEntropy,
} from "gradloom/data";

before(() => init({ device: "wasm" }));

/** Gives these numbers, and fails when there are no more. */
const scripted = (...numbers) => Object.assign(() => {
  assert.ok(numbers.length > 0, "more random numbers than expected");
  return numbers.shift();
}, { left: numbers });

const close = (got, want, most = 1e-6) => {
  assert.equal(got.length, want.length);
  for (let i = 0; i < want.length; i += 1) assert.ok(Math.abs(got[i] - want[i]) <= most, `${i}: ${got[i]}, ${want[i]}`);
};

/** Two images of two channels, two rows and three columns: 0 to 11, and 100 to 111. */
const images = (dtype = "f32") => new Tensor([...Array(12).keys(), ...Array.from({ length: 12 }, (_, i) => 100 + i)], [2, 2, 2, 3], { dtype });

test("flips mirror the examples that chance names", async () => {
  for (const dtype of ["f32", "u8", "f16"]) {
    // the first is below p, the second is not
    const across = randomHorizontalFlip(images(dtype), { random: scripted(0.49, 0.5) });
    assert.equal(across.dtype, dtype);
    assert.deepEqual([...(await across.data(dtype))], [2, 1, 0, 5, 4, 3, 8, 7, 6, 11, 10, 9, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111]);
  }
  const down = randomVerticalFlip(images(), { p: 0.1, random: scripted(0.2, 0.05) });
  assert.deepEqual([...(await down.data())], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 103, 104, 105, 100, 101, 102, 109, 110, 111, 106, 107, 108]);
  assert.deepEqual(await randomHorizontalFlip(images(), { p: 0 }).tolist(), await images().tolist());
});

test("crops are at places of their own, with padding around", async () => {
  const x = new Tensor([...Array(9).keys(), ...Array.from({ length: 9 }, (_, i) => 10 + i)], [2, 1, 3, 3]);
  // parts of 2 x 2 in 3 x 3: the places are 0 and 1; up and left, then down and right
  const inner = randomCrop(x, 2, { random: scripted(0, 0.49, 0.5, 0.99) });
  assert.deepEqual(await inner.tolist(), [[[[0, 1], [3, 4]]], [[[14, 15], [17, 18]]]]);
  // with a padding of 1 there are the places -1 to 2: of the first the upper left corner, of the second one row of it
  const padded = randomCrop(x, [2, 2], { padding: 1, fill: 7, random: scripted(0, 0, 0.99, 0.26) });
  assert.deepEqual(await padded.tolist(), [[[[7, 7], [7, 0]]], [[[16, 17], [7, 7]]]]);
  const bytes = randomCrop(x.cast("u8"), 2, { padding: 1, fill: 255, random: scripted(0, 0, 0.99, 0.26) });
  assert.deepEqual([...(await bytes.data("u8"))], [255, 255, 255, 0, 16, 17, 255, 255]);
  // a shift by up to 1: the first down and right, the second up
  const moved = randomShift(x, 1, { random: scripted(0, 0, 0.99, 0.5) });
  assert.deepEqual(await moved.tolist(), [[[[0, 0, 0], [0, 0, 1], [0, 3, 4]]], [[[13, 14, 15], [16, 17, 18], [0, 0, 0]]]]);
});

test("brightness, contrast and saturation", async () => {
  const pixels = [0.2, 0.4, 0.6, 0.8, 0.1, 0.3];
  const one = new Tensor(pixels, [1, 3, 1, 2]);
  // the factor of 0.75 is 1 + 0.5 * (2 * 0.75 - 1) = 1.25; it is limited to 1
  close(await colorJitter(one, { brightness: 0.5, random: scripted(0.75) }).data(), pixels.map((v) => v * 1.25));
  close(await colorJitter(one, { brightness: 1, random: scripted(0.75) }).data(), pixels.map((v) => Math.min(1, v * 1.5)));
  const grey = [0, 1].map((i) => 0.2989 * pixels[i] + 0.587 * pixels[2 + i] + 0.114 * pixels[4 + i]);
  const mean = (grey[0] + grey[1]) / 2;
  close(await colorJitter(one, { contrast: 0.4, random: scripted(0) }).data(), pixels.map((v) => (v - mean) * 0.6 + mean));
  close(await colorJitter(one, { saturation: 0.5, random: scripted(0) }).data(), pixels.map((v, i) => (v - grey[i % 2]) * 0.5 + grey[i % 2]));
  // one after the other, brightness of all images first
  const two = new Tensor([0.2, 0.4, 0.5, 0.7], [2, 1, 1, 2]);
  const both = await colorJitter(two, { brightness: 0.5, contrast: 1, max: 255, random: scripted(0, 1, 0.5, 0) }).data();
  close(both, [0.1, 0.2, 0.9, 0.9]);
});

test("mixup mixes examples and targets with one share", async () => {
  const x = new Tensor([[1, 2], [3, 4], [5, 6]]);
  const y = new Tensor(Int32Array.of(0, 2, 1));
  const mixed = mixup(x, y, { classes: 3, random: seededRandom(4) });
  const { share } = mixed;
  assert.ok(share > 0 && share < 1);
  const mix = (a, b) => a.map((v, i) => v * share + b[i] * (1 - share));
  close((await mixed.x.tolist()).flat(), [mix([1, 2], [5, 6]), mix([3, 4], [1, 2]), mix([5, 6], [3, 4])].flat());
  close((await mixed.y.tolist()).flat(), [mix([1, 0, 0], [0, 1, 0]), mix([0, 0, 1], [1, 0, 0]), mix([0, 1, 0], [0, 0, 1])].flat());
  const values = mixup(x, new Tensor([[1], [2], [4]]), { random: seededRandom(4) });
  assert.equal(values.share, share);
  close((await values.y.tolist()).flat(), [mix([1], [4]), mix([2], [1]), mix([4], [2])].flat());
  // the loss: - sum of y log softmax(z), by hand
  const logits = [[1, 2, 3], [0, 0, 0], [2, 0, 1]];
  const targets = await mixed.y.tolist();
  const loss = logits.map((row, i) => {
    const sum = row.reduce((all, z) => all + Math.exp(z), 0);
    return -row.reduce((all, z, c) => all + targets[i][c] * (z - Math.log(sum)), 0);
  });
  close([await softCrossEntropy(new Tensor(logits), mixed.y).item()], [loss.reduce((a, b) => a + b) / 3], 1e-5);
});

test("shares have the beta distribution", () => {
  const x = new Tensor([[1], [2]]);
  const y = new Tensor([[1], [2]]);
  for (const alpha of [0.2, 1, 4]) {
    const random = seededRandom(1);
    const shares = Array.from({ length: 4000 }, () => mixup(x, y, { alpha, random }).share);
    const mean = shares.reduce((a, b) => a + b) / shares.length;
    const variance = shares.reduce((all, v) => all + (v - mean) ** 2, 0) / shares.length;
    // 1/2 and 1 / (4 (2 alpha + 1)), with five standard errors of 4,000 samples
    assert.ok(Math.abs(mean - 0.5) < 5 * Math.sqrt(variance / 4000), `alpha ${alpha}: a mean of ${mean}`);
    const want = 1 / (4 * (2 * alpha + 1));
    assert.ok(Math.abs(variance / want - 1) < 0.1, `alpha ${alpha}: a variance of ${variance}, not ${want}`);
  }
});

test("a seed repeats a run, and numbers are spread evenly", () => {
  const [a, b, c] = [seededRandom(7), seededRandom(7), seededRandom(8)];
  const numbers = Array.from({ length: 10_000 }, () => a());
  assert.deepEqual(numbers.slice(0, 20), Array.from({ length: 20 }, () => b()));
  assert.notEqual(numbers[0], c());
  const counts = new Array(10).fill(0);
  for (const v of numbers) counts[Math.floor(10 * v)] += 1;
  // chi-squared of 9 degrees of freedom: below 33.7 but once in 10,000
  const chi = counts.reduce((sum, n) => sum + (n - 1000) ** 2 / 1000, 0);
  assert.ok(chi < 33.7, `${chi}`);
});

test("one plan serves all steps of a loader with augmentation", async () => {
  const x = { dtype: "u8", shape: [12, 3, 8, 8], bytes: Uint8Array.from({ length: 12 * 192 }, (_, i) => i % 251) };
  const y = Int32Array.from({ length: 12 }, (_, i) => i % 3);
  const random = seededRandom(3);
  const loader = new DataLoader({ x, y }, { batchSize: 4, shuffle: 1 }).map((batch) => {
    let image = randomCrop(randomHorizontalFlip(batch.x, { random }), 8, { padding: 2, random });
    image = colorJitter(image.cast("f32").div(255), { brightness: 0.3, contrast: 0.3, saturation: 0.3, random });
    return mixup(image, batch.y, { classes: 3, random });
  });
  const made = [];
  let last;
  for (let epoch = 0; epoch < 3; epoch += 1) {
    for await (const { x: image, y: target } of loader) {
      assert.deepEqual([image.shape, target.shape], [[4, 3, 8, 8], [4, 3]]);
      const mean = await image.mean().item();
      assert.ok(mean > 0.1 && mean < 0.9 && mean !== last);
      last = mean;
      close([await target.sum().item()], [4], 1e-5);
      made.push((await memory()).reduce((sum, each) => sum + each.plans, 0));
    }
  }
  assert.equal(made.length, 9);
  assert.equal(made.at(-1), made[0], `plans: ${made}`);
});

test("what does not fit is refused by name", () => {
  const x = images();
  const flat = new Tensor([[1, 2]]);
  for (const [body, message] of [
    [() => randomHorizontalFlip(flat), /randomHorizontalFlip takes images \[batch, channels, height, width\], not \[1, 2\]/],
    [() => randomVerticalFlip(x, { p: 2 }), /randomVerticalFlip: a probability of 2/],
    [() => randomCrop(x, 3), /randomCrop: 3 x 3 of 2 x 3 pixels with a padding of 0/],
    [() => randomCrop(x, 2, { padding: -1 }), /a padding of -1/],
    [() => colorJitter(x, { saturation: 1 }), /a saturation of 2 channels/],
    [() => colorJitter(x, { contrast: -1 }), /contrast -1/],
    [() => colorJitter(images("u8"), { contrast: 1 }), /takes floats, not u8/],
    [() => mixup(x, new Tensor(Int32Array.of(1, 2))), /needs `classes`/],
    [() => mixup(x, flat, {}), /mixup: Tensor\(f32, \[2, 2, 2, 3\]\) and targets/],
    [() => mixup(x, x, { alpha: 0 }), /an alpha of 0/],
  ]) assert.throws(body, { code: "E_VALUE", message });
});
