// Holds the world of the cells; each call advances it by some steps and returns what is visible.
import { Tensor, loadWeights } from "gradloom";
import { type Context, serve } from "../../src/demo/serve";
import { CHANNELS, Cells, later } from "./code.js";
import { moth } from "./moth.js";

/** The visible state of the world. */
export interface Seen {
  pixels: Uint8ClampedArray;
  /** Number of living cells. */
  alive: number;
  /** The mean squared difference between the middle of the world and the target picture, over colours and alpha. */
  away: number;
}

const { planes, side } = moth();
let cells: Promise<Cells> | undefined;
let world: Tensor | undefined;

async function trained({ signal, device }: Context): Promise<Cells> {
  const own = await new Cells().realize();
  own.loadStateDict(await loadWeights(new URL("data/cells.safetensors", location.href), { signal, device: device.kind }));
  return own;
}

const handlers = {
  /** `keep` and `plant` are those of `later`; `fresh` starts with an empty world. */
  async step(
    { width, height, keep, plant, steps, fresh }: { width: number; height: number; keep: Float32Array; plant: Float32Array; steps: number; fresh: boolean },
    context: Context,
  ): Promise<Seen & { ms: number }> {
    cells ??= trained(context);
    cells.catch(() => (cells = undefined));
    const own = await cells;
    const start = performance.now();
    if (fresh || !world) {
      world?.dispose();
      world = Tensor.zeros([1, CHANNELS, height, width]);
    }
    const next = await later(own, world, { keep, plant, steps }).realize();
    world.dispose();
    world = next;
    const values = await next.data("f32");
    const area = width * height;
    const at = (c: number, i: number): number => values[c * area + i] as number;
    const pixels = new Uint8ClampedArray(4 * area);
    let alive = 0;
    for (let i = 0; i < area; i += 1) {
      const cover = Math.min(1, Math.max(0, at(3, i)));
      if (cover > 0.1) alive += 1;
      for (let c = 0; c < 3; c += 1) pixels[4 * i + c] = (255 * at(c, i)) / Math.max(cover, 0.01);
      pixels[4 * i + 3] = 255 * cover;
    }
    const [left, top] = [(width - side) >> 1, (height - side) >> 1];
    let away = 0;
    planes.forEach((v, i) => {
      const [row, column] = [Math.floor((i % side ** 2) / side), i % side];
      away += (v - at(Math.floor(i / side ** 2), (top + row) * width + left + column)) ** 2 / planes.length;
    });
    return { pixels, alive, away, ms: performance.now() - start };
  },
};

export type Api = typeof handlers;
serve(handlers, {
  changed: async () => {
    (await cells?.catch(() => undefined))?.dispose();
    world?.dispose();
    cells = world = undefined;
  },
});
