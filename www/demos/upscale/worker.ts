// The worker of this demo: one model, one thing to do with a picture.
import { type Opened, open } from "gradloom/tasks";
import { type Context, serve } from "../../src/demo/serve";
import { enlarge } from "./code.js";

let model: Promise<Opened> | undefined;

async function opened({ device, progress }: Context): Promise<Opened> {
  model ??= open(new URL("models/esrgan_slim_x2/recipe.json", location.href), { device: device.kind, onProgress: progress });
  model.catch(() => (model = undefined));
  return model;
}

const handlers = {
  async enlarge({ picture }: { picture: ImageBitmap }, context: Context): Promise<{ image: ImageData; ms: number }> {
    const net = await opened(context);
    const start = performance.now();
    const onTile = (loaded: number, total: number): void => context.tell({ progress: { phase: "run", loaded, total } });
    const image = (await enlarge(picture, { model: net, signal: context.signal, onTile })) as ImageData;
    picture.close();
    return { image, ms: performance.now() - start };
  },
};

export type Api = typeof handlers;
serve(handlers, {
  changed: async () => {
    (await model?.catch(() => undefined))?.dispose();
    model = undefined;
  },
});
