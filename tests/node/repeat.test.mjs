// Runs like the one before them take a short way: they give what other runs give, whatever their inputs are.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Tensor, init, load } from "gradloom";
import { model as onnx } from "../bench/browser/onnx.mjs";

const f32 = (...shape) => ({ shape, dtype: "float32" });
const sum = () => onnx({ a: f32(2, 3), b: f32(2, 3) }, {}, [["Mul", ["a", "a"], "aa"], ["Add", ["aa", "b"], "y"]], [2, 3]);
const values = (seed) => Float32Array.from({ length: 6 }, (_, i) => ((seed * 7 + i * 5) % 23) / 4 - 2);
const want = (a, b) => Array.from(a, (v, i) => Math.fround(Math.fround(v * v) + b[i]));

/** A model on a device of its own, and the number of its runs that took the short way: they look for no plan. */
async function counted(file, threads = 1) {
  const device = await init({ device: "wasm", threads, isolated: true });
  const model = await load(file, { device });
  const count = { short: 0 };
  const run = async (...args) => {
    const out = await model.run(...args);
    count.short += model.timing.planMs === 0 ? 1 : 0;
    return out;
  };
  return { device, model, run, count };
}

for (const threads of [1, 2]) {
  test(`inputs of all kinds, ${threads} thread${threads > 1 ? "s" : ""}`, async () => {
    const { device, model, run, count } = await counted(sum(), threads);
    const forms = [
      (v) => v,
      (v) => new Tensor(v, [2, 3]),
      (v) => new Tensor(v, [2, 3], { device }).realize(),
      (v) => new Tensor(v, [2, 3], { device }).add(1).sub(1),
      (v) => new Tensor(v, [2, 3], { device }).realize().then((t) => t.freeze()),
      (v) => new Tensor(v, [3, 2], { device }).reshape([2, 3]),
    ];
    const kept = [];
    for (let i = 0; i < 200; i += 1) {
      const [a, b] = [values(i), values(i + 50)];
      // each form several times in a row, then others
      const [p, q] = [forms[Math.floor(i / 5) % 6], forms[Math.floor(i / 30) % 6]];
      const inputs = { a: await p(a), b: await q(b) };
      const { y } = await run(i % 2 ? inputs : Object.fromEntries(Object.entries(inputs).reverse()));
      kept.push([y, want(a, b)]);
      assert.ok(model.timing.runMs >= 0 && model.timing.kernelsCompiled >= 0);
      if (i % 7 === 0) assert.deepEqual([...(await y.data())], want(a, b), `run ${i}`);
    }
    // later runs leave earlier results alone
    for (const [y, right] of kept) assert.deepEqual([...(await y.data())], right);
    assert.ok(count.short > 20, `${count.short} runs were short`);
    device.dispose();
  });
}

test("one tensor twice, results as inputs, runs at the same time", async () => {
  const { device, model, run, count } = await counted(sum());
  const a = values(3);
  const t = await new Tensor(a, [2, 3], { device }).realize();
  for (let i = 0; i < 3; i += 1) assert.deepEqual([...(await (await run({ a: t, b: t })).y.data())], want(a, a));
  let y = t;
  let right = [...a];
  for (let i = 0; i < 5; i += 1) {
    const before = y;
    ({ y } = await run({ a: t, b: before }));
    right = want(a, right);
  }
  assert.deepEqual([...(await y.data())], right);
  const mixed = (i) => (i % 3 ? { a: values(i), b: values(2 * i) } : { b: values(2 * i), a: i % 2 ? values(i) : new Tensor(values(i), [2, 3]) });
  const all = await Promise.all(Array.from({ length: 19 }, (_, i) => run(mixed(i))));
  for (const [i, out] of all.entries()) assert.deepEqual([...(await out.y.data())], want(values(i), values(2 * i)));
  // an assignment that is pending counts
  t.assign(new Tensor(values(9), [2, 3], { device }));
  assert.deepEqual([...(await (await run({ a: t, b: y })).y.data())], want(values(9), right));
  assert.ok(count.short > 8, `${count.short} runs were short`);
  device.dispose();
});

test("wrong inputs fail as in the first run", async () => {
  const { device, model } = await counted(sum());
  const good = { a: values(1), b: values(2) };
  const gone = new Tensor(values(1), [2, 3], { device });
  await gone.realize();
  gone.dispose();
  const wrong = [
    { a: values(1) }, { ...good, c: values(1) }, { ...good, a: new Float32Array(5) }, { ...good, a: new Int32Array(6) }, { ...good, a: gone },
    { ...good, a: new Tensor(values(1), [3, 2]) }, null, new Float32Array(6), { ...good, a: undefined },
  ];
  const fails = (inputs) => model.run(inputs).then(() => "none", (error) => `${error.code} ${error.message}`);
  const first = [];
  for (const inputs of wrong) first.push(await fails(inputs));
  assert.ok(first.every((text) => text !== "none"), first.join("\n"));
  for (const [i, inputs] of wrong.entries()) {
    for (let n = 0; n < 3; n += 1) await model.run(good);
    assert.equal(await fails(inputs), first[i]);
  }
  model.dispose();
  assert.match(await fails(good), /^E_STATE/);
  device.dispose();
});

test("shapes given as values", async () => {
  const file = onnx({ x: f32(2, 3), shape: { shape: [2], dtype: "int64" } }, {}, [["Reshape", ["x", "shape"], "y"]], []);
  const { device, model, run, count } = await counted(file);
  for (const shape of [[3, 2], [3, 2], [6, 1], [1, 6], [6, 1]]) {
    const { y } = await run({ x: values(1), shape: BigInt64Array.from(shape, BigInt) });
    assert.deepEqual(y.shape, shape);
  }
  assert.equal(count.short, 0);
  device.dispose();
});

test("the event loop runs between short runs", async () => {
  const { device, model, run, count } = await counted(sum());
  const inputs = { a: values(1), b: values(2) };
  await run(inputs);
  let turns = 0;
  let going = true;
  const turn = () => {
    turns += 1;
    if (going) setImmediate(turn);
  };
  setImmediate(turn);
  const start = performance.now();
  while (performance.now() - start < 200) (await run(inputs)).y.dispose();
  going = false;
  assert.ok(turns >= 8, `the event loop ran ${turns} times in 200 ms`);
  assert.ok(count.short > 20, `${count.short} runs were short`);
  device.dispose();
});

test("a short run lets the event loop run while worker threads are busy", async () => {
  const { device, model, run, count } = await counted(sum(), 2);
  for (let i = 0; i < 30; i += 1) await run({ a: values(i), b: values(2 * i) });
  const side = await Tensor.rand([1024, 1024], { device }).realize();
  const work = async () => {
    let t = side;
    for (let i = 0; i < 12; i += 1) t = t.matmul(side).mul(1e-3);
    return t.realize();
  };
  await (await work()).data();
  let [turns, going, longest, last] = [0, true, 0, performance.now()];
  const turn = () => {
    [turns, longest, last] = [turns + 1, Math.max(longest, performance.now() - last), performance.now()];
    if (going) setImmediate(turn);
  };
  setImmediate(turn);
  const start = performance.now();
  const busy = await work();
  const { y } = await run({ a: values(7), b: values(8) });
  const took = performance.now() - start;
  going = false;
  assert.deepEqual([...(await y.data())], want(values(7), values(8)));
  await busy.data();
  assert.ok(turns > took / 100, `the event loop ran ${turns} times in ${took} ms, once after ${longest} ms`);
  assert.ok(count.short >= 8, `${count.short} runs were short`);
  model.dispose();
  device.dispose();
});
