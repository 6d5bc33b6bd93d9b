// What the page and its GPU have to do at a time: little, so that a page is drawn beside long work, and an abort leaves little behind.
// alone: it measures how long that takes
import { Tensor, init, memory, nn, optim, realize, tidy } from "gradloom";
import { assert, assertEqual, note, test, testOnWebGpu } from "harness";

const KERNELS = 60;

/** A chain of products: each is some tens of millions of operations. */
function chain(size = 256) {
  const w = new Tensor(new Float32Array(size * size).fill(1 / size), [size, size]);
  let y = new Tensor(new Float32Array(size * size).fill(2), [size, size]);
  for (let i = 0; i < KERNELS; i += 1) y = y.matmul(w).relu();
  return y;
}

/** Counts what `work` hands to the GPU and how much of it was under way at once; `submitted(n)` is called after the n-th time. */
async function watched(work, submitted = () => {}) {
  const { submit, onSubmittedWorkDone } = GPUQueue.prototype;
  const seen = { submits: 0, most: 0 };
  let under = 0;
  GPUQueue.prototype.submit = function (...args) {
    submit.apply(this, args);
    seen.submits += 1;
    submitted(seen.submits);
  };
  GPUQueue.prototype.onSubmittedWorkDone = function () {
    under += 1;
    seen.most = Math.max(seen.most, under);
    return onSubmittedWorkDone.apply(this).finally(() => (under -= 1));
  };
  try {
    await work();
  } finally {
    Object.assign(GPUQueue.prototype, { submit, onSubmittedWorkDone });
  }
  return seen;
}

testOnWebGpu("a long run is handed over in portions, of which few are under way", async () => {
  await init({ device: "webgpu" });
  const y = tidy(() => chain());
  const { submits, most } = await watched(() => y.realize());
  await note(`${submits} portions, ${most} under way at most`);
  assert(submits >= 4, `${submits} portions`);
  assert(most <= 2, `${most} under way`);
  assert((await y.data()).every((v) => Math.abs(v - 2) < 1e-3));
  y.dispose();
});

testOnWebGpu("an abort in the middle of a run leaves little to be done", async () => {
  await init({ device: "webgpu" });
  const launches = async () => (await memory()).find(({ device }) => device === "webgpu").launches;
  const controller = new AbortController();
  const reason = new Error("enough");
  const y = tidy(() => chain());
  const before = await launches();
  let error;
  const { submits } = await watched(
    async () => {
      error = await y.realize({ signal: controller.signal }).catch((thrown) => thrown);
      // waits until nothing of it is under way
      await memory();
    },
    (n) => n === 2 && controller.abort(reason),
  );
  assert(error === reason, String(error));
  const done = (await launches()) - before;
  await note(`${done} of ${KERNELS} kernels were launched, in ${submits} portions`);
  assert(submits <= 5, `${submits} portions`);
  assert(done < KERNELS / 2, `${done} kernels`);
  y.dispose();
});

test("a program that waits for one short result after the other leaves the page its turns", async () => {
  await init({ device: "wasm" });
  const layer = new nn.Linear(8, 8);
  const optimizer = new optim.SGD(layer.parameters(), { learningRate: 1e-3 });
  const x = new Tensor(new Float32Array(64).fill(0.5), [8, 8]);
  const works = {
    "reading": () => x.mul(2).sum().item(),
    "training": () => optimizer.minimize(() => layer.forward(x).square().mean()),
  };
  for (const [name, step] of Object.entries(works)) {
    await step();
    let [turns, steps] = [0, 0];
    const timer = setInterval(() => (turns += 1), 4);
    for (const start = performance.now(); performance.now() - start < 600; steps += 1) await step();
    clearInterval(timer);
    await note(`${name}: ${turns} turns in ${steps} steps`);
    assert(turns >= 6 && steps > turns, `${name}: the page had ${turns} turns in ${steps} steps`);
  }
});

testOnWebGpu("kernels are given to the GPU one by one, while others are made", async () => {
  await init({ device: "webgpu" });
  const own = GPUDevice.prototype.createComputePipelineAsync;
  const { port1, port2 } = new MessageChannel();
  const turns = [];
  let [turn, over] = [0, false];
  port1.onmessage = () => {
    turn += 1;
    if (!over) port2.postMessage(0);
  };
  port2.postMessage(0);
  GPUDevice.prototype.createComputePipelineAsync = function (descriptor) {
    turns.push(turn);
    return own.call(this, descriptor);
  };
  try {
    const products = Array.from({ length: 40 }, (_, i) => Tensor.full([i + 3, 17], 2).matmul(Tensor.full([17, 2 * i + 5], i)));
    await realize(products);
    for (const [i, t] of products.entries()) assertEqual((await t.data())[0], 34 * i);
  } finally {
    GPUDevice.prototype.createComputePipelineAsync = own;
    over = true;
    port1.close();
  }
  const most = Math.max(...turns.map((one) => turns.filter((other) => other === one).length));
  assert(turns.length >= 20 && most <= turns.length / 2, `${turns.length} kernels in the turns ${[...new Set(turns)]}, ${most} at once`);
});
