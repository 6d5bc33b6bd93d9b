// Encoders in a worker of the page's, on both devices: vectors and scores are those of transformers.
import { Encoder } from "gradloom/llm";
import { allowConsoleErrors, assert, assertEqual, deviceKinds, errorOf, test } from "harness";

const folder = "/fixtures/embedders/";
const expected = async (name) => (await fetch(`${folder}${name}/expected.json`)).json();

function close(got, want, what) {
  assertEqual(got.length, want.length, what);
  const most = Math.max(...want.map(Math.abs));
  want.forEach((w, i) => assert(Math.abs(got[i] - w) <= 1e-4 * most, `${what}: element ${i} is ${got[i]}, not ${w}`));
}

for (const device of deviceKinds) {
  test(`vectors of texts on ${device}`, async () => {
    for (const [name, from] of [["bert", "bert.gguf"], ["mpnet", "mpnet/"], ["nomic", "nomic.gguf"]]) {
      const phases = new Set();
      const encoder = await Encoder.load(folder + from, { device, onProgress: ({ phase }) => phases.add(phase) });
      assertEqual([encoder.info.device, encoder.info.width, encoder.info.labels], [device, 32, 0]);
      assert(phases.has("device"), "progress crosses from the worker");
      const { texts } = await expected(name);
      assertEqual(await encoder.tokenizer.encode(texts[0].text), texts[0].ids);
      const vectors = await encoder.embed(texts.map(({ text }) => text));
      vectors.forEach((vector, i) => close(vector, texts[i].vector, from));
      close(await encoder.embed(texts[1].text), texts[1].vector, from);
      encoder.dispose();
      assertEqual((await errorOf(() => encoder.embed("a cat"))).code, "E_STATE");
    }
  });

  test(`documents are ordered on ${device}`, async () => {
    const encoder = await Encoder.load(`${folder}bertrank/`, { device });
    for (const { query, document, score } of (await expected("bertrank")).pairs) {
      const ranked = await encoder.rerank(query, [document, "a boat, a boat!"]);
      const found = ranked.find(({ index }) => index === 0);
      assert(Math.abs(found.score - score) <= 1e-4 * Math.abs(score), `${found.score}, not ${score}`);
      assert(ranked[0].score >= ranked[1].score, "the most relevant comes first");
    }
    encoder.dispose();
  });
}

test("errors cross from the worker, and a worker that does not start is done without", async () => {
  await allowConsoleErrors(/404|no thread/);
  assertEqual((await errorOf(() => Encoder.load("/fixtures/llm/llama.gguf"))).code, "E_UNSUPPORTED");
  assertEqual((await errorOf(() => Encoder.load("/fixtures/nothing.gguf"))).code, "E_FETCH");
  const { Worker: Plain } = globalThis;
  globalThis.Worker = class extends Plain {
    constructor() {
      super(URL.createObjectURL(new Blob(["throw new Error('no thread')"], { type: "text/javascript" })));
      this.addEventListener("error", (event) => event.preventDefault());
    }
  };
  const encoder = await Encoder.load(`${folder}bert.gguf`, { device: "wasm" }).finally(() => (globalThis.Worker = Plain));
  const [{ text, vector }] = (await expected("bert")).texts;
  close(await encoder.embed(text), vector, "in the page's thread");
  const stop = new AbortController();
  stop.abort(new Error("enough"));
  assertEqual((await errorOf(() => encoder.embed(text, { signal: stop.signal }))).message, "enough");
  encoder.dispose();
});
