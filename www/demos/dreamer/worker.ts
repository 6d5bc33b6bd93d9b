// Trains on the digits, and draws new ones on request and during training.
import { Tensor } from "gradloom";
import { type Context, serve, turn } from "../../src/demo/serve";
import { Dreamer, dream, train } from "./code.js";

const PIXELS = 784;
const TRAIN = 4000;
const BATCH = 64;

let net: Dreamer | undefined;

/** One-hot rows for each digit in turn, or for a single digit. */
function wanted(count: number, digit?: number): Tensor {
  const out = new Float32Array(count * 10);
  for (let i = 0; i < count; i += 1) out[i * 10 + (digit ?? i % 10)] = 1;
  return new Tensor(out, [count, 10]);
}

function* batches(bytes: Uint8Array, steps: number, signal: AbortSignal): Generator<{ picture: Tensor; digit: Tensor; progress: number }> {
  let state = 1;
  for (let step = 0; step < steps && !signal.aborted; step += 1) {
    const [x, y] = [new Float32Array(BATCH * PIXELS), new Float32Array(BATCH * 10)];
    for (let i = 0; i < BATCH; i += 1) {
      const pick = Math.floor(((state = (Math.imul(state, 1664525) + 1013904223) >>> 0) / 2 ** 32) * TRAIN);
      for (let p = 0; p < PIXELS; p += 1) x[i * PIXELS + p] = (bytes[pick * PIXELS + p] as number) / 127.5 - 1;
      y[i * 10 + (bytes[TRAIN * PIXELS + pick] as number)] = 1;
    }
    using picture = new Tensor(x, [BATCH, PIXELS]);
    using digit = new Tensor(y, [BATCH, 10]);
    yield { picture, digit, progress: step / steps };
  }
}

async function last(own: Dreamer, digits: Tensor): Promise<Float32Array> {
  let picture: Float32Array = new Float32Array(0);
  for await (const each of dream(own, digits)) picture = each;
  return picture;
}

const handlers = {
  async train({ steps }: { steps: number }, { signal, tell }: Context) {
    const response = await fetch(new URL("data/mnist.bin", location.href), { signal });
    if (!response.ok) throw new Error(`the digits could not be fetched: status ${response.status}`);
    const bytes = new Uint8Array(await response.arrayBuffer());
    net?.dispose();
    Tensor.manualSeed(1);
    const own = (net = await new Dreamer().realize());
    using digits = wanted(20);
    let [done, at, loss] = [0, performance.now(), 1];
    for await (const each of train(own, batches(bytes, steps, signal))) {
      loss = done === 0 ? each : 0.95 * loss + 0.05 * each;
      done += 1;
      const ms = performance.now() - at;
      const pictures = done % 100 === 0 || done === steps ? await last(own, digits) : undefined;
      tell({ step: done, steps, loss, ms, pictures });
      at = performance.now();
      await turn();
    }
    return { steps: done, loss };
  },
  /** Draws digits and reports the pictures after each step. */
  async draw({ count, digit }: { count: number; digit: number | undefined }, { signal, tell }: Context) {
    if (!net) throw new Error("train the network first");
    let [move, at] = [0, performance.now()];
    using digits = wanted(count, digit);
    for await (const pictures of dream(net, digits)) {
      signal.throwIfAborted();
      move += 1;
      tell({ step: move, steps: 24, ms: performance.now() - at, pictures });
      at = performance.now();
      await turn();
    }
  },
};

export type Api = typeof handlers;
serve(handlers, { changed: () => void (net = undefined) });
