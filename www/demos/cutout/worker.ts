// The worker of this demo: one model, one thing to do with a picture.
import { type Opened, open } from "gradloom/tasks";
import { type Context, serve } from "../../src/demo/serve";
import { cutOut } from "./code.js";

let model: Promise<Opened> | undefined;

async function opened({ device, progress }: Context): Promise<Opened> {
  model ??= open(new URL("models/selfie_segmentation/recipe.json", location.href), { device: device.kind, onProgress: progress });
  model.catch(() => (model = undefined));
  return model;
}

const handlers = {
  async cutOut({ picture }: { picture: ImageBitmap }, context: Context): Promise<{ image: ImageData; share: number; ms: number }> {
    const net = await opened(context);
    const start = performance.now();
    const { image, share } = await cutOut(picture, { model: net, signal: context.signal });
    picture.close();
    return { image: image as ImageData, share, ms: performance.now() - start };
  },
};

export type Api = typeof handlers;
serve(handlers, {
  changed: async () => {
    (await model?.catch(() => undefined))?.dispose();
    model = undefined;
  },
});
