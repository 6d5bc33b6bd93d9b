// Shaders as a GPU of hardware gets them, on the software adapter: workgroup tiles, shared reductions, subgroups, f16 in memory.
import { Tensor, devices, init, load, memory } from "gradloom";
import { LLM } from "gradloom/llm";
import { assert, assertClose, assertEqual, note, testOnWebGpu } from "harness";

const numbers = (n) => Float32Array.from({ length: n }, (_, i) => ((i * 37) % 101) / 50 - 1);

testOnWebGpu("the driver is asked what is known, and what it gets wrong is said", async () => {
  const device = await init({ device: "webgpu", asHardware: true });
  await note(device.notes.join("; ") || "all answers are right");
  // neither wrong arithmetic nor loops that end early
  assert(!device.notes.some((line) => line.includes("turns")), device.notes.join());
  const [gpu] = await devices();
  assert(gpu.available && device.notes.every((line) => gpu.reason.includes(line)), gpu.reason);
  const n = 1_048_583;
  const long = new Tensor(Float32Array.from({ length: n }, (_, i) => i % 7), [n]);
  const sum = Math.floor(n / 7) * 21 + Array.from({ length: n % 7 }, (_, i) => i).reduce((a, b) => a + b, 0);
  assertEqual([...(await long.sum().data())], [sum]);
});

testOnWebGpu("long rows, products and f16 as on a GPU of hardware", async () => {
  await init({ device: "webgpu", asHardware: true });
  const [rows, n] = [70, 512];
  const data = numbers(rows * n);
  const x = new Tensor(data, [rows, n]);
  const soft = Array.from({ length: rows }, (_, r) => {
    const e = Array.from(data.subarray(r * n, (r + 1) * n), Math.exp);
    const sum = e.reduce((a, b) => a + b, 0);
    return e.map((v) => v / sum);
  }).flat();
  assertClose(await x.softmax(-1).data(), soft, { tolerance: 1e-5 });
  const b = new Tensor(data, [n, rows]);
  const product = Array.from({ length: rows * rows }, (_, at) => {
    let sum = 0;
    for (let k = 0; k < n; k += 1) sum += data[Math.floor(at / rows) * n + k] * data[k * rows + (at % rows)];
    return sum;
  });
  assertClose(await x.matmul(b).data(), product, { tolerance: 1e-4 });
  // an odd number of halves: 1/8 and its kin are exact
  const half = new Tensor(Float32Array.from({ length: 35 }, (_, i) => i / 8), [5, 7], { dtype: "f16" });
  const doubled = Array.from({ length: 35 }, (_, i) => i / 4);
  assertClose(await half.add(half).data(), doubled, { tolerance: 0 });
});

testOnWebGpu("attention of a model is one kernel, as natively", async () => {
  const { model: onnx } = await import("/onnx/onnx.mjs");
  const [heads, n, width] = [2, 768, 32];
  const shape = [1, heads, n, width];
  const file = onnx(
    { q: { shape, dtype: "float32" }, k: { shape: [1, heads, width, n], dtype: "float32" }, v: { shape, dtype: "float32" } },
    { scale: { data: Float32Array.of(width ** -0.5), shape: [1], dtype: "float32" } },
    [["MatMul", ["q", "k"], "scores"], ["Mul", ["scores", "scale"], "scaled"], ["Softmax", ["scaled"], "p", { axis: -1 }], ["MatMul", ["p", "v"], "y"]],
    shape,
  );
  const values = (seed) => Float32Array.from({ length: heads * n * width }, (_, i) => Math.sin(i * 0.37 + seed));
  const run = async (device) => {
    const model = await load(file, { device, worker: false });
    const feeds = { q: new Tensor(values(1), shape), k: new Tensor(values(2), [1, heads, width, n]), v: new Tensor(values(3), shape) };
    const launches = async () => (await memory()).find((each) => each.device === device).launches;
    const before = await launches();
    const { y } = await model.run(feeds);
    const result = { launches: (await launches()) - before, y: await y.data() };
    model.dispose();
    return result;
  };
  const plain = await run("wasm");
  await init({ device: "webgpu", asHardware: true });
  const fused = await run("webgpu");
  await note(`${fused.launches} launch(es)`);
  assertClose(fused.y, plain.y, { tolerance: 1e-4 });
  assertEqual(fused.launches, 1);
});

testOnWebGpu("a language model writes what it should as on a GPU of hardware", async () => {
  await init({ device: "webgpu", asHardware: true });
  const { prompt, tokens } = await (await fetch("/models/verses/expected.json")).json();
  const llm = await LLM.load("/models/verses/verses-q8_0.gguf", { device: "webgpu", context: 256, worker: false });
  const first = tokens.slice(0, 4);
  const written = [];
  for await (const token of llm.tokens(prompt, { maxTokens: first.length, ignoreEnd: true })) written.push(token);
  assertEqual(written, first);
  llm.dispose();
});
