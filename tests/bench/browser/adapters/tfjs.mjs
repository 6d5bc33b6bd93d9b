// TensorFlow.js, its wasm or WebGPU backend. Images are NHWC there.
let tf;
let gpu;

export async function init({ device, threads = 1 }) {
  gpu = device === "webgpu";
  tf = await import(`/vendor/tfjs-${device}.js`);
  if (!gpu) {
    tf.setWasmPaths("/peers/@tensorflow/tfjs-backend-wasm/dist/");
    tf.setThreadsCount(threads);
  }
  await tf.setBackend(device);
  await tf.ready();
  return { version: tf.version_core };
}

/** NCHW to NHWC, OIHW to HWIO (HWOI for depthwise weights), and back, on the host. */
function permuted({ data, shape }, axes) {
  const to = axes.map((axis) => shape[axis]);
  const strides = shape.map((_, axis) => shape.slice(axis + 1).reduce((a, b) => a * b, 1));
  const out = new Float32Array(data.length);
  const at = [0, 0, 0, 0];
  for (let i = 0; i < out.length; i += 1) {
    out[i] = data[at.reduce((sum, n, d) => sum + n * strides[axes[d]], 0)];
    for (let d = 3; d >= 0 && (at[d] += 1) === to[d]; d -= 1) at[d] = 0;
  }
  return { data: out, shape: to };
}

function operation({ op, params: p = {} }, x) {
  const pad = p.pad ? "same" : "valid";
  switch (op) {
    case "add": return () => tf.add(x.a, x.b);
    case "matmul": return () => tf.matMul(x.a, x.b);
    case "conv2d": return () => (p.groups > 1 ? tf.depthwiseConv2d(x.x, x.w, p.stride, pad) : tf.conv2d(x.x, x.w, p.stride, pad));
    case "softmax": return () => tf.softmax(x.x, -1);
    case "layernorm":
      return () => {
        const { mean, variance } = tf.moments(x.x, -1, true);
        return x.x.sub(mean).mul(variance.add(p.eps).rsqrt()).mul(x.g).add(x.b);
      };
    case "eltwise": return () => x.x.mul(2).add(1).relu().mul(x.x.sigmoid()).sub(x.x.square().neg().exp().mul(0.5));
    case "reduce": return () => tf.sum(x.x, 1);
    case "attention": return () => tf.matMul(tf.softmax(tf.matMul(x.q, x.k, false, true).mul(p.scale), -1), x.v);
    case "mlp_train": {
      const gradients = tf.grads((w1, w2) => tf.losses.softmaxCrossEntropy(x.t, tf.matMul(tf.relu(tf.matMul(x.x, w1)), w2)));
      return () => {
        const [g1, g2] = gradients([x.w1, x.w2]);
        return [x.w2.sub(g2.mul(p.lr)), x.w1.sub(g1.mul(p.lr))];
      };
    }
    default: throw new Error(`unsupported: ${op}`);
  }
}

export async function prepare({ spec, inputs }) {
  const image = spec.op === "conv2d";
  const x = {};
  for (const [name, t] of Object.entries(inputs)) {
    const depthwise = spec.params?.groups > 1;
    const { data, shape } = !image ? t : permuted(t, name === "x" ? [0, 2, 3, 1] : depthwise ? [2, 3, 0, 1] : [2, 3, 1, 0]);
    x[name] = tf.tensor(data, shape, t.dtype);
  }
  const compute = operation(spec, x);
  let last = [];
  const drop = () => last.forEach((t) => t.dispose());
  return {
    run() {
      drop();
      last = [tf.tidy(compute)].flat();
    },
    async sync() {
      if (!gpu) return;
      const one = tf.tidy(() => last[0].reshape([-1]).slice([0], [1]));
      await one.data();
      one.dispose();
    },
    async read() {
      const data = await last[0].data();
      return image ? permuted({ data, shape: last[0].shape }, [0, 3, 1, 2]).data : data;
    },
    dispose() {
      drop();
      Object.values(x).forEach((t) => t.dispose());
    },
  };
}
