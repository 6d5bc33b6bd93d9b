// gradloom through its public package: lazy tensors for the operations, `load` for models.
let G;
let device;

/** `opts.device` is "webgpu" or "wasm", `opts.threads` counts for wasm, `opts.module` is the package's URL. */
export async function init(opts) {
  G = await import(opts.module ?? "/gradloom/index.js");
  device = await G.init({ device: opts.device, threads: opts.threads });
  return { device: device.kind, threads: device.threads, software: device.software, relaxedSimd: device.relaxedSimd };
}

/** Milliseconds so far of planning, of the device compiling, of running. */
export async function phases() {
  const { planMs, deviceMs, runMs } = (await G.stats())[0];
  return { planMs, deviceMs, runMs };
}

/** Launches so far. */
export const launches = async () => (await G.memory())[0].launches;

/** Tunes what ran so far, for so many milliseconds of work. */
export const tune = (ms) => device.tune({ ms });

/** The operation of a case on its inputs by name. */
function operation({ op, params: p = {} }, x) {
  switch (op) {
    case "add": return () => x.a.add(x.b);
    case "matmul": return () => x.a.matmul(x.b);
    case "conv2d": return () => x.x.conv(x.w, null, { padding: p.pad, stride: p.stride, groups: p.groups });
    case "softmax": return () => x.x.softmax(-1);
    case "layernorm": return () => x.x.layerNorm(1, x.g, x.b, p.eps);
    case "eltwise": return () => x.x.mul(2).add(1).relu().mul(x.x.sigmoid()).sub(x.x.square().neg().exp().mul(0.5));
    case "reduce": return () => x.x.sum(1);
    case "attention": return () => x.q.attention(x.k, x.v);
    case "mlp_train":
      return () => {
        const loss = x.x.matmul(x.w1).relu().matmul(x.w2).logSoftmax(-1).mul(x.t).sum(1).mean().neg();
        const [g1, g2] = G.grad(loss, [x.w1, x.w2]);
        return [x.w2.sub(g2.mul(p.lr)), x.w1.sub(g1.mul(p.lr)), loss];
      };
    default: throw new Error(`unsupported: ${op}`);
  }
}

/** Waits for the device: by one element of a result, which is computed after everything before it. One thread does all at once. */
async function wait(t) {
  if (device.kind === "wasm" && device.threads === 1) return;
  const one = G.tidy(() => t.flatten().narrow(0, 0, 1).add(0));
  await one.data();
  one.dispose();
}

export async function prepare({ spec, inputs, onnx }) {
  const tensor = (t) => new G.Tensor(t.data, t.shape, { device });
  if (spec.op === "onnx") return prepareModel(spec, inputs, onnx);
  const x = Object.fromEntries(Object.entries(inputs).map(([name, t]) => [name, tensor(t)]));
  await G.realize(Object.values(x));
  // what a library that loads the case's model takes for its weights; a training step writes to its own
  if (spec.op !== "mlp_train") spec.const.forEach((name) => x[name].freeze());
  const compute = operation(spec, x);
  let last = [];
  const drop = () => last.forEach((t) => t.dispose());
  return {
    async run() {
      drop();
      last = [G.tidy(compute)].flat();
      await G.realize(last);
    },
    sync: () => wait(last[0]),
    read: async () => last[0].data(),
    dispose() {
      drop();
      Object.values(x).forEach((t) => t.dispose());
    },
  };
}

async function prepareModel(spec, inputs, onnx) {
  const model = await G.load(onnx, { device });
  const feeds = Object.fromEntries(Object.entries(inputs).map(([name, t]) => [name, new G.Tensor(t.data, t.shape)]));
  let last = {};
  const drop = () => Object.values(last).forEach((t) => t.dispose());
  const output = () => last[spec.params.output] ?? Object.values(last)[0];
  return {
    async run() {
      drop();
      last = await model.run(feeds);
    },
    sync: () => wait(output()),
    read: async () => output().data(),
    dispose() {
      drop();
      model.dispose?.();
    },
  };
}
