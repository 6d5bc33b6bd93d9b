// A sentence embedding model from its safetensors file, on both devices of a page.
import * as gradloom from "gradloom";
import { assert, assertClose, assertEqual, deviceKinds, errorOf, fetchBytes, note, test } from "harness";
import { sentences } from "/lib/minilm.mjs";

for (const device of deviceKinds) {
  test(`minilm on ${device}`, async () => {
    await gradloom.init({ device });
    const start = performance.now();
    const [input, expected] = await Promise.all(["input", "expected"].map((name) => fetchBytes(`/models/minilm_l6_v2/${name}.npz`)));
    const rows = await sentences(gradloom, device, { file: "/cache/models/minilm_l6_v2/model.safetensors", input, expected });
    assertEqual(rows.map(({ name }) => name).sort(), ["embedding", "hidden"]);
    for (const { name, actual, expected: want } of rows) assertClose(actual, want, { tolerance: 1e-3, what: name });
    await note(`${((performance.now() - start) / 1000).toFixed(1)} s with loading and compiling`);
  }, { timeoutMs: 300_000 });
}

test("some of its tensors, by ranges; from a File; and none after a stop", async () => {
  await gradloom.init({ device: "wasm" });
  const url = "/cache/models/minilm_l6_v2/model.safetensors";
  const statuses = [];
  let bytes = 0;
  const counting = async (...request) => {
    const answer = await fetch(...request);
    statuses.push(answer.status);
    bytes += Number(answer.headers.get("content-length"));
    return answer;
  };
  const only = ["embeddings.LayerNorm.weight", "encoder.layer.5.output.dense.weight"];
  const some = await gradloom.loadWeights(url, { only, fetch: counting });
  assertEqual([Object.keys(some).sort(), some[only[1]].shape], [only, [384, 1536]]);
  assert(statuses.every((status) => status === 206) && bytes < 3e6, `${statuses}, ${bytes} bytes`);
  const file = new File([await fetchBytes(url)], "model.safetensors");
  const same = await gradloom.loadWeights(file, { only });
  for (const name of only) assertEqual(await same[name].sub(some[name]).abs().max().item(), 0);
  const stop = new AbortController();
  const onProgress = ({ loaded }) => loaded > 1e6 && stop.abort();
  assertEqual((await errorOf(() => gradloom.loadWeights(url, { signal: stop.signal, onProgress }))).name, "AbortError");
});
