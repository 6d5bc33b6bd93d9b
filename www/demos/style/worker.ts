// Style transfer's worker.
import { type Opened, open } from "gradloom/tasks";
import { type Context, serve } from "../../src/demo/serve";
import { paint } from "./code.js";

let model: Promise<Opened> | undefined;

async function opened({ device, progress }: Context): Promise<Opened> {
  model ??= open(new URL("models/style_multistyle26/recipe.json", location.href), { device: device.kind, onProgress: progress });
  model.catch(() => (model = undefined));
  return model;
}

const handlers = {
  async paint(
    { picture, a, b, mix }: { picture: ImageBitmap; a: number; b: number; mix: number },
    context: Context,
  ): Promise<{ image: ImageData; ms: number }> {
    const net = await opened(context);
    const start = performance.now();
    const image = (await paint(picture, { a, b, mix, model: net, signal: context.signal })) as ImageData;
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
