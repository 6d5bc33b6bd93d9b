// The worker of this demo: one network, one thing to do with a picture.
import type { Tensor } from "gradloom";
import type { Ranked } from "gradloom/vision";
import { type Context, serve } from "../../src/demo/serve";
import { classify, load } from "./code.js";
import labels from "./labels.json";

let weights: Promise<Record<string, Tensor>> | undefined;

const handlers = {
  async classify({ picture }: { picture: ImageBitmap }, { device, progress, signal }: Context): Promise<{ ranks: Ranked[]; ms: number }> {
    weights ??= load(new URL("models/efficientnet_lite0/model.pth", location.href) as never, { device: device.kind, onProgress: progress });
    weights.catch(() => (weights = undefined));
    const own = await weights;
    const start = performance.now();
    const ranks = await classify(own, picture, labels, { signal });
    picture.close();
    return { ranks, ms: performance.now() - start };
  },
};

export type Api = typeof handlers;
serve(handlers, {
  changed: async () => {
    for (const each of Object.values((await weights?.catch(() => undefined)) ?? {})) each.dispose();
    weights = undefined;
  },
});
