// The listener's worker.
import { type Context, serve, turn } from "../../src/demo/serve";
import { Listener } from "./code.js";

let listener: Promise<Listener> | undefined;

const handlers = {
  async hear({ samples, forget }: { samples: Float32Array; forget: boolean }, { device, progress, signal, tell }: Context) {
    listener ??= Listener.open(new URL("models/silero_vad_op18_ifless/recipe.json", location.href) as never, { device: device.kind, onProgress: progress });
    listener.catch(() => (listener = undefined));
    const own = await listener;
    if (forget) own.forget();
    const steps = Math.floor((own.rest.length + samples.length) / 512);
    const heard: number[] = [];
    let last = performance.now();
    for await (const probability of own.hear(samples, signal)) {
      heard.push(probability as number);
      const now = performance.now();
      tell({ step: heard.length, steps, ms: now - last });
      last = now;
      if (heard.length % 8 === 0) await turn();
      signal.throwIfAborted();
    }
    return heard;
  },
};

export type Api = typeof handlers;
serve(handlers, {
  changed: async () => {
    const last = listener;
    listener = undefined;
    (await last?.catch(() => undefined))?.model.dispose();
  },
});
