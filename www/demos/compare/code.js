// One model in two runtimes: how long until the first result, and how long each later one takes.
import { Tensor, load } from "gradloom";

/** Loads a model and runs it once; `again` is the median time of further runs in milliseconds. */
async function timed(open, run, most = 1500) {
  const start = performance.now();
  const model = await open();
  const values = await run(model);
  const first = performance.now() - start;
  const again = async () => {
    const [times, end] = [[], performance.now() + most];
    while (times.length < 3 || (times.length < 40 && performance.now() < end)) {
      const before = performance.now();
      await run(model);
      times.push(performance.now() - before);
    }
    return times.sort((a, b) => a - b)[times.length >> 1] ?? 0;
  };
  return { model, values, first, again };
}

/** Inputs are a list of { name, type, data, dims }. The results are read back in each run. */
export function gradloom(bytes, inputs, output, { device, signal }) {
  return timed(() => load(bytes, { device, signal }), async (model) => {
    const given = inputs.map(({ name, data, dims }) => [name, new Tensor(data, dims, { device })]);
    const out = await model.run(Object.fromEntries(given), { signal });
    const values = await out[output].data("f32");
    for (const t of [...given.map(([, t]) => t), ...Object.values(out)]) t.dispose();
    return values;
  });
}

/** The same with onnxruntime-web, whose module is `ort`. */
export function onnxruntime(ort, bytes, inputs, output, { device }) {
  const options = { executionProviders: [device.kind], logSeverityLevel: 3 };
  const feeds = inputs.map(({ name, type, data, dims }) => [name, new ort.Tensor(type, data, dims)]);
  return timed(() => ort.InferenceSession.create(bytes, options), async (session) => {
    const out = await session.run(Object.fromEntries(feeds));
    const values = Float32Array.from(await out[output].getData());
    for (const t of Object.values(out)) t.dispose();
    return values;
  });
}
