// The worker of this demo: it hears two seconds at a time.
import { type Note, type Opened, open } from "gradloom/tasks";
import { type Context, serve } from "../../src/demo/serve";
import { listen } from "./code.js";

let model: Promise<Opened> | undefined;

const handlers = {
  async listen({ samples, rate }: { samples: Float32Array; rate: number }, context: Context): Promise<{ notes: Note[]; file: Uint8Array }> {
    const { device, progress, signal, tell } = context;
    model ??= open(new URL("models/basic_pitch/recipe.json", location.href), { device: device.kind, onProgress: progress });
    model.catch(() => (model = undefined));
    const net = await model;
    let last = performance.now();
    const onPart = (part: number): void => {
      const now = performance.now();
      tell({ step: part, steps: 1, ms: now - last });
      last = now;
    };
    return listen({ channels: [samples], sampleRate: rate }, { model: net, signal, onPart });
  },
};

export type Api = typeof handlers;
serve(handlers, {
  changed: async () => {
    (await model?.catch(() => undefined))?.dispose();
    model = undefined;
  },
});
