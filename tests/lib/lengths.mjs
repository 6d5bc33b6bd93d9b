// Models whose lengths change from run to run, for Node and for pages: inputs of any shape, and the numbers that onnxruntime gave for fifty of
// them (tests/zoo/lengths.py recorded eight elements of each output).
import { readNpz } from "./npz.mjs";

/** What a decoder's cache is called. */
export const PAST = ["past_k0", "past_v0", "past_k1", "past_v1"];

/** How many shapes each file has. */
const SHAPES = 50;

const ids = (count, first) => BigInt64Array.from({ length: count }, (_, i) => BigInt((i * 5 + 3 + first) % 50));

/** Inputs of an encoder, `[batch, length]`, where the end of each text is padding; or of a decoder with a cache, `[batch, length, past]`. */
export function inputsOf({ Tensor }, [batch, length, past]) {
  if (past === undefined) {
    const mask = BigInt64Array.from({ length: batch * length }, (_, i) => (i % length < length - (Math.floor(i / length) % length) ? 1n : 0n));
    return { input_ids: new Tensor(ids(batch * length, 0), [batch, length]), attention_mask: new Tensor(mask, [batch, length]) };
  }
  const noise = (seed, shape) => {
    const at = (i) => Math.sin(Math.fround((i * 7 + seed * 13) * Math.fround(0.37)));
    return new Tensor(Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, i) => at(i)), shape);
  };
  const all = length + past;
  return {
    input_ids: new Tensor(ids(batch * length, past), [batch, length]),
    attention_mask: new Tensor(new BigInt64Array(batch * all).fill(1n), [batch, all]),
    ...Object.fromEntries(PAST.map((name, i) => [name, noise(i + 1, [batch, 2, past, 8])])),
  };
}

/** Runs the first `count` shapes of a file of samples. Gives how many kernels each compiled, and the largest difference in parts of the largest number. */
export async function runShapes(gradloom, model, npz, count = SHAPES) {
  const samples = await readNpz(npz);
  const shapes = Array.from(samples.shapes.data, Number);
  const rank = shapes.length / SHAPES;
  const compiled = [];
  let error = 0;
  for (let i = 0; i < count; i += 1) {
    const outputs = Object.entries(await model.run(inputsOf(gradloom, shapes.slice(i * rank, (i + 1) * rank))));
    compiled.push(model.timing.kernelsCompiled);
    for (const [name, t] of outputs) {
      const got = await t.data();
      const want = Array.from(samples[name].data.slice(i * 8, i * 8 + 8), Number);
      const most = Math.max(1e-9, ...want.map(Math.abs));
      want.forEach((x, j) => {
        const off = Math.abs(got[Math.floor((j * (got.length - 1)) / 7)] - x) / most;
        error = off <= error ? error : off;
      });
      t.dispose();
    }
  }
  return { compiled, error };
}

/** The numbers of the runs, from this one on, that compiled something. */
export const runsThatCompiled = (compiled, from) => compiled.flatMap((n, i) => (n > 0 && i >= from ? [i] : []));

/**
 * Feeds a decoder's cache back for so many steps of one token, from two on. Gives how many kernels each step compiled; `onStep` gets the step's
 * logits, its cache, and what it was given.
 */
export async function growCache(gradloom, model, steps, options = {}, onStep = async () => {}) {
  const start = inputsOf(gradloom, [1, 1, 2]);
  let cache = PAST.map((name) => start[name]);
  const compiled = [];
  for (let past = 2; past < 2 + steps; past += 1) {
    const { input_ids, attention_mask } = inputsOf(gradloom, [1, 1, past]);
    const given = { input_ids, attention_mask, ...Object.fromEntries(PAST.map((name, i) => [name, cache[i]])) };
    const [logits, ...next] = Object.values(await model.run(given, options));
    compiled.push(model.timing.kernelsCompiled);
    await onStep({ past, logits, next, input_ids, attention_mask });
    logits.dispose();
    if (past > 2) cache.forEach((t) => t.dispose());
    cache = next;
  }
  cache.forEach((t) => t.dispose());
  return compiled;
}

/**
 * Runs one of the cases that onnxruntime ran of the decoder with GroupQueryAttention (tests/fixtures/make_grouped.py), with caches that grow from
 * `rows` zeros. Gives how many kernels each step compiled, and the largest difference of a logit of the texts' last tokens.
 */
export async function runGrouped(gradloom, model, npz, name, rows, options = {}) {
  const { Tensor } = gradloom;
  const samples = await readNpz(npz);
  const names = [0, 1].flatMap((i) => [`past_key_values.${i}.key`, `past_key_values.${i}.value`]);
  const compiled = [];
  let cache;
  let error = 0;
  for (let step = 0; samples[`${name}.${step}.ids`]; step += 1) {
    const part = (of) => samples[`${name}.${step}.${of}`];
    const [texts, tokens] = Array.from(part("ids").shape, Number);
    const given = { input_ids: new Tensor(part("ids").data, part("ids").shape), attention_mask: new Tensor(part("mask").data, part("mask").shape) };
    const old = cache ?? names.map(() => new Tensor(new Float32Array(texts * 2 * rows * 16), [texts, 2, rows, 16]));
    const [logits, ...next] = Object.values(await model.run({ ...given, ...Object.fromEntries(names.map((n, i) => [n, old[i]])) }, options));
    compiled.push(model.timing.kernelsCompiled);
    const got = await logits.data();
    for (let text = 0; text < texts; text += 1) {
      const last = (step === 0 ? [5, 3][text] : tokens) - 1;
      for (let i = 0; i < 50; i += 1) {
        const off = Math.abs(got[(text * tokens + last) * 50 + i] - part("logits").data[text * 50 + i]);
        error = off <= error ? error : off;
      }
    }
    for (const t of [logits, ...(cache ?? [])]) t.dispose();
    cache = next;
  }
  cache.forEach((t) => t.dispose());
  return { compiled, error };
}
