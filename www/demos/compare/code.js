// One model in two runtimes: how long until the first result, and how long each later one takes.
import { Tensor, load } from "gradloom";

/** The middle of what `run` took, in milliseconds, of as many runs as fit into `most`. @returns {Promise<number>} */
async function median(run, most = 1500) {
  const times = [];
  for (const begin = performance.now(); times.length < 40 && (times.length < 3 || performance.now() - begin < most); ) {
    const start = performance.now();
    await run();
    times.push(performance.now() - start);
  }
  return times.sort((a, b) => a - b)[times.length >> 1] ?? 0;
}

/** Loads a model, runs it once, then again and again: results are read back each time. */
async function timed(open, run) {
  const start = performance.now();
  const model = await open();
  const values = await run(model);
  const first = performance.now() - start;
  return { model, values, first, again: await median(() => run(model)), more: () => median(() => run(model)) };
}

export function gradloom(bytes, inputs, output, { device, signal }) {
  return timed(
    () => load(bytes, { device, signal }),
    async (model) => {
      const given = Object.entries(inputs).map(([name, { data, dims }]) => [name, new Tensor(data, dims, { device })]);
      const out = await model.run(Object.fromEntries(given), { signal });
      const values = await out[output].data("f32");
      for (const t of [...given.map(([, t]) => t), ...Object.values(out)]) t.dispose();
      return values;
    },
  );
}

/** `ort` is the module of onnxruntime-web. */
export function onnxruntime(ort, bytes, inputs, output, { device }) {
  const feeds = Object.fromEntries(Object.entries(inputs).map(([name, { type, data, dims }]) => [name, new ort.Tensor(type, data, dims)]));
  return timed(
    () => ort.InferenceSession.create(bytes, { executionProviders: [device.kind], logSeverityLevel: 3 }),
    async (session) => {
      const out = await session.run(feeds);
      const values = await out[output].getData();
      for (const t of Object.values(out)) t.dispose();
      return Float32Array.from(values);
    },
  );
}
