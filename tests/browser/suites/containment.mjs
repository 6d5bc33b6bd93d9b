// What ends a device or the wasm module in a page: the loss of the GPU's device, memory that is refused, threads that die, traps.
// configs: default
import { DeviceError, InternalError, Tensor, init, load as loadModel, loadWeights, nn, optim } from "gradloom";
import { DataLoader } from "gradloom/data";
import { fit, opfsCheckpoint } from "gradloom/fit";
import { allowConsoleErrors, assert, assertClose, assertEqual, deviceKinds, hasWebGpu, note, test, testOnWebGpu } from "harness";
import { settleAll, trapAtClock } from "/lib/wasm_trap.mjs";

const MODEL = "/models/silero_vad_op15/model.onnx";
/** In the page's own thread, whose devices end here. */
const load = (from, options) => loadModel(from, { worker: false, ...options });
const inputs = () => ({
  input: new Tensor(new Float32Array(512).map((_, i) => Math.sin(i / 7)), [1, 512]),
  state: new Tensor(new Float32Array(256), [2, 1, 128]),
  sr: new Tensor(BigInt64Array.of(16000n), []),
});
const lost = (error) => error instanceof DeviceError && error.code === "E_DEVICE_LOST";
const stopped = (error) => error instanceof InternalError && error.code === "E_INTERNAL" && error.message.includes("the wasm module stopped");

async function numbers(model) {
  const { output, stateN } = await model.run(inputs());
  return [...(await output.data()), ...(await stateN.data()).slice(0, 32)];
}

/** The devices that the page has asked for, the latest last. */
const gpus = [];
if (hasWebGpu) {
  const { requestDevice } = GPUAdapter.prototype;
  GPUAdapter.prototype.requestDevice = async function (...args) {
    const device = await requestDevice.apply(this, args);
    gpus.push(device);
    return device;
  };
}

/** Ends the latest device, and waits until whoever uses it knows. */
async function loseGpu() {
  const device = gpus.at(-1);
  device.destroy();
  await device.lost;
  await new Promise((done) => setTimeout(done));
}

/** Calls `then` for the `n`-th call of a method, or also for all after it; returns what ends that, and says if it came to it. */
function atCall(prototype, name, n, then, after = false) {
  const method = prototype[name];
  let left = n;
  prototype[name] = function (...args) {
    left -= 1;
    if (left === 0 || (after && left < 0)) return then.call(this, () => method.apply(this, args));
    return method.apply(this, args);
  };
  return () => {
    prototype[name] = method;
    return left <= 0;
  };
}

let want;

test("what the model gives", async () => {
  await init({ device: "wasm", cache: false });
  want = await numbers(await load(MODEL, { device: "wasm" }));
  assert(want.length === 33 && want.every(Number.isFinite), want.join());
});

testOnWebGpu("a training whose device is lost goes on from where it was saved, with the losses of one that was not interrupted", async () => {
  const [resume, checkpoint] = [opfsCheckpoint("lost training"), opfsCheckpoint("lost weights")];
  await Promise.all([resume.delete(), checkpoint.delete()]);
  const x = Array.from({ length: 20 }, (_, i) => [Math.sin(i), i / 20]);
  /** Trains with everything as in the beginning; the device is lost in a step. */
  const train = async (places, lostAt) => {
    const device = await init({ device: "webgpu" });
    Tensor.manualSeed(5);
    const net = new nn.Sequential(new nn.Linear(2, 8), new nn.Dropout(0.25), (h) => h.tanh(), new nn.Linear(8, 1));
    const optimizer = new optim.Adam(net.parameters(), { learningRate: 0.05 });
    const losses = [];
    const loss = ({ x, y }) => net.forward(x).mseLoss(y);
    const onStep = async (step) => {
      losses.push(step.loss);
      if (step.step === lostAt) await loseGpu();
    };
    const loader = new DataLoader({ x, y: x.map(([a, b]) => [a * b]) }, { batchSize: 4, shuffle: 2 });
    const ended = await fit(net, loader, { optimizer, loss, epochs: 3, onStep, ...places }).catch((error) => error);
    return { ended, losses, net, device };
  };
  const whole = await train({});
  assertEqual([whole.ended.ended, whole.losses.length], ["epochs", 15]);
  const trained = await whole.net.layers[0].weight.tolist();
  const broken = await train({ resume, checkpoint, saveEvery: 2 }, 9);
  assert(lost(broken.ended), broken.ended);
  // the weights alone are there too
  const device = await init({ device: "webgpu" });
  const rebuilt = new nn.Sequential(new nn.Linear(2, 8), new nn.Dropout(0.25), (h) => h.tanh(), new nn.Linear(8, 1));
  await rebuilt.loadStateDict(await loadWeights(await checkpoint.load(), { device }));
  assert((await rebuilt.forward(new Tensor(x)).data()).every(Number.isFinite));
  const rest = await train({ resume, checkpoint, saveEvery: 2 });
  assert(rest.device !== broken.device && rest.ended.ended === "epochs", rest.ended);
  // after step 8 it was saved last, and step 9 was done before the loss
  assertEqual(broken.losses, whole.losses.slice(0, 9));
  assertEqual(rest.losses, whole.losses.slice(8));
  assertEqual(await rest.net.layers[0].weight.tolist(), trained);
});

testOnWebGpu("a device that is lost between runs: the model goes on with another, tensors say so", async () => {
  await init({ device: "webgpu" });
  const model = await load(MODEL, { device: "webgpu" });
  assertClose(await numbers(model), want, { tolerance: 1e-3 });
  const t = await new Tensor([1, 2]).add(1).realize();
  const device = gpus.at(-1);
  device.destroy();
  await device.lost;
  const before = model.device;
  const [data, sum] = await settleAll([t.data(), t.add(1).data()]);
  assert(lost(data.reason), data.reason);
  assert(lost(sum.reason), sum.reason);
  assertClose(await numbers(model), want, { tolerance: 1e-3 });
  assert(model.device !== before && model.device.kind === "webgpu");
  const again = await init({ device: "webgpu" });
  assert(again === model.device, "there is one device in its place");
  assertEqual(await new Tensor([1, 2]).add(1).tolist(), [2, 3]);
  const [old] = await settleAll([t.data()]);
  assert(lost(old.reason));
});

testOnWebGpu("a model on `auto` goes on with wasm where the GPU does not come back, others say so", async () => {
  await init({ device: "webgpu" });
  await loseGpu();
  // `auto` does not take a GPU that is known to be emulated
  await init({ device: "webgpu", asHardware: true });
  const [model, fixed] = [await load(MODEL), await load(MODEL, { device: "webgpu" })];
  assertEqual([model.device.kind, fixed.device.kind], ["webgpu", "webgpu"]);
  assertClose(await numbers(model), want, { tolerance: 1e-3 });
  const { requestAdapter } = GPU.prototype;
  GPU.prototype.requestAdapter = async () => null;
  try {
    await loseGpu();
    assertClose(await numbers(model), want, { tolerance: 1e-3 });
    assertEqual(model.device.kind, "wasm");
    const [none] = await settleAll([numbers(fixed)]);
    assertEqual(none.reason?.code, "E_DEVICE");
    assertEqual(await new Tensor([1, 2]).add(1).tolist(), [2, 3]);
  } finally {
    GPU.prototype.requestAdapter = requestAdapter;
  }
  // the one that asked for WebGPU takes it as soon as it is there again
  assertClose(await numbers(fixed), want, { tolerance: 1e-3 });
  assertEqual([model.device.kind, fixed.device.kind], ["wasm", "webgpu"]);
  await loseGpu();
  await init({ device: "webgpu", asHardware: false });
});

testOnWebGpu("a device that is lost at any point of loading and running", async () => {
  const points = [
    [GPUDevice, "createShaderModule", [1, 5]],
    [GPUDevice, "createComputePipelineAsync", [1, 4]],
    [GPUDevice, "createBuffer", [1, 4, 20]],
    [GPUQueue, "writeBuffer", [1, 6]],
    [GPUQueue, "submit", [1, 2, 3]],
    [GPUBuffer, "mapAsync", [1]],
    [GPUDevice, "createBindGroup", [2]],
  ];
  let reached = 0;
  for (const [{ prototype }, name, counts] of points) {
    for (const n of counts) {
      const end = atCall(prototype, name, n, function (call) {
        gpus.at(-1).destroy();
        return call();
      });
      const work = async () => {
        const model = await load(MODEL, { device: "webgpu" });
        return [await numbers(model), model];
      };
      const [first] = await settleAll([work()]);
      const came = end();
      reached += came ? 1 : 0;
      if (first.status === "rejected") assert(came && lost(first.reason), `${name} ${n}: ${first.reason?.stack}`);
      else assertClose(first.value[0], want, { tolerance: 1e-3 });
      assertClose((await work())[0], want, { tolerance: 1e-3, what: `after ${name} ${n}` });
    }
  }
  await note(`${reached} points`);
  assert(reached >= 6, `${reached} points`);
});

testOnWebGpu("a GPU that is gone while a device is opened is asked once more", async () => {
  await init({ device: "webgpu" });
  const model = await load(MODEL, { device: "webgpu" });
  await loseGpu();
  for (const times of [1, 2]) {
    let refused = 0;
    const end = atCall(GPUAdapter.prototype, "requestDevice", 1, function (call) {
      refused += 1;
      return refused > times ? call() : Promise.reject(new DOMException("gone", "OperationError"));
    }, true);
    const [result] = await settleAll([numbers(model)]);
    assert(end());
    if (times === 1) assertClose(result.value, want, { tolerance: 1e-3 });
    else assert(result.reason instanceof DeviceError && refused === 2, `${refused} ${result.reason?.stack}`);
    await loseGpu();
  }
  assertClose(await numbers(model), want, { tolerance: 1e-3 });
});

testOnWebGpu("a run whose device is lost under it is made once more, on another one, and the device tells", async () => {
  const { prototype } = GPUDevice;
  for (const [name, n] of [["createComputePipelineAsync", 1], ["createComputePipelineAsync", 3], ["createShaderModule", 2]]) {
    await init({ device: "webgpu" });
    // one that has compiled nothing
    await loseGpu();
    const model = await load(MODEL, { device: "webgpu" });
    const { device } = model;
    const end = atCall(prototype, name, n, function (call) {
      gpus.at(-1).destroy();
      return call();
    });
    const phases = [];
    const { output, stateN } = await model.run(inputs(), { onProgress: ({ phase }) => phases.push(phase) });
    assertClose([...(await output.data()), ...(await stateN.data()).slice(0, 32)], want, { tolerance: 1e-3, what: `${name} ${n}` });
    assert(end() && phases.includes("device"), `${name} ${n}: ${phases}`);
    assertEqual((await device.lost).reason, "destroyed");
    assert(model.device !== device && model.device.kind === "webgpu");
    model.dispose();
  }
});

testOnWebGpu("a device that is lost in the middle of two runs: both end, and the same model runs again", async () => {
  const model = await load(MODEL, { device: "webgpu" });
  assertClose(await numbers(model), want, { tolerance: 1e-3 });
  for (const n of [1, 2]) {
    const end = atCall(GPUQueue.prototype, "submit", n, function (call) {
      const done = call();
      gpus.at(-1).destroy();
      return done;
    });
    const results = await settleAll([numbers(model), numbers(model)]);
    assert(end());
    // A run that hears of it before it has given its outputs is made once more; outputs on the device are gone with it.
    for (const { reason, value } of results) {
      if (reason) assert(lost(reason), reason.stack);
      else assertClose(value, want, { tolerance: 1e-3, what: `a run made once more, ${n}` });
    }
    assertClose(await numbers(model), want, { tolerance: 1e-3 });
  }
});

test("buffers and memory that are refused at any time are errors, and the next run is right", async () => {
  let refused = 0;
  const ways = { webgpu: [globalThis.GPUDevice?.prototype, "createBuffer"], wasm: [WebAssembly.Memory.prototype, "grow"] };
  for (const device of deviceKinds) {
    const [prototype, name] = ways[device];
    for (const [n, after] of [[1, false], [2, true], [4, true], [9, false]]) {
      const apart = await init({ device, isolated: true });
      const model = await load(MODEL, { device: apart });
      const end = atCall(prototype, name, n, () => {
        throw new RangeError("no memory");
      }, after);
      const [result] = await settleAll([numbers(model)]);
      if (end() && result.status === "rejected") {
        refused += 1;
        assertEqual(result.reason.code, "E_OUT_OF_MEMORY", `${name} ${n}: ${result.reason.stack}`);
      }
      assertClose(await numbers(model), want, { tolerance: 1e-3, what: `after ${name} ${n}` });
      apart.dispose();
    }
  }
  await note(`${refused} refused`);
  assert(refused > deviceKinds.length, `${refused} refused`);
});

testOnWebGpu("a trap in the middle of runs on the GPU ends all that waits; the GPU's device goes with it", async () => {
  for (const n of [1, 4, 9]) {
    await init({ device: "webgpu" });
    const model = await load(MODEL, { device: "webgpu" });
    const t = new Tensor([1, 2]).add(1);
    const gpu = gpus.at(-1);
    const end = trapAtClock(n);
    const results = await settleAll([numbers(model), t.data(), numbers(model)]);
    assert(end());
    assert(results.some(({ reason }) => reason));
    for (const { status, reason } of results) assert(status === "fulfilled" || stopped(reason), reason?.stack);
    const [later] = await settleAll([model.run(inputs())]);
    assert(stopped(later.reason));
    assertEqual((await gpu.lost).reason, "destroyed");
    await init({ device: "webgpu" });
    assertClose(await numbers(await load(MODEL, { device: "webgpu" })), want, { tolerance: 1e-3 });
  }
});

test("threads that die between runs are done without", async () => {
  const { Worker: Plain } = globalThis;
  const workers = [];
  globalThis.Worker = class extends Plain {
    constructor(...args) {
      super(...args);
      workers.push(this);
    }
  };
  const apart = await init({ device: "wasm", threads: 4, isolated: true }).finally(() => (globalThis.Worker = Plain));
  assertEqual(workers.length, apart.threads - 1);
  const model = await load(MODEL, { device: apart });
  const before = await numbers(model);
  assertClose(before, want, { tolerance: 1e-4 });
  for (const worker of workers) {
    worker.terminate();
    assertClose(await numbers(model), want, { tolerance: 1e-4 });
  }
  apart.dispose();
});

test("a worker whose script fails is started in another way, or done without", async () => {
  await allowConsoleErrors(/no thread/);
  const { Worker: Plain } = globalThis;
  // the first of two workers, and whether what is tried in its place fails as well
  for (const [both, made, threads] of [[false, 3, 3], [true, 3, 2]]) {
    let tries = 0;
    globalThis.Worker = class extends Plain {
      constructor(url, options) {
        tries += 1;
        const fails = tries === 1 || (both && tries === 3);
        super(fails ? URL.createObjectURL(new Blob(["throw new Error('no thread')"], { type: "text/javascript" })) : url, options);
        if (fails) this.addEventListener("error", (event) => event.preventDefault());
      }
    };
    const apart = await init({ device: "wasm", threads: 3, isolated: true }).finally(() => (globalThis.Worker = Plain));
    assertEqual([tries, apart.threads], [made, threads]);
    assertEqual(await new Tensor([1, 2], null, { device: apart }).add(1).tolist(), [2, 3]);
    apart.dispose();
  }
});

test("a package in a worker of the page's lives on too", async () => {
  const source = `
    import { Tensor, init } from "${location.origin}/gradloom/index.js";
    import { settleAll, trapAtClock } from "${location.origin}/lib/wasm_trap.mjs";
    self.addEventListener("unhandledrejection", ({ reason }) => postMessage("unhandled: " + reason));
    await init({ device: "wasm", threads: 1, cache: false });
    const end = trapAtClock(2);
    const calls = [() => new Tensor([1, 2]).add(1).data(), () => new Tensor([3]).add(1).data()];
    const [a, b] = await settleAll(calls.map(async (call) => call()));
    end();
    await init({ device: "wasm", threads: 1 });
    postMessage([a.reason?.code, b.reason?.code, await new Tensor([1, 2]).add(1).tolist()]);`;
  const worker = new Worker(URL.createObjectURL(new Blob([source], { type: "text/javascript" })), { type: "module" });
  const answer = await new Promise((done, fail) => {
    worker.onmessage = ({ data }) => done(data);
    worker.onerror = ({ message }) => fail(new Error(message));
  });
  worker.terminate();
  assertEqual(answer, ["E_INTERNAL", "E_INTERNAL", [2, 3]]);
});
