// What the package promises beside right numbers: errors with codes, abort, disposal, progress, devices.
// configs: default, no-webgpu, not-isolated
import { GradloomError, ShapeError, Tensor, devices, grad, init, load, memory, nn, optim, realize, tidy } from "gradloom";
import { assert, assertClose, assertEqual, deviceKinds, errorOf, fetchBytes, hasWebGpu, note, params, test } from "harness";

const config = params.get("config");
const MODEL = "/models/ppocr_cls/model.onnx";
const image = () => new Tensor(new Float32Array(2 * 3 * 48 * 192), [2, 3, 48, 192]);

const codeOf = async (body) => {
  const error = await errorOf(body);
  assert(error instanceof GradloomError, `${error} is no GradloomError`);
  return error.code;
};

test("tensors before init say what to do", async () => {
  const t = new Tensor([1, 2, 3]);
  assertEqual([...(await t.data())], [1, 2, 3]);
  assertEqual(await codeOf(() => t.add(1)), "E_STATE");
});

test("devices are reported as they are", async () => {
  const [gpu, wasm] = await devices();
  assertEqual([gpu.kind, wasm.kind], ["webgpu", "wasm"]);
  assertEqual(gpu.available, hasWebGpu);
  assert(wasm.available);
  assertEqual(wasm.threads > 1, config !== "not-isolated" && navigator.hardwareConcurrency > 1, "threads");
  assertEqual(wasm.reason === undefined, config !== "not-isolated", "a reason for one thread");
  if (!hasWebGpu) assert(gpu.reason, "a reason for no WebGPU");
});

test("auto never picks a device that is emulated or not there", async () => {
  const [gpu] = await devices();
  const device = await init();
  assertEqual(device.kind, gpu.available && !gpu.software ? "webgpu" : "wasm");
});

test("a device that is not there is an error with a code", async () => {
  assertEqual(await codeOf(() => init({ device: "cuda" })), "E_DEVICE");
  if (!hasWebGpu) assertEqual(await codeOf(() => load(MODEL, { device: "webgpu" })), "E_DEVICE");
});

for (const device of deviceKinds) {
  test(`tensor ops on ${device}`, async () => {
    await init({ device });
    const a = new Tensor([[1, 2, 3], [4, 5, 6]]);
    assertEqual(await a.matmul(a.transpose()).tolist(), [[14, 32], [32, 77]]);
    assertEqual(await a.sum(0).tolist(), [5, 7, 9]);
    assertEqual(await a.mean().item(), 3.5);
    assertEqual(await a.mul(2).sub(1).gt(4).cast("i32").tolist(), [[0, 0, 1], [1, 1, 1]]);
    assertEqual(await a.slice([0, 1], [null, null, -1]).tolist(), [[3, 2, 1]]);
    assertEqual(await Tensor.cat([a, a.neg()], 1).slice([], [2, 4]).tolist(), [[3, -1], [6, -4]]);
    assertEqual(await a.pad([[0, 0], [1, 0]]).tolist(), [[0, 1, 2, 3], [0, 4, 5, 6]]);
    assertEqual(await a.argmax().tolist(), [2, 2]);
    const [values, indices] = new Tensor([3, 1, 2]).sort();
    assertEqual([await values.tolist(), Array.from(await indices.data(), Number)], [[1, 2, 3], [1, 2, 0]]);
    assertEqual(await a.ge(3).where(a, 0).tolist(), [[0, 0, 3], [4, 5, 6]]);
    const [left, right] = a.split([1, 2], 1);
    assertEqual([left.shape, right.shape], [[2, 1], [2, 2]]);
    const p = await a.softmax().data();
    assertClose(p.subarray(0, 3), [0.09003057, 0.24472847, 0.66524096], { tolerance: 1e-6 });
    assertClose(await new Tensor([-1, 0, 1]).gelu().data(), [-0.15865525, 0, 0.84134475], { tolerance: 1e-6 });
    assertEqual(Array.from(await Tensor.arange(0, 5).data("i32")), [0, 1, 2, 3, 4]);
    const x = new Tensor(Float32Array.from({ length: 16 }, (_, at) => at), [1, 1, 4, 4]);
    assertEqual(await x.maxPool([2, 2]).tolist(), [[[[5, 7], [13, 15]]]]);
    assertEqual(await x.conv(Tensor.ones([1, 1, 3, 3]), null, { padding: 1 }).slice([], [], [0, 1]).tolist(), [[[[10, 18, 24, 18]]]]);
  });

  test(`frozen weights give the same numbers, and new ones once written to, on ${device}`, async () => {
    await init({ device });
    const [k, n] = [37, 70];
    const w = new Tensor(Float32Array.from({ length: k * n }, (_, at) => (at % 11) - 5), [k, n]).freeze();
    const x = new Tensor(Float32Array.from({ length: k }, (_, at) => (at % 7) - 3), [1, k]);
    const product = (scale) => Array.from({ length: n }, (_, j) => {
      let sum = 0;
      for (let i = 0; i < k; i += 1) sum += ((i % 7) - 3) * (((i * n + j) % 11) - 5) * scale;
      return sum;
    });
    for (let run = 0; run < 2; run += 1) assertEqual(Array.from(await x.matmul(w).data()), product(1));
    await realize([w.assign(w.mul(2))]);
    for (let run = 0; run < 2; run += 1) assertEqual(Array.from(await x.matmul(w).data()), product(2));
  });

  test(`rows are overwritten where an index says on ${device}`, async () => {
    await init({ device });
    const cache = Tensor.zeros([2, 5]);
    await cache.realize();
    cache.assignAt(1, new Tensor(Int32Array.of(3, 0, 9)), new Tensor([[1, 2, 3], [4, 5, 6]]));
    assertEqual(await cache.tolist(), [[2, 0, 0, 1, 0], [5, 0, 0, 4, 0]]);
    // only these: the others hold what was there
    cache.assignAt(-1, new Tensor(Int32Array.of(1)), new Tensor([[7], [8]]));
    assertEqual(await cache.tolist(), [[2, 7, 0, 1, 0], [5, 8, 0, 4, 0]]);
    assertEqual(await cache.sum([1]).tolist(), [10, 17]);
  });

  test(`dtypes go in and come back on ${device}`, async () => {
    await init({ device });
    const cases = [
      ["i64", BigInt64Array.of(-1n, 2n ** 40n)],
      ["i32", Int32Array.of(-7, 2 ** 30)],
      ["u8", Uint8Array.of(0, 255)],
      ["i16", Int16Array.of(-300, 300)],
      ["f32", Float32Array.of(0.1, -1e30)],
    ];
    for (const [dtype, data] of cases) {
      const t = new Tensor(data);
      assertEqual(t.dtype, dtype);
      const back = await t.reshape([1, 2]).flip(1).data(dtype);
      assertEqual([back.constructor.name, back[0], back[1]], [data.constructor.name, data[1], data[0]]);
    }
    const half = new Tensor([0.5, -2, 65504, 2 ** -24], null, { dtype: "f16" });
    assertEqual([...(await half.data("f16"))], [0.5, -2, 65504, 2 ** -24]);
    assertEqual(await half.cast("f32").mul(2).slice([0, 2]).tolist(), [1, -4]);
    assertEqual(await new Tensor([true, false]).logicalNot().tolist(), [0, 1]);
  });

  test(`labels of every integer dtype give one loss on ${device}`, async () => {
    await init({ device });
    const values = Float32Array.from({ length: 12 }, (_, i) => Math.sin(3 * i));
    const logits = new Tensor(values, [3, 4]);
    const row = (i) => [...values.slice(4 * i, 4 * i + 4)];
    const wanted = [2, 0, 3];
    const mean = wanted.reduce((sum, label, i) => sum + Math.log(row(i).reduce((a, b) => a + Math.exp(b), 0)) - row(i)[label], 0) / 3;
    for (const dtype of ["u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64"]) {
      const labels = new Tensor(wanted, null, { dtype });
      const near = (loss, what) => assert(Math.abs(loss - mean) < 1e-5, `${dtype} ${what}: ${loss}, not ${mean}`);
      near(await logits.crossEntropy(labels).item(), "given");
      // computed ones, which are not stored before
      const one = new Tensor([1], null, { dtype });
      near(await logits.crossEntropy(labels.add(one).sub(one)).item(), "computed");
      const found = Tensor.arange(0, 4).cast(dtype).eq(labels.unsqueeze(1)).cast("f32");
      assertEqual(await found.tolist(), wanted.map((label) => [0, 1, 2, 3].map((i) => Number(i === label))), dtype);
      near(await logits.logSoftmax(1).mul(found).sum().mul(-1 / 3).item(), "selected");
    }
  });

  test(`random numbers are the seed's on ${device}`, async () => {
    const on = await init({ device });
    Tensor.manualSeed(7);
    const first = await Tensor.rand([64]).data();
    Tensor.manualSeed(7);
    assertEqual([...(await Tensor.rand([64], { device: on }).data())], [...first]);
    await init({ device: "wasm" });
    Tensor.manualSeed(7);
    assertEqual([...(await Tensor.rand([64]).data())], [...first], "the same on every device");
    assert(new Set(first).size > 60);
  });

  test(`gradients on ${device}`, async () => {
    await init({ device });
    const w = new Tensor([[0.5, -1], [2, 0.25]], null, { requiresGrad: true });
    const x = new Tensor([[1, 2], [3, -1]]);
    const lossOf = (weight) => x.matmul(weight).tanh().square().sum();
    const loss = lossOf(w);
    const [functional] = grad(loss, [w]);
    loss.backward();
    const got = await w.grad.data();
    assertClose(await functional.data(), got, { tolerance: 1e-6 });
    const base = [0.5, -1, 2, 0.25];
    for (let at = 0; at < 4; at += 1) {
      const at1 = await lossOf(new Tensor(base.map((v, i) => v + (i === at ? 1e-2 : 0)), [2, 2])).item();
      const at2 = await lossOf(new Tensor(base.map((v, i) => v - (i === at ? 1e-2 : 0)), [2, 2])).item();
      assertClose([got[at]], [(at1 - at2) / 2e-2], { tolerance: 5e-3, what: `d/dw[${at}]` });
    }
    assertEqual(await codeOf(() => x.sum().backward()), "E_VALUE");
  });

  test(`disposal gives memory back on ${device}`, async () => {
    await init({ device });
    const bytes = async () => (await memory()).find((each) => each.device === device);
    // other tests' garbage may be freed at any time, so only a fall is sure
    let held;
    {
      const big = await Tensor.full([1024, 1024], 1).mul(new Tensor([2])).realize();
      held = await bytes();
      assert(held.bytes >= 4 * 2 ** 20, "the tensor holds memory");
      assertEqual(await big.sum().item(), 2 * 2 ** 20);
      // what `using` calls, which not every browser's own syntax has
      big[Symbol.dispose]();
    }
    const after = await bytes();
    assert(after.bytes <= held.bytes - 3 * 2 ** 20, `${held.bytes} bytes before, ${after.bytes} after`);
    const t = Tensor.ones([2]);
    const kept = t.add(1);
    t.dispose();
    t.dispose();
    assertEqual(await codeOf(() => t.add(1)), "E_STATE");
    assertEqual(await codeOf(() => t.data()), "E_STATE");
    assertEqual(await kept.tolist(), [2, 2]);
    // garbage may be freed between two looks, but not in each of several turns
    let more;
    for (let turn = 0; turn < 5 && more !== 1; turn += 1) {
      const { tensors } = await bytes();
      const out = tidy(() => Tensor.ones([3]).add(1).mul(2));
      more = (await bytes()).tensors - tensors;
      assertEqual(await out.tolist(), [4, 4, 4]);
      out.dispose();
    }
    assertEqual(more, 1);
  });

  test(`a model's errors on ${device}`, async () => {
    const model = await load(MODEL, { device });
    assertEqual(model.inputs.map(({ name, dtype }) => [name, dtype]), [["x", "f32"]]);
    assertEqual(await codeOf(() => model.run({})), "E_INPUT");
    assertEqual(await codeOf(() => model.run({ y: image(), x: image() })), "E_INPUT");
    assertEqual(await codeOf(() => model.run({ x: new Tensor([1, 2]) })), "E_INPUT");
    assertEqual(await codeOf(() => model.run({ x: new Tensor(new Int32Array(2 * 3 * 48 * 192), [2, 3, 48, 192]) })), "E_INPUT");
    const bytes = await fetchBytes(MODEL);
    assertEqual(await codeOf(() => load(bytes.subarray(0, 5000), { device })), "E_FORMAT");
    assertEqual(await codeOf(() => load(new Uint8Array(100).fill(255), { device })), "E_FORMAT");
    model.dispose();
    assertEqual(await codeOf(() => model.run({ x: image() })), "E_STATE");
  });

  test(`an abort ends a load and a run on ${device}, and the next run is right`, async () => {
    const fired = AbortSignal.abort();
    assertEqual((await errorOf(() => load(MODEL, { device, signal: fired }))).name, "AbortError");
    const during = new AbortController();
    const loading = load(MODEL, { device, signal: during.signal, onProgress: ({ phase }) => phase === "download" && during.abort() });
    assertEqual((await errorOf(() => loading)).name, "AbortError");

    const model = await load(MODEL, { device });
    const stop = new AbortController();
    const running = model.run({ x: image() }, { signal: stop.signal });
    stop.abort(new Error("enough"));
    assertEqual((await errorOf(() => running)).message, "enough");
    const [out] = Object.values(await model.run({ x: image() }));
    const p = await out.data();
    assertClose([p[0] + p[1]], [1], { tolerance: 1e-4 });
    const stopped = await errorOf(() => image().add(1).data("f32", { signal: fired }));
    assertEqual(stopped.name, "AbortError");
    model.dispose();
  });

  test(`progress is told in order on ${device}`, async () => {
    const phases = [];
    const seen = ({ phase, loaded, total }) => {
      if (phases.at(-1) !== phase) phases.push(phase);
      assert(loaded <= total || total === 0, `${phase} ${loaded} of ${total}`);
    };
    const model = await load(new Blob([await fetchBytes(MODEL)]), { device, onProgress: seen });
    await model.run({ x: image() }, { onProgress: seen });
    assertEqual(phases.filter((phase) => phase !== "device"), ["download", "parse", "compile", "run"]);
    model.dispose();
  });
}

test("errors of ops are classes with codes", async () => {
  await init({ device: "wasm" });
  const a = Tensor.ones([2, 3]);
  const error = await errorOf(() => a.matmul(Tensor.ones([4, 5])));
  assert(error instanceof ShapeError && error instanceof GradloomError && error instanceof Error);
  assertEqual([error.code, error.name], ["E_SHAPE", "ShapeError"]);
  assertEqual(await codeOf(() => a.sum(5)), "E_AXIS");
  assertEqual(await codeOf(() => a.cast("f13")), "E_DTYPE");
  assertEqual(await codeOf(() => new Tensor([[1, 2], [3]])), "E_SHAPE");
  assertEqual(await codeOf(() => new Tensor([1, 2], [3])), "E_VALUE");
  assertEqual(await codeOf(() => new Tensor([1], [-1])), "E_SHAPE");
  assertEqual(await codeOf(() => a.reshape([7])), "E_VALUE");
  assertEqual(await codeOf(() => a.item()), "E_VALUE");
  assertEqual(await codeOf(() => Tensor.ones([2 ** 31, 2 ** 31, 2 ** 31])), "E_VALUE");
});

test("a load that fails says why", async () => {
  const missing = await errorOf(() => load("data:application/octet-stream,", { device: "wasm" }));
  assertEqual(missing.code, "E_FORMAT");
  const answer = () => Promise.resolve(new Response("no", { status: 404 }));
  const error = await errorOf(() => load("https://example.test/model.onnx", { device: "wasm", fetch: answer }));
  assertEqual(error.code, "E_FETCH");
  assert(error.message.includes("404") && error.message.includes("model.onnx"), error.message);
  assertEqual(await codeOf(() => load(5, { device: "wasm" })), "E_VALUE");
});

test("modules name, save and restore their parameters", async () => {
  await init({ device: "wasm" });
  const make = () => new nn.Sequential(new nn.Linear(4, 3), (x) => x.relu(), new nn.LayerNorm(3), new nn.Dropout(0.5), new nn.Linear(3, 2, { bias: false }));
  const [a, b] = [make(), make()];
  assertEqual(Object.keys(a.stateDict()), ["0.weight", "0.bias", "2.weight", "2.bias", "4.weight"]);
  assertEqual(a.parameters().length, 5);
  const x = Tensor.randn([5, 4]);
  const [ya, yb] = [a, b].map((m) => m.eval().forward(x));
  assert(Math.abs((await ya.sub(yb).abs().sum().item())) > 1e-3, "two networks differ");
  await b.loadStateDict(a.stateDict());
  assertClose(await b.forward(x).data(), await a.forward(x).data(), { tolerance: 1e-6 });
  const dropped = await new nn.Dropout(0.5).forward(Tensor.ones([1000])).data();
  assert(dropped.every((v) => v === 0 || v === 2));
  const zeros = dropped.filter((v) => v === 0).length;
  assert(zeros > 400 && zeros < 600, `${zeros} of 1000 dropped`);
  assertEqual(await codeOf(() => b.loadStateDict({})), "E_VALUE");
});

test("several tensors are computed at once, and steps are optimisers'", async () => {
  await init({ device: "wasm" });
  const [a, b] = [Tensor.ones([2]).add(1), Tensor.ones([2]).add(2)];
  await realize([a, b]);
  assertEqual([await a.tolist(), await b.tolist()], [[2, 2], [3, 3]]);
  assertEqual(await codeOf(() => new optim.SGD([], { learningRate: 1 })), "E_VALUE");
  await note(JSON.stringify((await memory()).map(({ device, bytes, programs }) => ({ device, bytes, programs }))));
});

test("consoles that use formatters show what is known of a tensor", async () => {
  await init({ device: "wasm" });
  const shown = (value) => globalThis.devtoolsFormatters.map(({ header }) => header(value)).find(Boolean);
  assertEqual(shown(new Tensor([[1, 2], [3, 4]])), ["span", {}, "Tensor(f32, [2, 2], host: 1, 2, 3, 4)"]);
  const sum = new Tensor([1, 2]).add(new Tensor([3, 4]));
  assertEqual(shown(sum), ["span", {}, "Tensor(f32, [2], wasm)"]);
  assertEqual(shown({ shape: [2] }), undefined);
});
