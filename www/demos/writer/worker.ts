// Trains the small GPT on a text and generates samples at intervals.
import { Tensor } from "gradloom";
import { type Context, serve, turn } from "../../src/demo/serve";
import { CONTEXT, train, write, writer } from "./code.js";

const handlers = {
  async train({ text, steps }: { text: string; steps: number }, { signal, tell }: Context) {
    const letters = [...new Set(text)].sort();
    const ids = Int32Array.from(text, (letter) => letters.indexOf(letter));
    Tensor.manualSeed(2);
    using net = await writer(letters.length).realize();
    /** Continues the text after its first letters. */
    const written = async (count: number): Promise<string> => {
      const start = ids.slice(0, CONTEXT);
      const all = [...start];
      for await (const id of write(net, start)) {
        all.push(id as number);
        if (all.length === CONTEXT + count) break;
      }
      return all.map((id) => letters[id]).join("");
    };
    let [done, last, loss] = [0, performance.now(), NaN];
    for await (const each of train(net, ids, steps)) {
      loss = each;
      done += 1;
      const now = performance.now();
      tell({ step: done, steps, loss, ms: now - last, text: done % 60 === 0 && done < steps ? await written(100) : undefined });
      last = performance.now();
      if (signal.aborted) break;
      await turn();
    }
    return { steps: done, loss, text: await written(240), letters: letters.length };
  },
};

export type Api = typeof handlers;
serve(handlers);
