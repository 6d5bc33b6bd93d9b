// The worker of this demo: one model, one thing to do with a file.
import { type Opened, open } from "gradloom/tasks";
import { type Context, serve } from "../../src/demo/serve";
import { kindOf } from "./code.js";

let model: Promise<Opened> | undefined;

async function opened({ device, progress }: Context): Promise<Opened> {
  model ??= open(new URL("models/magika/recipe.json", location.href), { device: device.kind, onProgress: progress });
  model.catch(() => (model = undefined));
  return model;
}

const handlers = {
  async kindOf({ file }: { file: Blob }, context: Context) {
    const model = await opened(context);
    const start = performance.now();
    const found = await kindOf(file, { model: model, signal: context.signal });
    return { found, ms: performance.now() - start };
  },
};

export type Api = typeof handlers;
serve(handlers, {
  changed: async () => {
    (await model?.catch(() => undefined))?.dispose();
    model = undefined;
  },
});
