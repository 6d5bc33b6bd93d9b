// Operators by torch's names in Node: torch's own samples of them (tests/fixtures/opinfo), and gradients through them.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Tensor, init, torch } from "gradloom";

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
