// The digit reader's worker: training, on batches with small random shifts since 4,000 digits are few, and reading.
import { Tensor, type nn } from "gradloom";
import { type Context, serve, turn } from "../../src/demo/serve";
import { network, read, train } from "./code.js";

const SIDE = 28;
const PIXELS = SIDE * SIDE;
const TRAIN = 4000;
const TEST = 1000;
const BATCH = 64;
const SEED = 2;

let net: nn.Sequential | undefined;

/** Pseudo-random numbers in `[0, 1)` with a fixed seed, so that every visitor sees the same training. */
function generator(seed: number): () => number {
  let state = seed;
  return () => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) / 2 ** 32;
}

/** Shifts an image by up to one pixel in each direction. */
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

function* batches(images: Uint8Array, labels: Uint8Array, steps: number, signal: AbortSignal): Generator<{ x: Float32Array; y: Int32Array; progress: number }> {
  const random = generator(SEED);
  for (let step = 0; step < steps && !signal.aborted; step += 1) {
    const x = new Float32Array(BATCH * PIXELS);
    const y = new Int32Array(BATCH);
    for (let i = 0; i < BATCH; i += 1) {
      const pick = Math.floor(random() * TRAIN);
      y[i] = labels[pick] as number;
      shifted(images.subarray(pick * PIXELS, (pick + 1) * PIXELS), x, i * PIXELS, random);
    }
    yield { x, y, progress: step / steps };
  }
}

const best = (p: Float32Array, row: number): number => {
  const own = p.subarray(row * 10, row * 10 + 10);
  return own.indexOf(Math.max(...own));
};

const handlers = {
  async train({ steps }: { steps: number }, { signal, tell }: Context) {
    const response = await fetch(new URL("data/mnist.bin", location.href), { signal });
    if (!response.ok) throw new Error(`the digits could not be fetched: status ${response.status}`);
    const bytes = new Uint8Array(await response.arrayBuffer());
    const [images, labels] = [bytes.subarray(0, TRAIN * PIXELS), bytes.subarray(TRAIN * PIXELS, TRAIN * (PIXELS + 1))];
    const test = bytes.subarray(TRAIN * (PIXELS + 1));
    net?.dispose();
    net = undefined;
    const start = performance.now();
    Tensor.manualSeed(SEED);
    const own = await network().realize();
    let [done, last] = [0, performance.now()];
    for await (const loss of train(own, batches(images, labels, steps, signal))) {
      done += 1;
      const now = performance.now();
      tell({ step: done, steps, loss, ms: now - last });
      last = now;
      await turn();
    }
    let right = 0;
    for (let at = 0; at < TEST; at += 100) {
      const p = await read(own, Float32Array.from(test.subarray(at * PIXELS, (at + 100) * PIXELS), (v) => v / 255));
      for (let i = 0; i < 100; i += 1) if (best(p, i) === test[TEST * PIXELS + at + i]) right += 1;
    }
    net = own;
    return { accuracy: right / TEST, steps: done, seconds: (performance.now() - start) / 1000 };
  },
  async read({ pixels }: { pixels: Float32Array }) {
    if (!net) throw new Error("train the network first");
    return [...(await read(net, pixels))];
  },
};

export type Api = typeof handlers;
serve(handlers, { changed: () => void (net = undefined) });
