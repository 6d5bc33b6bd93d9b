// The worker: everything that computes. It uses only what the packed npm package exports. What it is asked and what it
// answers is in protocol.ts.
import { type Device, type DeviceKind, type Model, Tensor, devices, init, load, nn, optim, stats, tidy } from "gradloom";
import { type Opened, fileType, open, removeBackground, upscale } from "gradloom/tasks";
import type { Answer, Ask, Output, Timing } from "./protocol";

const scope = globalThis as unknown as {
  onmessage: ((event: { data: { id: number; ask: Ask } | { stop: number } }) => void) | null;
  postMessage: (message: unknown, transfer?: Transferable[]) => void;
};

const running = new Map<number, AbortController>();
const models = new Map<string, Promise<Model>>();
const times = new Map<string, number[]>();
let device: Device;

const nextTask = (): Promise<void> => new Promise((done) => setTimeout(done));

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[sorted.length >> 1] ?? 0;
}

function model(name: string, tell: (answer: Answer) => void): Promise<Model> {
  let found = models.get(name);
  if (!found) {
    const onProgress = ({ phase, loaded, total }: { phase: string; loaded: number; total: number }): void =>
      tell({ kind: "progress", phase, loaded, total });
    found = load(new URL(`../models/${name}.onnx`, location.href), { device: device.kind, onProgress });
    models.set(name, found);
    found.catch(() => models.delete(name));
  }
  return found;
}

/** Runs a model and reads its outputs; the first run compiles. */
async function run(
  name: string,
  feeds: Record<string, Tensor>,
  signal: AbortSignal,
  tell: (answer: Answer) => void,
): Promise<{ outputs: Record<string, Output>; timing: Timing }> {
  const net = await model(name, tell);
  const key = `${device.kind}/${name}`;
  const past = times.get(key) ?? [];
  const start = performance.now();
  let compiled = start;
  const onProgress = ({ phase }: { phase: string }): void => {
    if (phase === "run") compiled = performance.now();
    if (past.length === 0) tell({ kind: "progress", phase, loaded: 0, total: 0 });
  };
  const out = await net.run(feeds, { signal, onProgress });
  const outputs: Record<string, Output> = {};
  for (const [each, t] of Object.entries(out)) {
    outputs[each] = { data: await t.data("f32"), shape: [...t.shape] };
    t.dispose();
  }
  for (const t of Object.values(feeds)) t.dispose();
  const ms = performance.now() - start;
  const first = past.length === 0;
  past.push(first ? ms : performance.now() - start);
  times.set(key, past.length > 51 ? [past[0] as number, ...past.slice(-50)] : past);
  if (first) firsts.set(key, { compile: compiled - start, first: ms });
  const { compile, first: firstMs } = firsts.get(key) as { compile: number; first: number };
  return { outputs, timing: { compile, first: firstMs, p50: median(past.slice(1)), runs: past.length } };
}

const firsts = new Map<string, { compile: number; first: number }>();

// ---- tasks: models with their recipes

const tasks = new Map<string, Promise<Opened>>();

async function compileMs(): Promise<number> {
  return (await stats()).reduce((sum, { planMs, deviceMs }) => sum + planMs + deviceMs, 0);
}

/** Does a task with a model, which is loaded once, and says what it took. */
async function task<T>(name: string, signal: AbortSignal, tell: (answer: Answer) => void, body: (model: Opened) => Promise<T>): Promise<[T, Timing]> {
  const onProgress = ({ phase, loaded, total }: { phase: string; loaded: number; total: number }): void =>
    tell({ kind: "progress", phase, loaded, total });
  let opening = tasks.get(name);
  if (!opening) {
    opening = open(new URL(`../models/${name}/recipe.json`, location.href), { device: device.kind, onProgress });
    tasks.set(name, opening);
    opening.catch(() => tasks.delete(name));
  }
  const model = await opening;
  signal.throwIfAborted();
  const before = await compileMs();
  const start = performance.now();
  const result = await body(model);
  const ms = performance.now() - start;
  const key = `${device.kind}/${name}`;
  const past = [...(times.get(key) ?? []), ms].slice(-51);
  if (!firsts.has(key)) firsts.set(key, { compile: (await compileMs()) - before, first: ms });
  times.set(key, past);
  const { compile, first } = firsts.get(key) as { compile: number; first: number };
  return [result, { compile, first, p50: median(past.slice(1)), runs: past.length }];
}

async function picture(name: "removeBackground" | "upscale", source: ImageBitmap, signal: AbortSignal, tell: (answer: Answer) => void): Promise<Answer> {
  const onTile = (done: number, all: number): void => tell({ kind: "progress", phase: "run", loaded: done, total: all });
  const [image, timing] = await (name === "upscale"
    ? task("esrgan_slim_x2", signal, tell, (model) => upscale(source, { model, signal, onTile }))
    : task("selfie_segmentation", signal, tell, async (model) => (await removeBackground(source, { model, signal })).picture));
  source.close();
  return { kind: "picture", picture: image as unknown as ImageData, timing };
}

// ---- digits

const SIDE = 28;
const PIXELS = SIDE * SIDE;
const TRAIN = 4000;
const TEST = 1000;
const STEPS = 500;
const BATCH = 64;
const RATE = 4e-3;
const SEED = 2;

let digits: { net: nn.Sequential; kind: DeviceKind } | undefined;

function network(): nn.Sequential {
  return new nn.Sequential(
    new nn.Conv2d(1, 8, 5, { stride: 2, padding: 2 }),
    (x) => x.relu(),
    new nn.Conv2d(8, 16, 5, { stride: 2, padding: 2 }),
    (x) => x.relu(),
    (x) => x.flatten(1),
    new nn.Linear(16 * 49, 10),
  );
}

/** Numbers in `[0, 1)`: the same every time, so that every visitor sees the same training. */
function generator(seed: number): () => number {
  let state = seed;
  return () => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) / 2 ** 32;
}

/** An image moved by up to one pixel each way: 4,000 digits are few. */
function shifted(from: Uint8Array, to: Float32Array, at: number, random: () => number): void {
  const [dx, dy] = [Math.floor(random() * 3) - 1, Math.floor(random() * 3) - 1];
  for (let y = 0; y < SIDE; y += 1) {
    for (let x = 0; x < SIDE; x += 1) {
      const [u, v] = [x - dx, y - dy];
      const inside = u >= 0 && u < SIDE && v >= 0 && v < SIDE;
      to[at + y * SIDE + x] = inside ? (from[v * SIDE + u] as number) / 255 : 0;
    }
  }
}

async function accuracy(net: nn.Sequential, images: Uint8Array, labels: Uint8Array): Promise<number> {
  let right = 0;
  const size = 100;
  for (let at = 0; at < TEST; at += size) {
    const part = Float32Array.from(images.subarray(at * PIXELS, (at + size) * PIXELS), (v) => v / 255);
    using guess = tidy(() => net.forward(new Tensor(part, [size, 1, SIDE, SIDE])).argmax());
    const found = await guess.data("i32");
    for (let i = 0; i < size; i += 1) if (found[i] === labels[at + i]) right += 1;
  }
  return right / TEST;
}

async function train(signal: AbortSignal, tell: (answer: Answer) => void): Promise<Answer> {
  const response = await fetch(new URL("../data/mnist.bin", location.href), { signal });
  if (!response.ok) throw new Error(`the digits could not be fetched: status ${response.status}`);
  const bytes = new Uint8Array(await response.arrayBuffer());
  const images = bytes.subarray(0, TRAIN * PIXELS);
  const labels = bytes.subarray(TRAIN * PIXELS, TRAIN * (PIXELS + 1));
  const testImages = bytes.subarray(TRAIN * (PIXELS + 1), TRAIN * (PIXELS + 1) + TEST * PIXELS);
  const testLabels = bytes.subarray(TRAIN * (PIXELS + 1) + TEST * PIXELS);
  digits?.net.dispose();
  digits = undefined;
  const start = performance.now();
  Tensor.manualSeed(SEED);
  const random = generator(SEED);
  const net = await network().realize();
  const optimizer = new optim.Adam(net.parameters(), { learningRate: RATE });
  const stepMs: number[] = [];
  let done = 0;
  try {
    for (; done < STEPS && !signal.aborted; done += 1) {
      const stepStart = performance.now();
      const x = new Float32Array(BATCH * PIXELS);
      const y = new Int32Array(BATCH);
      for (let i = 0; i < BATCH; i += 1) {
        const pick = Math.floor(random() * TRAIN);
        y[i] = labels[pick] as number;
        shifted(images.subarray(pick * PIXELS, (pick + 1) * PIXELS), x, i * PIXELS, random);
      }
      optimizer.learningRate = RATE * Math.min(1, 2 * (1 - done / STEPS));
      using loss = tidy(() => {
        const value = net.forward(new Tensor(x, [BATCH, 1, SIDE, SIDE])).crossEntropy(new Tensor(y));
        value.backward();
        return value;
      });
      await optimizer.step();
      optimizer.zeroGrad();
      const value = await loss.item();
      stepMs.push(performance.now() - stepStart);
      tell({ kind: "loss", step: done + 1, steps: STEPS, loss: value });
      // lets a stop come in
      await nextTask();
    }
  } finally {
    optimizer.dispose();
  }
  const right = await accuracy(net, testImages, testLabels);
  digits = { net, kind: device.kind };
  const timing = { compile: stepMs[0] ?? 0, first: stepMs[0] ?? 0, p50: median(stepMs.slice(1)), runs: done };
  return { kind: "trained", accuracy: right, steps: done, seconds: (performance.now() - start) / 1000, timing };
}

async function digit(pixels: Float32Array): Promise<Answer> {
  if (!digits) throw new Error("train the network first");
  const { net } = digits;
  using p = tidy(() => net.forward(new Tensor(pixels, [1, 1, SIDE, SIDE])).softmax());
  return { kind: "digit", probabilities: await p.data("f32") };
}

// ---- speech

const FRAME = 512;
const CONTEXT = 64;
let heard = { state: new Float32Array(256), context: new Float32Array(CONTEXT) };

/** The probability of speech in each frame of 32 ms. The detector remembers what it heard unless told to forget. */
async function speech(samples: Float32Array, forget: boolean, signal: AbortSignal, tell: (answer: Answer) => void): Promise<Answer> {
  if (forget) heard = { state: new Float32Array(256), context: new Float32Array(CONTEXT) };
  const probabilities: number[] = [];
  let timing: Timing = { compile: 0, first: 0, p50: 0, runs: 0 };
  const frames = Math.floor(samples.length / FRAME);
  for (let at = 0; at < frames; at += 1) {
    const frame = samples.slice(at * FRAME, (at + 1) * FRAME);
    const input = new Float32Array(CONTEXT + FRAME);
    input.set(heard.context);
    input.set(frame, CONTEXT);
    const feeds = {
      input: new Tensor(input, [1, CONTEXT + FRAME]),
      state: new Tensor(heard.state, [2, 1, 128]),
      sr: new Tensor(BigInt64Array.of(16000n), []),
    };
    const result = await run("silero_vad_op18_ifless", feeds, signal, tell);
    timing = result.timing;
    heard = { state: new Float32Array((result.outputs.stateN as Output).data), context: input.slice(-CONTEXT) };
    probabilities.push((result.outputs.output as Output).data[0] as number);
    if (frames > 4) tell({ kind: "progress", phase: "run", loaded: at + 1, total: frames });
    if (at % 8 === 7) await nextTask();
    signal.throwIfAborted();
  }
  return { kind: "speech", probabilities, timing };
}

// ---- messages

async function answer(ask: Ask, signal: AbortSignal, tell: (answer: Answer) => void): Promise<Answer> {
  switch (ask.kind) {
    case "devices":
      return { kind: "devices", list: await devices() };
    case "use": {
      device = await init({ device: ask.device, signal });
      for (const each of models.values()) (await each.catch(() => undefined))?.dispose();
      models.clear();
      for (const each of tasks.values()) (await each.catch(() => undefined))?.dispose();
      tasks.clear();
      firsts.clear();
      times.clear();
      digits = undefined;
      return { kind: "used", device: { kind: device.kind, threads: device.threads, software: device.software } };
    }
    case "run": {
      const feeds = Object.fromEntries(Object.entries(ask.inputs).map(([name, i]) => [name, new Tensor(i.data, i.shape)]));
      return { kind: "ran", ...(await run(ask.model, feeds, signal, tell)) };
    }
    case "speech":
      return speech(ask.samples, ask.forget, signal, tell);
    case "fileType": {
      const [found, timing] = await task("magika", signal, tell, (model) => fileType(ask.file, { model, signal }));
      return { kind: "fileType", found, timing };
    }
    case "picture":
      return picture(ask.task, ask.source, signal, tell);
    case "train":
      return train(signal, tell);
    case "digit":
      return digit(ask.pixels);
  }
}

// One thing at a time: the device is one.
let line: Promise<unknown> = Promise.resolve();

scope.onmessage = ({ data }) => {
  if ("stop" in data) {
    running.get(data.stop)?.abort();
    return;
  }
  const { id, ask } = data;
  const control = new AbortController();
  running.set(id, control);
  const tell = (event: Answer): void => scope.postMessage({ id, event });
  line = line.then(async () => {
    try {
      control.signal.throwIfAborted();
      scope.postMessage({ id, result: await answer(ask, control.signal, tell) });
    } catch (error) {
      const { name, message, code, hint } = error as { name?: string; message?: string; code?: string; hint?: string };
      scope.postMessage({ id, error: { name, message: message ?? String(error), code, hint } });
    } finally {
      running.delete(id);
    }
  });
};
scope.postMessage({ ready: true });
