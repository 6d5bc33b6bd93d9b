// The worker of this demo: one model, one thing to do with a picture.
import { type Face, type Opened, open } from "gradloom/tasks";
import { type Context, serve } from "../../src/demo/serve";
import { facesOf } from "./code.js";

let model: Promise<Opened> | undefined;

const handlers = {
  async find({ picture }: { picture: ImageBitmap }, { device, progress, signal }: Context): Promise<{ faces: Face[]; ms: number }> {
    model ??= open(new URL("models/blazeface_short/recipe.json", location.href), { device: device.kind, onProgress: progress });
    model.catch(() => (model = undefined));
    const net = await model;
    const start = performance.now();
    const faces = await facesOf(picture, { model: net, signal });
    picture.close();
    return { faces, ms: performance.now() - start };
  },
};

export type Api = typeof handlers;
serve(handlers, {
  changed: async () => {
    (await model?.catch(() => undefined))?.dispose();
    model = undefined;
  },
});
