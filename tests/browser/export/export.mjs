// configs: default
// Models compiled ahead of time, which the Rust test `export` left in tests/tmp: the same answers as `load` gives, on both devices.
import { Tensor, load as compile } from "gradloom";
import { assert, assertClose, assertEqual, errorOf, loadCase, note, test } from "harness";

for (const name of ["zoo_densenet", "zoo_llama_past", "zoo_t5_encoder", "magika"]) {
  for (const device of ["wasm", "webgpu"]) {
    test(`${name} on ${device}`, async () => {
      const module = await import(`/exported/${name}/model.js`);
      const { model, input, expected } = await loadCase(name);
      const exported = await module.load({ device });
      assertEqual(exported.device, device);
      const inputs = Object.fromEntries(Object.entries(input).map(([key, { data }]) => [key, data]));
      const before = performance.now();
      const got = await exported.run(inputs);
      await note(`first run ${(performance.now() - before).toFixed(0)} ms`);
      const again = await exported.run(inputs);
      assertEqual(Object.keys(got).sort(), Object.keys(expected).sort());
      const compiled = await compile(model, { device: "wasm" });
      const shaped = Object.entries(input).map(([key, { data, shape }]) => [key, new Tensor(data, shape)]);
      const outputs = await compiled.run(Object.fromEntries(shaped));
      for (const [key, { data }] of Object.entries(expected)) {
        assertClose(got[key], data, { what: key });
        assertClose(got[key], await outputs[key].data(), { what: `${key} of load` });
        assertEqual([...again[key]].map(String), [...got[key]].map(String), "a second run");
      }
      exported.dispose();
    });
  }
}

test("an input may be a buffer of the caller's GPU device", async () => {
  const { load, inputs } = await import("/exported/zoo_densenet/model.js");
  const gpuDevice = await (await navigator.gpu.requestAdapter()).requestDevice();
  const model = await load({ gpuDevice });
  assertEqual(model.device, "webgpu");
  const { input } = await loadCase("zoo_densenet");
  const [{ name }] = inputs;
  const { data } = input[name];
  const buffer = gpuDevice.createBuffer({ size: data.byteLength, usage: GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST });
  gpuDevice.queue.writeBuffer(buffer, 0, data);
  const [here, there] = [await model.run({ [name]: data }), await model.run({ [name]: buffer })];
  for (const key of Object.keys(here)) assertEqual([...there[key]], [...here[key]], key);
  model.dispose();
  // it stays the caller's
  gpuDevice.queue.writeBuffer(buffer, 0, data);
  await gpuDevice.queue.onSubmittedWorkDone();
  gpuDevice.destroy();
});

test("what does not fit is said", async () => {
  const { load } = await import("/exported/zoo_densenet/model.js");
  const model = await load({ device: "wasm" });
  assert(/there is no device `gpu`/.test((await errorOf(() => load({ device: "gpu" }))).message));
  assert(/is a Float32Array of/.test((await errorOf(() => model.run({ x: new Float64Array(1) }))).message));
});
