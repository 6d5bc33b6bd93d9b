// A sentence embedding model from its safetensors file, on both devices of a page.
import * as gradloom from "gradloom";
import { assertClose, assertEqual, fetchBytes, note, test } from "harness";
import { sentences } from "/lib/minilm.mjs";

for (const device of ["wasm", "webgpu"]) {
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
