// `init({ debug })`: what each level shows of a small computation on the WASM device.
import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { Tensor, init } from "gradloom";

const shown = [];
const log = (text) => shown.push(text);
beforeEach(() => void (shown.length = 0));

/** The text that a level shows of a product and a sum that no level before it computed. */
async function at(debug, n, threads = 1) {
  const device = await init({ device: "wasm", threads, isolated: true, debug, log });
  const x = Tensor.ones([n, 64], { device });
  assert.equal(await x.matmul(x.transpose(0, 1)).sum().item(), 64 * n * n);
  device.dispose();
  return shown.splice(0).join("\n");
}

test("each level shows more", async () => {
  const levels = [];
  for (let level = 0; level <= 7; level += 1) levels.push(await at(level, 64));
  assert.equal(levels[0], "");
  const news = [
    [1, /^kernel \S+ {2}grid \d+ \d+ \d+ {2}\d+ flops {2}\d+ bytes$/m],
    [2, /GFLOP\/s/],
    [3, /^ {2}opts: (?!none)/m],
    [3, /^ {2}parameter 0: \d+ f32 elements, written$/m],
    [3, /^ {2}estimate: [\d.]+ us, bound by \w+/m],
    [3, /^ {2}memory:( \d+@\d+\+\d+)+$/m],
    [4, /^ +v128\.load offset=\d+$/m],
    [4, /^ +f32x4\.(relaxed_madd|add)$/m],
    [5, /^\/\/ as scheduled$/m],
    [5, /= reduce\b/],
    [6, /^\/\/ schedule pass cuts: /m],
    [6, /^\/\/ pass 1, merge-axes: /m],
  ];
  for (const [first, what] of news) {
    levels.forEach((text, level) => assert.equal(what.test(text), level >= first, `level ${level}, ${what}:\n${text}`));
  }
  assert.doesNotMatch(levels[7], /not shown|undefined|NaN|inf/, "every instruction is known");
});

test("launches have names and times, with threads too", async () => {
  for (const threads of [1, 2]) {
    const text = await at(2, 96 + threads, threads);
    const compiled = [...text.matchAll(/^kernel (\S+)/gm)].map((found) => found[1]);
    const launches = [...text.matchAll(/^ +(\d+) (\S+) +([\d.]+) us +([\d.]+) ms in all +([\d.]+) GB\/s +([\d.]+) GFLOP\/s$/gm)];
    assert.ok(compiled.length > 0 && launches.length >= compiled.length, text);
    assert.deepEqual(launches.map((row) => Number(row[1])), launches.map((_, i) => i + 1), "numbered in order");
    for (const [line, , name, us, , , rate] of launches) {
      assert.ok(compiled.includes(name), line);
      assert.ok(Number(us) > 0, line);
      assert.ok(Number(rate) >= 0, line);
    }
    const sum = launches.reduce((total, row) => total + Number(row[3]), 0) / 1e3;
    assert.ok(Math.abs(Number(launches.at(-1)[4]) - sum) < 0.02, "the last one has the time of all");
  }
});

test("a started device is told, and console.log is the default", async (t) => {
  await init({ device: "wasm", threads: 1 });
  const run = async (n) => (await Tensor.ones([n, 33]).exp().sum().item()) > 0;
  assert.ok(await run(7));
  assert.deepEqual(shown, []);
  const lines = [];
  t.mock.method(console, "log", (text) => lines.push(text));
  await init({ device: "wasm", debug: 1 });
  assert.ok(await run(8));
  assert.match(lines.join("\n"), /^kernel /m);
  await init({ device: "wasm", debug: 0 });
  lines.length = 0;
  assert.ok(await run(9));
  assert.deepEqual(lines, []);
  // what it throws is not the computation's
  const broken = () => {
    throw new Error("no space left");
  };
  await init({ device: "wasm", debug: 7, log: broken });
  assert.ok(await run(10));
  await init({ device: "wasm", debug: 0 });
});
