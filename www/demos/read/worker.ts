// The worker of this demo: two models, one that finds lines and one that reads them.
import { type Opened, type ReadText, open } from "gradloom/tasks";
import { type Context, serve } from "../../src/demo/serve";
import { read } from "./code.js";

let model: Promise<Opened> | undefined;

const handlers = {
  async read({ picture }: { picture: ImageBitmap }, { device, progress, signal, tell }: Context): Promise<ReadText> {
    model ??= open(new URL("models/ppocrv4_rec/recipe.json", location.href), { device: device.kind, onProgress: progress });
    model.catch(() => (model = undefined));
    const net = await model;
    let [done, last] = [0, performance.now()];
    try {
      return await read(picture, {
        model: net, signal, device: device.kind, onProgress: progress,
        onLine(line) {
          const now = performance.now();
          tell({ step: (done += 1), steps: 0, line, ms: now - last });
          last = now;
        },
      });
    } finally {
      picture.close();
    }
  },
};

export type Api = typeof handlers;
serve(handlers, {
  changed: async () => {
    (await model?.catch(() => undefined))?.dispose();
    model = undefined;
  },
});
