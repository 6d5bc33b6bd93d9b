// jax-js: every case under jit, which fuses. Functions consume their arguments; `.ref` keeps them.
let J;

export async function init({ device }) {
  J = await import("/vendor/jax.js");
  const found = await J.init(device);
  if (!found.includes(device)) throw new Error(`no device ${device}`);
  J.defaultDevice(device);
  return { devices: found };
}

function operation({ op, params: p = {} }) {
  const { numpy: np, nn, lax } = J;
  const softmax = (s) => {
    const e = np.exp(s.ref.sub(np.max(s, -1, { keepdims: true })));
    return e.ref.div(np.sum(e, -1, { keepdims: true }));
  };
  switch (op) {
    case "add": return ({ a, b }) => a.add(b);
    case "matmul": return ({ a, b }) => np.matmul(a, b);
    case "conv2d":
      return ({ x, w }) =>
        lax.convGeneralDilated(x, w, [p.stride, p.stride], [[p.pad, p.pad], [p.pad, p.pad]], { featureGroupCount: p.groups });
    case "softmax": return ({ x }) => (nn.softmax ? nn.softmax(x, -1) : softmax(x));
    case "layernorm":
      return ({ x, g, b }) => {
        const centered = x.ref.sub(np.mean(x, -1, { keepdims: true }));
        const variance = np.mean(np.square(centered.ref), -1, { keepdims: true });
        return centered.div(np.sqrt(variance.add(p.eps))).mul(g).add(b);
      };
    case "eltwise":
      return ({ x }) => {
        const gate = np.reciprocal(np.exp(x.ref.neg()).add(1));
        const bump = np.exp(np.square(x.ref).neg()).mul(0.5);
        return np.maximum(x.mul(2).add(1), 0).mul(gate).sub(bump);
      };
    case "reduce": return ({ x }) => np.sum(x, 1);
    case "attention":
      return ({ q, k, v }) => np.matmul(softmax(np.matmul(q, np.swapaxes ? np.swapaxes(k, -1, -2) : k.transpose([0, 1, 3, 2])).mul(p.scale)), v);
    case "mlp_train": {
      const loss = (w, x, t) => {
        const logits = np.matmul(np.maximum(np.matmul(x, w.w1), 0), w.w2);
        return np.mean(np.sum(nn.logSoftmax(logits, -1).mul(t), 1)).neg();
      };
      return ({ x, w1, w2, t }) => {
        const g = J.grad(loss)({ w1: w1.ref, w2: w2.ref }, x, t);
        return { w2: w2.sub(g.w2.mul(p.lr)), w1: w1.sub(g.w1.mul(p.lr)) };
      };
    }
    default: throw new Error(`unsupported: ${op}`);
  }
}

export async function prepare({ spec, inputs }) {
  const x = {};
  for (const [name, t] of Object.entries(inputs)) x[name] = J.numpy.array(t.data).reshape(t.shape);
  const f = J.jit(operation(spec));
  const list = (made) => (made.w2 ? [made.w2, made.w1] : [made]);
  let made = [];
  return {
    run() {
      const args = Object.fromEntries(Object.entries(x).map(([name, t]) => [name, t.ref]));
      made.push(list(f(args)));
    },
    // lazy: a result that is dropped before it is awaited is never computed
    async sync() {
      for (const outs of made) for (const t of outs) await t.blockUntilReady();
      made.slice(0, -1).flat().forEach((t) => t.dispose());
      made = made.slice(-1);
    },
    read: async () => made.at(-1)[0].ref.data(),
    dispose() {
      made.flat().forEach((t) => t.dispose());
      Object.values(x).forEach((t) => t.dispose());
    },
  };
}
