// What a page on WebGPU shares with its own shaders: its device, buffers as tensors, tensors as buffers.
// configs: default
import { DeviceError, Tensor, UnsupportedError, ValueError, init, irKernel, load, memory } from "gradloom";
import { allowConsoleErrors, assert, assertEqual, errorOf, testOnWebGpu } from "harness";

const { STORAGE, COPY_SRC, COPY_DST, MAP_READ } = globalThis.GPUBufferUsage ?? {};
const newDevice = async () => (await navigator.gpu.requestAdapter()).requestDevice();
let gpu;

function bufferOf(values, usage = STORAGE | COPY_SRC | COPY_DST, device = gpu) {
  const buffer = device.createBuffer({ size: values.byteLength, usage });
  if (usage & COPY_DST) device.queue.writeBuffer(buffer, 0, values);
  return buffer;
}

/** The floats of a part of a buffer, read by the page. */
async function floats({ buffer, offset, size }) {
  const copy = gpu.createBuffer({ size, usage: MAP_READ | COPY_DST });
  const encoder = gpu.createCommandEncoder();
  encoder.copyBufferToBuffer(buffer, offset, copy, 0, size);
  gpu.queue.submit([encoder.finish()]);
  await copy.mapAsync(GPUMapMode.READ);
  return [...new Float32Array(copy.getMappedRange().slice(0))];
}

testOnWebGpu("the package's device is the page's too", async () => {
  const device = await init({ device: "webgpu" });
  const other = await device.gpuDevice();
  assert(other instanceof GPUDevice && other === (await device.gpuDevice()));
  const t = Tensor.fromGPUBuffer(bufferOf(Float32Array.of(1, 2, 3), undefined, other), [3]);
  assertEqual(await t.mul(2).tolist(), [2, 4, 6]);
  t.dispose();
  const refused = await errorOf(async () => (await init({ device: "wasm" })).gpuDevice());
  assert(refused instanceof UnsupportedError && /gpuDevice/.test(refused.message), String(refused));
  const model = await load("/models/silero_vad_op15/model.onnx", { device: "webgpu" });
  const away = await errorOf(() => model.device.gpuDevice());
  assert(away instanceof DeviceError && /in a worker/.test(away.message), String(away));
  model.dispose();
});

testOnWebGpu("the page's own device computes", async () => {
  gpu = await newDevice();
  const device = await init({ device: "webgpu", gpuDevice: gpu });
  assertEqual(device.kind, "webgpu");
  assert(device.maxBufferBytes <= gpu.limits.maxBufferSize, `${device.maxBufferBytes}`);
  assertEqual(await init({ gpuDevice: gpu }), device);
  const a = Tensor.arange(0, 64).reshape([8, 8]).cast("f32");
  assertEqual([...(await a.matmul(a).sum().data())], [Array.from({ length: 64 }, (_, i) => (i >> 3) * 8 + (i & 7)).reduce((sum, _, i) => {
    const [row, column] = [i >> 3, i & 7];
    let dot = 0;
    for (let k = 0; k < 8; k += 1) dot += (8 * row + k) * (8 * k + column);
    return sum + dot;
  }, 0)]);
});

testOnWebGpu("a buffer of the page is a tensor, without a copy", async () => {
  const buffer = bufferOf(Float32Array.of(1, 2, 3, 4, 5, 6));
  const t = Tensor.fromGPUBuffer(buffer, [2, 3]);
  assertEqual([t.shape, t.dtype], [[2, 3], "f32"]);
  assertEqual(await t.mul(2).tolist(), [[2, 4, 6], [8, 10, 12]]);
  gpu.queue.writeBuffer(buffer, 0, Float32Array.of(10));
  assertEqual(await t.sum().item(), 30);
  assertEqual(await t.tolist(), [[10, 2, 3], [4, 5, 6]]);
  t.assign(t.add(1));
  await t.realize();
  assertEqual(await floats({ buffer, offset: 0, size: 24 }), [11, 3, 4, 5, 6, 7]);
  t.dispose();
  await memory();
  assertEqual(await floats({ buffer, offset: 0, size: 24 }), [11, 3, 4, 5, 6, 7]);
});

testOnWebGpu("parts of a buffer are tensors, from an offset on", async () => {
  const align = gpu.limits.minStorageBufferOffsetAlignment;
  const at = (part) => (part * align) / 4;
  const values = Float32Array.from({ length: at(3) + 8 }, (_, i) => i);
  const buffer = bufferOf(values);
  const [first, second, last] = [0, 1, 3].map((part) => Tensor.fromGPUBuffer(buffer, [2, 4], "f32", { offset: part * align }));
  assertEqual(await second.tolist(), [0, 1].map((row) => [0, 1, 2, 3].map((i) => at(1) + 4 * row + i)));
  assertEqual(await last.sum().item(), 8 * at(3) + 28);
  const part = await second.gpuBuffer();
  assertEqual([part.buffer === buffer, part.offset, part.size], [true, align, 32]);
  // one launch reads a part and writes another, and nothing around is touched
  last.assign(first.add(second).mul(2));
  await last.realize();
  const want = values.slice();
  for (let i = 0; i < 8; i += 1) want[at(3) + i] = 2 * (i + at(1) + i);
  assertEqual(await floats({ buffer, offset: 0, size: values.byteLength }), [...want]);
  // a part is copied to another
  first.assign(second);
  await first.realize();
  want.copyWithin(0, at(1), at(1) + 8);
  assertEqual(await floats({ buffer, offset: 0, size: values.byteLength }), [...want]);
  // and other elements begin there too
  const bytes = Tensor.fromGPUBuffer(buffer, [6], "u8", { offset: 2 * align });
  assertEqual([...(await bytes.data())], [...new Uint8Array(values.buffer, 2 * align, 6)]);
});

testOnWebGpu("a buffer of the page serves nothing else once its tensor is gone", async () => {
  const buffer = bufferOf(new Float32Array(4096).fill(7));
  for (let i = 0; i < 3; i += 1) {
    const t = Tensor.fromGPUBuffer(buffer, [4096]);
    assertEqual(await t.sum().item(), 7 * 4096);
    t.dispose();
    await memory();
    const other = Tensor.full([4096], i);
    assertEqual(await other.add(1).contiguous().sum().item(), 4096 * (i + 1));
    other.dispose();
  }
  assertEqual((await floats({ buffer, offset: 0, size: 16 })), [7, 7, 7, 7]);
});

testOnWebGpu("bytes in words: a buffer of u8", async () => {
  const t = Tensor.fromGPUBuffer(bufferOf(Uint8Array.of(1, 2, 3, 255)), [3], "u8");
  assertEqual([...(await t.cast("f32").mul(2).data())], [2, 4, 6]);
});

testOnWebGpu("a tensor is a buffer for the page's shaders", async () => {
  const t = Tensor.arange(0, 5).cast("f32").mul(3);
  const part = await t.gpuBuffer();
  assert(part.buffer instanceof GPUBuffer && part.size === 20 && part.dtype === "f32", JSON.stringify(part));
  assertEqual(await floats(part), [0, 3, 6, 9, 12]);
  // the page's own shader writes there
  const code = `@group(0) @binding(0) var<storage, read_write> x: array<f32>;
    @compute @workgroup_size(1) fn main(@builtin(global_invocation_id) id: vec3u) { x[id.x] = x[id.x] + 100.0; }`;
  const pipeline = gpu.createComputePipeline({ layout: "auto", compute: { module: gpu.createShaderModule({ code }) } });
  const entries = [{ binding: 0, resource: part }];
  const encoder = gpu.createCommandEncoder();
  const pass = encoder.beginComputePass();
  pass.setPipeline(pipeline);
  pass.setBindGroup(0, gpu.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries }));
  pass.dispatchWorkgroups(5);
  pass.end();
  gpu.queue.submit([encoder.finish()]);
  assertEqual([...(await t.data())], [100, 103, 106, 109, 112]);
  assertEqual(await t.sum().item(), 530);
});

testOnWebGpu("what a buffer lacks is said", async () => {
  const fails = async (body, says) => {
    const error = await errorOf(body);
    assert(error instanceof ValueError && error.message.includes(says), `${error?.code}: ${error?.message}`);
  };
  const four = Float32Array.of(1, 2, 3, 4);
  await fails(() => Tensor.fromGPUBuffer(bufferOf(four, COPY_SRC | COPY_DST), [4]), "GPUBufferUsage.STORAGE");
  await fails(() => Tensor.fromGPUBuffer(bufferOf(four, STORAGE | COPY_DST), [4]), "GPUBufferUsage.COPY_SRC");
  await fails(() => Tensor.fromGPUBuffer(bufferOf(four, STORAGE | COPY_SRC), [4]), "GPUBufferUsage.COPY_DST");
  await fails(() => Tensor.fromGPUBuffer(bufferOf(four), [5]), "it has 16 bytes; 20 from 0 on are wanted");
  const from = (offset, shape = [4]) => () => Tensor.fromGPUBuffer(bufferOf(new Float32Array(256)), shape, "f32", { offset });
  for (const offset of [4, -256, 0.5, NaN]) await fails(from(offset), `from ${offset} on are wanted, a multiple of`);
  await fails(from(Infinity), "from inf on are wanted");
  await fails(from(768, [65]), "it has 1024 bytes; 260 from 768 on are wanted");
  await fails(from(2 ** 52), "16 from 4503599627370496 on are wanted");
  assertEqual(await from(768, [64])().sum().item(), 0);
  await fails(() => Tensor.fromGPUBuffer(four, [4]), "not a GPUBuffer");
  await fails(() => Tensor.fromGPUBuffer(bufferOf(four), [4], "f33"), "f33");
  await fails(() => init({ gpuDevice: {} }), "not a GPUDevice");
  await fails(() => init({ device: "wasm", gpuDevice: gpu }), "gpuDevice is for device");
  const mapped = gpu.createBuffer({ size: 16, usage: STORAGE | COPY_SRC | COPY_DST, mappedAtCreation: true });
  await fails(() => Tensor.fromGPUBuffer(mapped, [4]), "mapped");
});

testOnWebGpu("mistakes of the page on its own device are no errors of tensors", async () => {
  allowConsoleErrors(/Buffer|usage|WebGPU/i);
  gpu.addEventListener("uncapturederror", (event) => event.preventDefault());
  gpu.createBuffer({ size: 16, usage: MAP_READ | STORAGE });
  await gpu.queue.onSubmittedWorkDone();
  await new Promise((done) => setTimeout(done, 50));
  assertEqual(await Tensor.ones([3]).sum().item(), 3);
});

testOnWebGpu("a buffer of another device is an error that comes out of a call", async () => {
  allowConsoleErrors(/Buffer|WebGPU/i);
  const other = await newDevice();
  const error = await errorOf(async () => {
    const t = Tensor.fromGPUBuffer(bufferOf(Float32Array.of(1, 2), undefined, other), [2]);
    await t.sum().data();
    await t.sum().data();
  });
  assert(error instanceof DeviceError && error.code === "E_DEVICE", `${error}`);
  other.destroy();
});

testOnWebGpu("other devices have no GPU buffers", async () => {
  const wasm = await init({ device: "wasm" });
  const error = await errorOf(() => new Tensor([1, 2], null, { device: wasm }).gpuBuffer());
  assert(error instanceof UnsupportedError && error.message.includes("wasm"), `${error}`);
  const other = await errorOf(() => Tensor.fromGPUBuffer(bufferOf(Float32Array.of(1)), [1]));
  assert(other instanceof UnsupportedError && other.code === "E_UNSUPPORTED", `${other}`);
});

testOnWebGpu("a page's device that is lost is a typed error, until the page gives another", async () => {
  await init({ gpuDevice: gpu });
  const t = Tensor.ones([4]).add(1);
  gpu.destroy();
  await gpu.lost;
  await new Promise((done) => setTimeout(done));
  const is = (error) => error instanceof DeviceError && error.code === "E_DEVICE_LOST";
  assert(is(await errorOf(() => t.data())));
  assert(is(await errorOf(() => init({ gpuDevice: gpu }))));
  gpu = await newDevice();
  await init({ gpuDevice: gpu });
  assertEqual(await Tensor.ones([4]).add(1).sum().item(), 8);
  gpu.destroy();
  await gpu.lost;
  await new Promise((done) => setTimeout(done));
  // without naming one, it is asked for as ever
  await init({ device: "webgpu" });
  assertEqual(await Tensor.ones([4]).add(2).sum().item(), 12);
});

/** `scale x + shift` for each element. */
const scaled = (x, options = {}) =>
  Tensor.customKernel({
    name: "scaled",
    inputs: { x },
    outputs: { y: { shape: x.shape } },
    workgroups: ({ y }) => Math.ceil(y.reduce((a, b) => a * b, 1) / 64),
    wgsl: `@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3u) {
      if (id.x < arrayLength(&y)) { y[id.x] = 3.0 * x[id.x] + 1.0; }
    }`,
    ...options,
  }).y;

testOnWebGpu("a kernel in WGSL is computed in order with all else", async () => {
  await init({ device: "webgpu" });
  const x = Tensor.arange(0, 6).cast("f32").reshape([2, 3]);
  const y = scaled(x.add(1));
  assertEqual(y.shape, [2, 3]);
  assertEqual(await scaled(y.permute([1, 0])).mul(10).tolist(), [[130, 400], [220, 490], [310, 580]]);
  assertEqual(await y.sum().item(), 3 * 21 + 6);
  assertEqual((await y.gpuBuffer()).size, 24);
});

testOnWebGpu("kernels as loops have the values of tensors on WebGPU", async () => {
  const device = await init({ device: "webgpu" });
  const text = async (name) => (await fetch(new URL(`../../fixtures/kernels/${name}.ir`, import.meta.url))).text();
  const x = Tensor.arange(0, 35).cast("f32").mul(0.37).sin().reshape([5, 7]);
  const softmax = await irKernel(await text("softmax"), { device });
  const [got, want] = [await softmax.launch([x], [5, 7]).data(), await x.softmax(1).data()];
  got.forEach((value, i) => assert(Math.abs(value - want[i]) <= 1e-6, `${i}: ${value}, not ${want[i]}`));
  const lookup = await irKernel(await text("lookup"), { device });
  const values = [3, -1, 0, 7, -9, 2, 0, -3, 5, -32768];
  const places = Tensor.arange(-3, 30);
  const found = await lookup.launch([new Tensor(values, null, { dtype: "i16" }), places]).tolist();
  assertEqual(found.map(Boolean), [...(await places.data())].map((at) => values[Math.min(Math.max(at, 0), 9)] > 0));
});

testOnWebGpu("a kernel has several outputs, of several dtypes", async () => {
  const x = new Tensor([3, -1, 7, 2]);
  const { most, place } = Tensor.customKernel({
    inputs: { x },
    outputs: { most: { shape: [] }, place: { shape: [1], dtype: "u32" } },
    workgroups: 1,
    wgsl: `@compute @workgroup_size(1) fn main() {
      var best = 0u;
      for (var i = 1u; i < arrayLength(&x); i++) { if (x[i] > x[best]) { best = i; } }
      most[0] = x[best];
      place[0] = best;
    }`,
  });
  assertEqual([await most.item(), await place.item()], [7, 2]);
});

testOnWebGpu("a kernel trains with the gradient of its fallback", async () => {
  const x = new Tensor([1, 2, 3], null, { requiresGrad: true });
  const y = scaled(x, { fallback: ({ x }) => x.mul(3).add(1) });
  const loss = y.square().sum();
  loss.backward();
  assertEqual([...(await x.grad.data())], [24, 42, 60]);
  assertEqual(await loss.item(), 16 + 49 + 100);
  const error = await errorOf(() => {
    scaled(x).sum().backward();
  });
  assert(error instanceof UnsupportedError && error.message.includes("`scaled`"), `${error}`);
});

testOnWebGpu("mistakes in a kernel are errors with codes", async () => {
  const x = new Tensor([1, 2]);
  const wrong = await errorOf(() => scaled(x, { wgsl: "fn main( {" }).data());
  assert(wrong instanceof DeviceError && wrong.message.includes("scaled"), `${wrong}`);
  const groups = await errorOf(() => scaled(x, { workgroups: [1, 0] }));
  assert(groups instanceof ValueError && groups.message.includes("workgroups"), `${groups}`);
  const many = await errorOf(() => scaled(x, { workgroups: 1e6 }).data());
  assert(many instanceof UnsupportedError && many.message.includes("workgroups"), `${many}`);
  const name = await errorOf(() => Tensor.customKernel({ inputs: { "a b": x }, outputs: { y: { shape: [2] } }, workgroups: 1, wgsl: "" }));
  assert(name instanceof ValueError && name.message.includes("a b"), `${name}`);
  assertEqual(await x.sum().item(), 3);
});

testOnWebGpu("a budget for memory, and inner values of a model, on WebGPU", async () => {
  await init({ device: "webgpu", memoryLimit: 32 << 20 });
  const held = await Tensor.rand([5 << 20]).realize();
  const error = await errorOf(() => Tensor.rand([5 << 20]).realize());
  assertEqual(error?.code, "E_OUT_OF_MEMORY");
  held.dispose();
  (await Tensor.rand([5 << 20]).realize()).dispose();
  await init({ device: "webgpu", memoryLimit: Infinity });
  const model = await load("/models/zoo_t5_encoder/model.onnx", { device: "webgpu" });
  const { outputs } = model.graph.nodes.find(({ op }) => op === "Softmax");
  const ids = () => new Tensor(BigInt64Array.from({ length: 18 }, (_, i) => BigInt(i % 7)), [2, 9]);
  const ones = new Tensor(new BigInt64Array(18).fill(1n), [2, 9]);
  const { [outputs[0]]: weights } = await model.run({ input_ids: ids(), attention_mask: ones }, { outputs });
  const rows = await weights.sum(-1).data();
  assert(rows.length > 0 && rows.every((sum) => Math.abs(sum - 1) < 1e-4), [...rows].join());
});
