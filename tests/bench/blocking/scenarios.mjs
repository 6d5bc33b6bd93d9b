// What a page does while its tasks are measured: each gives a function to measure, after what may come before.
const source = (width, height) => {
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d");
  context.fillStyle = "#fff";
  context.fillRect(0, 0, width, height);
  context.fillStyle = "#000";
  context.font = `${height / 12}px sans-serif`;
  for (let line = 1; line < 8; line += 1) context.fillText(`line ${line} of a page`, width / 16, (line * height) / 9);
  return canvas;
};

const MODEL = "/models/ppocrv4_det/model.onnx";

/** Pictures of 640 by 640 through a detector of text: its load and first run, and then more runs. */
async function detector({ load, Tensor, init }, { device, ...options }) {
  const x = new Float32Array(3 * 640 * 640).fill(0.5);
  let model;
  const run = async () => {
    const input = new Tensor(x, [1, 3, 640, 640]);
    const out = await model.run({ x: input });
    await out["sigmoid_0.tmp_0"].data();
    input.dispose();
    out["sigmoid_0.tmp_0"].dispose();
  };
  return {
    "load and first run": async () => {
      model = await load(MODEL, { device, ...options });
      await run();
    },
    "5 runs": async () => {
      for (let i = 0; i < 5; i += 1) await run();
    },
  };
}

/** The same as a task, from a canvas: with the picture's way to a tensor, and the boxes. */
async function task(_, { device, worker }) {
  const { detectText, open } = await import("/gradloom/tasks.js");
  const canvas = source(1600, 1200);
  const options = { device, ...(worker !== undefined && { worker }) };
  const model = "/models/ppocrv4_det/recipe.json";
  return {
    "first detectText": () => detectText(canvas, { model, ...options }),
    "3 more": async () => {
      for (let i = 0; i < 3; i += 1) await detectText(canvas, { model, ...options });
    },
  };
}

/** A network of convolutions learns digits. */
async function training({ Tensor, init, nn, optim }, { device }) {
  await init({ device });
  const { fit } = await import("/gradloom/fit.js");
  const parts = { a: new nn.Conv2d(1, 16, 3, { padding: 1 }), b: new nn.Conv2d(16, 32, 3, { padding: 1 }), c: new nn.Linear(32 * 49, 10) };
  const net = new (class extends nn.Module {
    constructor() {
      super();
      Object.assign(this, parts);
    }
    forward(x) {
      const half = (layer, y) => layer.forward(y).relu().maxPool([2, 2]);
      return this.c.forward(half(this.b, half(this.a, x)).flatten(1));
    }
  })();
  const batch = () => ({
    x: new Tensor(Float32Array.from({ length: 64 * 784 }, Math.random), [64, 1, 28, 28]),
    y: new Tensor(Int32Array.from({ length: 64 }, (_, i) => i % 10)),
  });
  const batches = Array.from({ length: 10 }, batch);
  const train = () => fit(net, batches, { optimizer: new optim.Adam(net.parameters()), loss: ({ x, y }) => net.forward(x).crossEntropy(y) });
  return { "10 steps of fit": train, "10 more": train };
}

/** A language model writes verses: its load with the first tokens, and then more of them. */
async function language(_, { device, worker }) {
  const { LLM } = await import("/gradloom/llm.js");
  const options = { device, context: 512, ...(worker !== undefined && { worker }) };
  let llm;
  const write = async (prompt, maxTokens) => {
    let count = 0;
    for await (const _ of llm.tokens(prompt, { maxTokens, ignoreEnd: true })) count += 1;
    if (count !== maxTokens) throw new Error(`the model wrote ${count} tokens`);
  };
  return {
    "load, 8 tokens": async () => {
      llm = await LLM.load("/models/verses/verses-q8_0.gguf", options);
      await write("In the beginning God created", 8);
    },
    "64 more": () => write("And God said unto Noah, ".repeat(8), 64),
  };
}

export const scenarios = { detector, task, training, language };

/** The longest that a timer of 4 ms had to wait, and what the browser itself noted of long frames and slow events, in milliseconds. */
export async function measureBlocking(body) {
  const seen = { gap: 0, frames: [], events: [] };
  const observe = (type, into, more = {}) => {
    const observer = new PerformanceObserver((list) => into.push(...list.getEntries().map(({ duration }) => duration)));
    observer.observe({ type, ...more });
    return observer;
  };
  const observers = [observe("long-animation-frame", seen.frames), observe("event", seen.events, { durationThreshold: 16 })];
  let last = performance.now();
  const timer = setInterval(() => {
    const now = performance.now();
    seen.gap = Math.max(seen.gap, now - last);
    last = now;
  }, 4);
  // what asked for this, a message of the browser's driver, is a task of its own
  await new Promise((done) => setTimeout(done, 20));
  const start = performance.now();
  await body();
  seen.ms = performance.now() - start;
  clearInterval(timer);
  // entries come after the frame
  await new Promise((done) => setTimeout(done, 200));
  observers.forEach((each) => each.disconnect());
  return seen;
}
