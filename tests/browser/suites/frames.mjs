// A page keeps drawing while the GPU, which it draws with, works on something long: work is handed over in portions, sized by how long
// earlier ones took. Frames are counted against portions, not against time.
// alone: the processor that emulates a GPU draws the frames too
import { Tensor, init, load, memory, tidy } from "gradloom";
import { assert, fetchBytes, note, testOnWebGpu } from "harness";

/** Counts frames while `work` runs, and how often something else happened between two of them; `happened()` is called for that. */
async function drawn(work) {
  const seen = { frames: 0, events: 0, most: 0 };
  let since = 0;
  let id = requestAnimationFrame(function draw() {
    seen.frames += 1;
    since = 0;
    id = requestAnimationFrame(draw);
  });
  const happened = () => {
    seen.events += 1;
    seen.most = Math.max(seen.most, (since += 1));
  };
  try {
    await work(happened);
  } finally {
    cancelAnimationFrame(id);
  }
  return seen;
}

/** A chain of products, each of some tens of millions of operations. */
function chain(kernels, size = 256) {
  const w = new Tensor(new Float32Array(size * size).fill(1 / size), [size, size]);
  let y = new Tensor(new Float32Array(size * size).fill(2), [size, size]);
  for (let i = 0; i < kernels; i += 1) y = y.matmul(w).relu();
  return y;
}

testOnWebGpu("frames come between the portions of a long run", async () => {
  await init({ device: "webgpu" });
  await tidy(() => chain(300)).realize();
  const { submit } = GPUQueue.prototype;
  const y = tidy(() => chain(300));
  const seen = await drawn(async (happened) => {
    GPUQueue.prototype.submit = function (...args) {
      submit.apply(this, args);
      happened();
    };
    try {
      await y.realize();
      await y.data();
    } finally {
      GPUQueue.prototype.submit = submit;
    }
  });
  await note(`${seen.frames} frames, ${seen.events} portions, at most ${seen.most} between two frames`);
  assert(seen.events >= 20, `${seen.events} portions`);
  assert(seen.frames * 4 >= seen.events && seen.most <= 16, `${seen.frames} frames, ${seen.most} portions without one`);
  assert((await y.data()).every((v) => Math.abs(v - 2) < 1e-3));
  y.dispose();
});

testOnWebGpu("frames come while a model runs in the worker", async () => {
  const model = await load(await fetchBytes("/models/ppocrv4_det/model.onnx"), { device: "webgpu" });
  const x = new Tensor(new Float32Array(3 * 320 * 320), [1, 3, 320, 320]);
  await model.run({ x });
  const before = (await memory()).find(({ worker }) => worker);
  const seen = await drawn(async () => {
    const [out] = Object.values(await model.run({ x }));
    assert((await out.data()).length === 320 * 320);
  });
  const { launches } = (await memory()).find(({ worker }) => worker);
  await note(`${seen.frames} frames, ${launches - before.launches} launches`);
  assert(seen.frames * 8 >= launches - before.launches, `${seen.frames} frames beside ${launches - before.launches} launches`);
  model.dispose();
});
