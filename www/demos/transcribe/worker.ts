// The worker of this demo: one model, one thing to do with a sound.
import { type Opened, open } from "gradloom/tasks";
import { type Context, serve } from "../../src/demo/serve";
import { write } from "./code.js";

let model: Promise<Opened> | undefined;

const handlers = {
  /** What is said: told word by word on the way. */
  async write({ samples }: { samples: Float32Array }, { device, progress, signal, tell }: Context): Promise<{ text: string; ms: number }> {
    model ??= open(new URL("models/whisper_tiny_en/recipe.json", location.href), { device: device.kind, onProgress: progress });
    model.catch(() => (model = undefined));
    const net = await model;
    const start = performance.now();
    let words = 0;
    const onText = (more: string): void => tell({ step: (words += 1), steps: 0, more });
    const text = await write(samples, { model: net, device: device.kind, signal, onProgress: progress, onText });
    return { text, ms: performance.now() - start };
  },
};

export type Api = typeof handlers;
serve(handlers, {
  changed: async () => {
    (await model?.catch(() => undefined))?.dispose();
    model = undefined;
  },
});
