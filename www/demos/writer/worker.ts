// Trains the small GPT on a text and writes now and then.
import { Tensor } from "gradloom";
import { type Context, serve, turn } from "../../src/demo/serve";
import { Writer, train, write } from "./code.js";

/** Numbers in `[0, 1)`: the same every time. */
function generator(seed: number): () => number {
  let state = seed;
  return () => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) / 2 ** 32;
}

const handlers = {
  async train({ text, steps }: { text: string; steps: number }, { signal, tell }: Context) {
    const letters = [...new Set(text)].sort();
    const ids = Int32Array.from(text, (letter) => letters.indexOf(letter));
    const random = generator(5);
    Tensor.manualSeed(2);
    using net = await new Writer(letters.length).realize();
    const written = async (count: number): Promise<string> => {
      const start = [...ids.subarray(0, 8)];
      return (await write(net, start, count, generator(9))).map((id) => letters[id]).join("");
    };
    let [done, last, loss] = [0, performance.now(), NaN];
    for await (const each of train(net, ids, steps, random)) {
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
