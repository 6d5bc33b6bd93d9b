// Models that learn, in a page on both devices: an encoder's adapters, whose losses are those of the other device, and adapters of a language
// model in its worker.
import { Tensor, init, load, optim, saveWeights } from "gradloom";
import { loadNetwork } from "gradloom/finetune";
import { LLM } from "gradloom/llm";
import { assert, assertClose, assertEqual, deviceKinds, fetchBytes, loadCase, note, test } from "harness";
import { makeAdapter } from "/lib/adapters.mjs";

const seen = {};

for (const device of deviceKinds) {
  test(`adapters of an encoder on ${device}`, async () => {
    await init({ device });
    const { input, expected } = await loadCase("zoo_t5_encoder");
    const given = Object.fromEntries(Object.entries(input).map(([name, { data, shape }]) => [name, new Tensor(data, shape)]));
    const model = "/models/zoo_t5_encoder/model.onnx";
    const net = await loadNetwork(model, { device, lora: { rank: 2 } });
    const [name, want] = Object.entries(expected)[0];
    // adapters begin as nothing
    const first = (await net.run(given))[name];
    assertClose(await first.data(), want.data, { tolerance: 1e-3, what: "the network before it learns" });
    const optimizer = new optim.Adam(net.parameters(), { learningRate: 1e-3 });
    const losses = [];
    for (let step = 0; step < 4; step += 1) losses.push(await optimizer.minimize(() => net.forward(given).square().mean()));
    assert(losses[3] < losses[0], `${losses}`);
    // what is saved has learned
    const saved = await load(await net.save(), { device });
    assertClose(await (await saved.run(given))[name].data(), await (await net.run(given))[name].data(), { tolerance: 1e-3, what: "what is saved" });
    seen[device] = losses;
    await note(`losses ${losses.map((loss) => loss.toPrecision(6)).join(", ")}`);
  });
}

if (deviceKinds.length > 1) {
  test("both devices learn the same", () => assertClose(seen.webgpu, seen.wasm, { tolerance: 1e-4, what: "losses" }));
}

for (const device of deviceKinds) {
  test(`adapters of a language model on ${device}`, async () => {
    await init({ device: "wasm" });
    const [gguf, safetensors] = await Promise.all(["llama.gguf", "llama/model.safetensors"].map((file) => fetchBytes(`/fixtures/llm/${file}`)));
    const { file, config, merged } = await makeAdapter({ Tensor, saveWeights }, { gguf, safetensors }, 3, 6);
    const prompt = [5, 9, 14, 3, 40, 33, 21, 2, 7];
    const llm = await LLM.load(new Blob([gguf]), { device, context: 64, adapters: { one: { from: file, config } } });
    const [plain, own] = await Promise.all([gguf, merged].map((bytes) => LLM.load(new Blob([bytes]), { device, context: 64 })));
    assertEqual(llm.info.adapters, ["one"]);
    const want = { none: await plain.embed(prompt), one: await own.embed(prompt) };
    assert(want.none.some((x, at) => Math.abs(x - want.one[at]) > 1e-2), "the adapter does nothing");
    for (const name of ["one", "none", "one"]) {
      await llm.useAdapter(name === "none" ? null : name);
      assertClose(await llm.embed(prompt), want[name], { tolerance: 1e-4, what: name });
    }
    for (const each of [llm, plain, own]) each.dispose();
  });
}
