// onnxruntime-web: every case is a model.
let ort;
let provider;

/** `opts.folder` is where its files are; Node takes its address. */
export async function init({ device, threads = 1, folder = "/peers/onnxruntime-web/dist/" }) {
  ort = await import(`${folder}${device === "webgpu" ? "ort.webgpu.bundle.min.mjs" : "ort.wasm.bundle.min.mjs"}`);
  ort.env.wasm.numThreads = threads;
  ort.env.wasm.wasmPaths = folder;
  provider = device;
  return { version: ort.env.versions?.web };
}

export async function prepare({ spec, inputs, onnx }) {
  if (!onnx) throw new Error("unsupported: it does not train");
  const gpu = provider === "webgpu";
  const session = await ort.InferenceSession.create(onnx, { executionProviders: [provider],
    ...(gpu ? { preferredOutputLocation: "gpu-buffer" } : {}) });
  const feeds = {};
  for (const name of session.inputNames) {
    const t = inputs[name];
    feeds[name] = new ort.Tensor(t.dtype, t.data, t.shape);
  }
  const output = spec.params?.output ?? session.outputNames[0];
  let last = null;
  return {
    async run() {
      last?.dispose?.();
      last = (await session.run(feeds))[output];
    },
    // work on the GPU is done when a result is back; there is no other fence
    async sync() {
      if (gpu) await last.getData();
    },
    read: async () => (gpu ? last.getData() : last.data),
    async dispose() {
      last?.dispose?.();
      await session.release();
    },
  };
}
