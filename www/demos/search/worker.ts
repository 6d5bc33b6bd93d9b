// Holds the search index: passages with their vectors.
import { type Opened, open } from "gradloom/tasks";
import { type Context, serve } from "../../src/demo/serve";
import { Index, passages } from "./code.js";

interface Hit {
  text: string;
  from: string;
  score: number;
}

let model: Promise<Opened> | undefined;
let index: Index | undefined;

async function opened({ device, progress }: Context): Promise<Index> {
  model ??= open(new URL("models/minilm_l6_v2/recipe.json", location.href), { device: device.kind, onProgress: progress });
  model.catch(() => (model = undefined));
  return (index ??= new Index({ model: await model, device: device.kind }));
}

const handlers = {
  /** Cuts a text into passages. */
  cut: ({ text }: { text: string }) => passages(text) as string[],
  /** Adds passages, and returns the number of all passages. */
  async add({ texts, from }: { texts: string[]; from: string }, context: Context): Promise<number> {
    const own = await opened(context);
    await own.add(texts, from, { signal: context.signal, onProgress: context.progress });
    return own.texts.length;
  },
  async find({ query }: { query: string }, { signal }: Context): Promise<{ hits: Hit[]; ms: number }> {
    if (!index) return { hits: [], ms: 0 };
    const start = performance.now();
    const hits = (await index.find(query, 6, { signal })) as Hit[];
    return { hits, ms: performance.now() - start };
  },
  forget(): void {
    index = undefined;
  },
};

export type Api = typeof handlers;
serve(handlers, {
  changed: async () => {
    index = undefined;
    (await model?.catch(() => undefined))?.dispose();
    model = undefined;
  },
});
