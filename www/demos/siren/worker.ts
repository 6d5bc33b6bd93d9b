// Fits a small network to a picture, and renders what it has learned.
import { Tensor, type nn } from "gradloom";
import { type Context, serve, turn } from "../../src/demo/serve";
import { draw, fit, network, places } from "./code.js";

let net: nn.Sequential | undefined;

const handlers = {
  async fit({ colours, side, steps }: { colours: Float32Array; side: number; steps: number }, { signal, tell }: Context) {
    net?.dispose();
    Tensor.manualSeed(1);
    const own = (net = await network().realize());
    using x = places(side);
    using y = new Tensor(colours, [side * side, 3]);
    let [done, last, loss] = [0, performance.now(), 1];
    for await (const each of fit(own, x, y, steps)) {
      loss = each;
      done += 1;
      const now = performance.now();
      const picture = done % 20 === 0 || done === steps ? await draw(own, side) : undefined;
      tell({ step: done, steps, loss, ms: now - last, picture });
      last = performance.now();
      if (signal.aborted) break;
      await turn();
    }
    return { steps: done, loss };
  },
  async draw({ side }: { side: number }) {
    if (!net) throw new Error("fit a picture first");
    return draw(net, side);
  },
};

export type Api = typeof handlers;
serve(handlers, { changed: () => void (net = undefined) });
