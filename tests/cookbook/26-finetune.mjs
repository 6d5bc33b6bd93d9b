// Fine-tune a model from a file. Adapters of low rank learn beside its weights, and the file that is saved is an ONNX model again.
import { Tensor, init, load, optim } from "gradloom";
import { loadNetwork } from "gradloom/finetune";

await init({ device: "wasm" });
const from = new URL("../models/ppocr_cls/model.onnx", import.meta.url);
const net = await loadNetwork(from, { device: "wasm", lora: { rank: 2 } });
const optimizer = new optim.AdamW(net.parameters(), { learningRate: 5e-3 });
const image = Tensor.ones([1, 3, 48, 192]);
const wanted = new Tensor([[0.1, 0.9]]);
const losses = [];
for (let step = 0; step < 5; step += 1) losses.push(await optimizer.minimize(() => net.forward(image).sub(wanted).square().mean()));
console.log(losses[4] < losses[0]);
//> true
const [own] = Object.values(await net.run(image));
const model = await load(await net.save(), { device: "wasm" });
const [saved] = Object.values(await model.run({ [model.inputs[0].name]: image }));
console.log((await own.sub(saved).abs().max().item()) < 1e-4);
//> true
