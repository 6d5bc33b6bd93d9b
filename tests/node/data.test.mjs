// Data as people have them: iterables, examples that come one by one, tables of text, pictures.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Tensor, init, memory, nn, optim } from "gradloom";
import { DataLoader, Pictures, StreamLoader, csv, examples } from "gradloom/data";
import { fit } from "gradloom/fit";

await init({ device: "wasm", threads: 1 });

/** The values of all batches of an epoch. */
async function valuesOf(loader) {
  const seen = [];
  for await (const batch of loader) {
    if (batch instanceof Tensor) seen.push(await batch.tolist());
    else seen.push(Object.fromEntries(await Promise.all(Object.entries(batch).map(async ([name, t]) => [name, await t.tolist()]))));
  }
  return seen;
}

const bytes = (text) => new TextEncoder().encode(text);

test("any iterable of examples is a data set", async () => {
  function* pairs() {
    for (const i of [1, 2, 3]) yield { x: [i, 2 * i], y: i };
  }
  assert.deepEqual(await valuesOf(new DataLoader(pairs(), { batchSize: 2 })), [{ x: [[1, 2], [2, 4]], y: [1, 2] }, { x: [[3, 6]], y: [3] }]);
  assert.deepEqual(await valuesOf(new DataLoader(new Set([5, 6, 7]), { batchSize: 2 })), [[5, 6], [7]]);
  assert.deepEqual(await valuesOf(new DataLoader(new Map([["a", [1, 2]], ["b", [3, 4]]]).values(), { batchSize: 2 })), [[[1, 2], [3, 4]]]);
  assert.equal(examples(pairs()).length, 3);
  async function* later() {}
  assert.throws(() => new DataLoader(later()), { code: "E_VALUE", hint: /StreamLoader/ });
});

test("examples that come one by one are batches, each epoch anew", async () => {
  let opened = 0;
  async function* numbers() {
    opened += 1;
    for (let i = 0; i < 5; i += 1) {
      await new Promise((done) => setImmediate(done));
      yield { x: [i, -i] };
    }
  }
  const loader = new StreamLoader(numbers, { batchSize: 2 });
  const all = [{ x: [[0, -0], [1, -1]] }, { x: [[2, -2], [3, -3]] }, { x: [[4, -4]] }];
  assert.deepEqual([await valuesOf(loader), await valuesOf(loader), opened], [all, all, 2]);
  assert.deepEqual(await valuesOf(new StreamLoader([1, 2, 3], { batchSize: 2, dropLast: true })), [[1, 2]]);
  assert.deepEqual(await valuesOf(loader.map(({ x }) => x.sum(1)).map((t) => t.add(1))), [[1, 1], [1, 1], [1]]);
  // a generator itself ends with its first epoch
  const once = new StreamLoader(numbers(), { batchSize: 5 });
  assert.deepEqual([(await valuesOf(once)).length, (await valuesOf(once)).length], [1, 0]);
  for (const wrong of [3, "abc", null]) assert.throws(() => new StreamLoader(wrong), { code: "E_VALUE" });
  assert.throws(() => new StreamLoader([1], { batchSize: 0 }), { code: "E_VALUE" });
});

test("a stream is shuffled by its seed, with all of its examples", async () => {
  const order = async (options, epochs = 1) => {
    const loader = new StreamLoader(() => Array.from({ length: 40 }, (_, i) => i), { batchSize: 40, ...options });
    for (let epoch = 1; epoch < epochs; epoch += 1) await valuesOf(loader);
    return (await valuesOf(loader)).flat();
  };
  const mixed = await order({ shuffleBuffer: 10, seed: 3 });
  assert.deepEqual(mixed.toSorted((a, b) => a - b), await order({}));
  assert.notDeepEqual(mixed, await order({}));
  assert.deepEqual(await order({ shuffleBuffer: 10, seed: 3 }), mixed);
  assert.notDeepEqual(await order({ shuffleBuffer: 10, seed: 4 }), mixed);
  assert.notDeepEqual(await order({ shuffleBuffer: 10, seed: 3 }, 2), mixed);
});

test("a stream reads ahead as far as is asked, ends where its reader does, and hands its errors on", async () => {
  let [read, ended] = [0, false];
  function* source() {
    try {
      for (;;) yield (read += 1);
    } finally {
      ended = true;
    }
  }
  for await (const batch of new StreamLoader(source, { batchSize: 2, prefetch: 1 })) {
    assert.deepEqual(await batch.tolist(), [1, 2]);
    break;
  }
  await new Promise((done) => setTimeout(done, 20));
  assert.ok(ended && read <= 6, `${read} were read, ended: ${ended}`);
  async function* failing() {
    yield 1;
    throw new Error("the server hung up");
  }
  await assert.rejects(valuesOf(new StreamLoader(failing)), /the server hung up/);
  await assert.rejects(valuesOf(new StreamLoader([[1, 2], [3]], { batchSize: 2 })), { code: "E_SHAPE" });
});

test("fit takes a stream, and frees its batches", async () => {
  const net = new nn.Linear(1, 1);
  const loader = new StreamLoader(() => Array.from({ length: 16 }, (_, i) => ({ x: [i / 16], y: [i / 8] })), { batchSize: 4, shuffleBuffer: 8 });
  const optimizer = new optim.Adam(net.parameters(), { learningRate: 0.1 });
  const held = [];
  const loss = ({ x, y }) => net.forward(x).mseLoss(y);
  const { epochs } = await fit(net, loader, { optimizer, loss, epochs: 30, onEpoch: async () => void held.push((await memory())[0].tensors) });
  assert.ok(epochs.at(-1).loss < epochs[0].loss / 10, `${epochs.map((each) => each.loss)}`);
  assert.ok(held.at(-1) <= held[1], `${held}`);
});

test("a table's columns are fields: numbers, and classes by name", async () => {
  const table = await csv(bytes('\ufeffa, kind ,b\r\n1,cat,"2.5"\r\n-3e2,"a ""dog"", or\r\ntwo",0\r\n\r\n4,cat,7'));
  assert.deepEqual([table.length, table.classes], [3, { kind: ['a "dog", or\r\ntwo', "cat"] }]);
  assert.deepEqual(await valuesOf(new DataLoader(table, { batchSize: 3 })), [{ a: [1, -300, 4], kind: [1, 0, 1], b: [2.5, 0, 7] }]);
  const { kind, a } = await table.batch([0]);
  assert.deepEqual([kind.dtype, a.dtype], ["i32", "f32"]);
  const joined = await csv(bytes("b;a;z\n1;2;0\n3;4;1\n"), { features: ["a", "b"], label: "z" });
  const { x, y } = await joined.batch([0, 1]);
  assert.deepEqual([await x.tolist(), await y.tolist(), x.dtype, y.dtype], [[[2, 1], [4, 3]], [0, 1], "f32", "i32"]);
  const tabs = await csv(bytes("1\t2\n3\t\n"), { header: false, missing: -1, columns: ["1"] });
  assert.deepEqual(await valuesOf(new DataLoader(tabs, { batchSize: 2 })), [{ 1: [2, -1] }]);
  assert.deepEqual(await valuesOf(new DataLoader(await csv(new Blob(["v\n0.5"])))), [{ v: [0.5] }]);
});

test("a table that is none says in which line", async () => {
  const fails = (text, options, expected) => assert.rejects(csv(bytes(text), options), expected);
  await fails("a,b\n1,2\n\n3\n", {}, { code: "E_FORMAT", message: /line 4 has 1 cells where 2 are expected/ });
  await fails('a\n1\n"2\n', {}, { code: "E_FORMAT", message: /a quote in line 3 does not end/ });
  await fails("a,b\n1,x\n", { features: ["a", "b"] }, { code: "E_FORMAT", message: /line 2, column b: "x" is no number/ });
  await fails("a,b\n1,2\n3,\n", {}, { code: "E_FORMAT", message: /line 3, column b/, hint: /missing/ });
  await fails("a,b\n1,2\n", { label: "c" }, { code: "E_VALUE", message: /no column "c"/, hint: /a, b/ });
  await fails("a,a\n1,2\n", {}, { code: "E_FORMAT", message: /two columns/ });
  await fails("a,b\n", {}, { code: "E_FORMAT", message: /no rows/ });
  await fails("", {}, { code: "E_FORMAT", message: /no rows/ });
  await assert.rejects(csv("/no/such.csv"), { code: "E_FETCH" });
});

test("pictures are batches of one size, with their classes", async () => {
  const plain = (value, side) => ({ data: new Uint8ClampedArray(4 * side * side).fill(value), width: side, height: side });
  const all = [{ image: plain(255, 4), label: "white" }, { image: plain(0, 6), label: "black" }, { image: plain(51, 2), label: "white" }];
  const set = new Pictures(all, { size: [2, 3], channels: "grey" });
  assert.deepEqual([set.length, set.classes], [3, ["black", "white"]]);
  const [{ x, y }] = [await set.batch([0, 1, 2])];
  assert.deepEqual([x.shape, await y.tolist(), y.dtype], [[3, 1, 2, 3], [1, 0, 1], "i32"]);
  const values = await x.data();
  assert.ok(values.slice(0, 6).every((v) => Math.abs(v - 1) < 1e-6) && values.slice(6, 12).every((v) => v === 0), `${values}`);
  const numbered = new Pictures([10, 9, 1].map((label) => ({ image: plain(0, 2), label })), { size: 2 });
  assert.deepEqual(numbered.classes, ["1", "9", "10"]);
  const without = new Pictures([plain(0, 2)], { size: 2 });
  assert.deepEqual(Object.keys(await without.batch([0])), ["x"]);
  assert.equal(await new Pictures(["a/cat/1.png", "a/dog/2.png?v=3", "b/cat/4.png"], { size: 2 }).classes.join(), "cat,dog");
  const shuffled = new DataLoader(set, { batchSize: 2, shuffle: 1 });
  assert.equal((await valuesOf(shuffled)).length, 2);
  assert.throws(() => new Pictures([all[0], plain(0, 2)], { size: 2 }), { code: "E_VALUE", hint: /label/ });
  assert.throws(() => new Pictures([], { size: 2 }), { code: "E_VALUE" });
  await assert.rejects(set.batch([3]), { code: "E_VALUE" });
});
