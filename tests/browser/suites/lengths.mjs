// Lengths that change from run to run, in a page: one plan serves all of them on both devices, in the page's worker and in its own thread.
import * as gradloom from "gradloom";
import { assert, assertClose, assertEqual, deviceKinds, fetchBytes, note, test } from "harness";
import { growCache, inputsOf, runGrouped, runShapes, runsThatCompiled } from "/lib/lengths.mjs";

const { Tensor, clearCache, load } = gradloom;
const model = (name) => `/models/${name}/model.onnx`;

for (const device of deviceKinds) {
  for (const worker of [true, false]) {
    const where = `on ${device}, ${worker ? "in the page's worker" : "in its thread"}`;

    test(`an encoder: twenty shapes, the numbers of onnxruntime, nothing compiled after the second ${where}`, async () => {
      await clearCache();
      const m = await load(model("zoo_t5_encoder"), { device, worker, dynamic: { s72: [1, 8], s53: [1, 64] } });
      const { compiled, error } = await runShapes(gradloom, m, await fetchBytes("/models/zoo_t5_encoder/lengths.npz"), 20);
      await note(`${compiled.slice(0, 3)} kernels, off by ${error}`);
      assertEqual([compiled.length, m.device.kind, compiled[0] > 0, compiled[1] > 0], [20, device, true, true]);
      assert(error <= 5e-5, `off by ${error}`);
      assertEqual(runsThatCompiled(compiled, 2), [], `${compiled}`);
      m.dispose();
    });

    test(`caches of GroupQueryAttention grow: one plan for every token ${where}`, async () => {
      await clearCache();
      const m = await load("/fixtures/onnx/grouped.onnx", { device, worker });
      const { compiled, error } = await runGrouped(gradloom, m, await fetchBytes("/fixtures/onnx/grouped.npz"), "one", 0, { stay: worker });
      await note(`${compiled.slice(0, 6)} kernels, off by ${error}`);
      assert(error <= 1e-4, `off by ${error}`);
      const again = runsThatCompiled(compiled, 2);
      assert(again.length <= 3 && again.every((n) => n === 4 || n > 20), `${compiled}`);
      assertEqual([m.notes, m.device.kind], [[], device]);
      m.dispose();
    });

    test(`a cache grows in place: nothing compiled after the second step ${where}`, async () => {
      await clearCache();
      const m = await load(model("zoo_llama_past"), { device, worker, dynamic: { s0: [1, 64] } });
      let text;
      const last = async ({ past, logits, next }) => {
        assertEqual(next[0].shape, [1, 2, past + 1, 8]);
        if (past === 31) text = (await logits.data()).slice();
      };
      const compiled = await growCache(gradloom, m, 30, { stay: worker }, last);
      assertEqual(runsThatCompiled(compiled, 2), [], `${compiled}`);
      assertEqual(m.device.kind, device);
      // the same text by values, with a plan for each step
      const fixed = await load(model("zoo_llama_past"), { device: "wasm", worker: false, dynamic: false });
      let want;
      await growCache(gradloom, fixed, 30, {}, async ({ past, logits }) => void (past === 31 && (want = (await logits.data()).slice())));
      const error = assertClose(text, want, { tolerance: 5e-5, what: "the last logits" });
      await note(`${compiled.slice(0, 4)} kernels, off by ${error}`);
      m.dispose();
      fixed.dispose();
    });
  }
}

test("by itself: one plan from the second length on, and why there is none where there is none", async () => {
  const m = await load(model("zoo_t5_encoder"), { device: "wasm" });
  const compiled = [];
  for (const length of [9, 17, 2, 30, 25, 9]) {
    await m.run(inputsOf(gradloom, [1, length]));
    compiled.push(m.timing.kernelsCompiled);
  }
  assertEqual(runsThatCompiled(compiled, 2), [], `${compiled}`);
  assertEqual(m.notes, []);
  const zeros = (...shape) => new Tensor(new Float32Array(shape.reduce((x, y) => x * y)), shape);
  const steps = await load(model("silero_vad_sequence"), { device: "wasm", dynamic: true });
  for (const n of [2, 3]) await steps.run({ input: zeros(n, 576), h: zeros(1, 1, 128), c: zeros(1, 1, 128) });
  assertEqual(steps.notes, []);
  // both the number of steps and that of sequences change
  const both = await load("/fixtures/onnx/recurrent.onnx", { device: "wasm", dynamic: true });
  for (const [n, batch] of [[2, 3], [3, 2]]) await both.run({ x: zeros(n, batch, 6) });
  assert(/^each length of .* has a plan of its own: .*node/.test(both.notes[0]), `${both.notes}`);
  m.dispose();
  steps.dispose();
  both.dispose();
});
