// What PyTorch computed, as recorded for the native tests (tests/fixtures/frontend): cases of layers, optimisers and some operators.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { Tensor, grad } from "gradloom";

/** The recorded inputs' pseudo-random numbers. */
export function numbers(seed, n, lo, hi) {
  return Float32Array.from({ length: n }, (_, i) => {
    let h = (Math.imul(i, 0x9e3779b1) + Math.imul(seed, 0x85ebca77) + 0x165667b1) >>> 0;
    h ^= h >>> 15;
    h = Math.imul(h, 0x2c1b3c6d);
    h ^= h >>> 12;
    h = Math.imul(h, 0x297a2d39);
    h ^= h >>> 15;
    return lo + (hi - lo) * ((h >>> 0) / 4294967296);
  });
}

/** Cases by name: inputs, outputs, and the gradients of the sum of the first output times `numbers(999, ..)`. */
export const cases = new Map();
for (const line of readFileSync(new URL("../fixtures/frontend/cases.txt", import.meta.url), "utf8").split("\n")) {
  const [name, kind, dtype, sizes, text] = line.split("\t");
  if (!/^(nn|opt|lp_pool|fractional_pool|quick_gelu|gather_nd|scatter_nd)/.test(name)) continue;
  const shape = sizes === "" ? [] : sizes.split(",").map(Number);
  const given = (text || "").split(" ").filter(Boolean).map(Number);
  const n = shape.reduce((a, b) => a * b, 1);
  const values = kind === "in" ? numbers(given[0], n, given[1], given[2]) : Float32Array.from(given);
  if (!cases.has(name)) cases.set(name, { inputs: [], outs: [], grads: new Map() });
  const found = cases.get(name);
  const entry = { shape, values: dtype === "i32" ? values.map(Math.floor) : values, dtype };
  if (kind.startsWith("in")) found.inputs.push(entry);
  else if (kind.startsWith("out")) found.outs.push(entry);
  else found.grads.set(Number(kind.slice(4)), entry);
}

/** Fails unless numbers are torch's but for a part of the largest. */
export function close(what, got, want, slack = 2e-5) {
  assert.equal(got.length, want.length, what);
  const scale = Math.max(1e-2, ...want.map(Math.abs));
  got.forEach((v, i) => assert.ok(Math.abs(v - want[i]) <= slack * scale, `${what}[${i}]: ${v}, torch has ${want[i]}`));
}

/** Runs a recorded case: the module's tensors, in the order of its state dict unless told, are the last inputs. */
export async function layer(name, module, run = (m, x) => [m.forward(x)], order = Object.keys(module.stateDict())) {
  const { inputs, outs, grads } = cases.get(name);
  const tensors = inputs.map(({ shape, values, dtype }) => new Tensor(values, shape, { dtype, requiresGrad: dtype === "f32" }));
  const dict = module.stateDict();
  const own = order.map((key) => [key, dict[key]]);
  const first = tensors.length - own.length;
  await module.loadStateDict(Object.fromEntries(own.map(([key], i) => [key, tensors[first + i]])));
  const results = run(module, ...tensors.slice(0, first));
  const seed = new Tensor(numbers(999, outs[0].values.length, -1, 1), outs[0].shape);
  const targets = [...tensors.slice(0, first), ...own.map(([, t]) => t)];
  const at = [...grads.keys()];
  const slopes = grad(results[0].mul(seed).sum(), at.map((i) => targets[i]));
  for (const [i, out] of outs.entries()) {
    assert.deepEqual(results[i].shape, out.shape, name);
    close(`${name} out${i}`, await results[i].data(), [...out.values]);
  }
  for (const [i, slope] of slopes.entries()) close(`${name} grad${at[i]}`, await slope.data(), [...grads.get(at[i]).values], 1e-4);
}
