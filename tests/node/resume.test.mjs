// A training that is interrupted and resumed goes the very way of one that was not.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, rmSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Tensor, init, loadWeights, memory, nn, optim, saveWeights } from "gradloom";
import { DataLoader } from "gradloom/data";
import { fileCheckpoint, fit } from "gradloom/fit";
import * as rules from "gradloom/optim";

await init();

/** Storage in memory, which remembers every file that it was given. */
function memoryCheckpoint(file) {
  const files = file ? [file] : [];
  return { files, save: async (bytes) => void files.push(bytes), load: async () => files.at(-1), delete: async () => void files.splice(0) };
}

const EPOCHS = 4;
const inputs = Array.from({ length: 22 }, (_, i) => [Math.sin(i), Math.cos(2 * i), i / 22]);
const targets = inputs.map(([a, b, c]) => [a * b + c]);

/** Everything that takes part in a training as it is in the beginning: dropout, batch norms, noise, a schedule, a shuffled loader. */
function training() {
  Tensor.manualSeed(3);
  const net = new nn.Sequential(new nn.Linear(3, 16), new nn.BatchNorm(16), (x) => x.tanh(), new nn.Dropout(0.2), new nn.Linear(16, 1));
  const optimizer = new optim.AdamW(net.parameters(), { learningRate: 0.02 });
  const scheduler = new rules.LRScheduler(optimizer, rules.Schedule.cosine({ steps: 30 }));
  const loader = new DataLoader({ x: inputs, y: targets }, { batchSize: 4, shuffle: 7 });
  const validation = new DataLoader({ x: inputs, y: targets }, { batchSize: 11 });
  const loss = ({ x, y }) => net.forward(net.training ? x.add(Tensor.randn(x.shape).mul(0.01)) : x).mseLoss(y);
  return { net, loader, options: { optimizer, scheduler, validation, loss, epochs: EPOCHS } };
}

/** Trains, until the signal of a step if there is one; returns what came of it and the losses of all steps. */
async function train(given = {}, stopAt) {
  const { net, loader, options } = training();
  const stop = new AbortController();
  const losses = [];
  const onStep = ({ step, loss }) => {
    losses.push([step, loss, options.optimizer.learningRate]);
    if (step === stopAt) stop.abort();
  };
  const fitted = await fit(net, loader, { ...options, onStep, signal: stop.signal, ...given });
  return { net, fitted, losses };
}

const weightsOf = async (net) => Promise.all(Object.values(net.stateDict()).map(async (t) => [...(await t.data())]));
const curve = ({ epochs }) => epochs.map(({ epoch, loss, validation, best }) => ({ epoch, loss, validation, best }));

const whole = await train({ resume: memoryCheckpoint() });

test("it is saved after each epoch, and a run that is done is not done again", async () => {
  const resume = memoryCheckpoint();
  const first = await train({ resume });
  assert.equal(resume.files.length, EPOCHS);
  assert.deepEqual(first.losses, whole.losses);
  assert.equal(first.losses.length, 6 * EPOCHS);
  const again = await train({ resume });
  assert.deepEqual([again.losses, again.fitted.ended, resume.files.length], [[], "epochs", EPOCHS]);
  assert.deepEqual(curve(again.fitted), curve(whole.fitted));
  assert.deepEqual(await weightsOf(again.net), await weightsOf(whole.net));
  // more epochs go on from there
  const longer = await train({ resume, epochs: EPOCHS + 1 });
  const unbroken = await train({ epochs: EPOCHS + 1 });
  assert.deepEqual(longer.losses, unbroken.losses.slice(-6));
});

test("ended by a signal at any step, it goes on with the very losses of a run without interruption", async () => {
  for (const stopAt of [1, 5, 6, 7, 15]) {
    const resume = memoryCheckpoint();
    const first = await train({ resume }, stopAt);
    assert.deepEqual([first.fitted.ended, first.losses.length], ["signal", stopAt]);
    const second = await train({ resume });
    assert.deepEqual([...first.losses, ...second.losses], whole.losses, `after step ${stopAt}`);
    assert.deepEqual(curve(second.fitted), curve(whole.fitted));
    assert.deepEqual(await weightsOf(second.net), await weightsOf(whole.net));
  }
});

test("a failure between two saves loses the steps after the last one, which are done again", async () => {
  const resume = memoryCheckpoint();
  const onStep = ({ step }) => {
    if (step === 11) throw new Error("the power failed");
  };
  await assert.rejects(train({ resume, saveEvery: 4, onStep }), /the power failed/);
  // after steps 4 and 8, and after the epoch at step 6
  assert.equal(resume.files.length, 3);
  const { losses } = await train({ resume });
  assert.deepEqual(losses, whole.losses.slice(8));
});

test("patience and the best weights outlive an interruption", async () => {
  const network = async () => {
    const net = new nn.Linear(1, 1, { bias: false });
    await net.loadStateDict({ weight: new Tensor([[0]]) });
    const optimizer = new optim.SGD(net.parameters(), { learningRate: 1 });
    return { net, optimizer };
  };
  const run = async (resume, signal) => {
    const { net, optimizer } = await network();
    // steps of 1 towards 10, while the validation wants 3
    const loss = ({ to }) => net.weight.sub(to).abs().sum();
    const onStep = ({ step }) => step === signal?.step && signal.controller.abort();
    const options = { optimizer, loss, epochs: 100, patience: 2, validation: [{ to: 3 }], resume, onStep, signal: signal?.controller.signal };
    return { net, fitted: await fit(net, [{ to: 10 }], options) };
  };
  const resume = memoryCheckpoint();
  await run(resume, { step: 5, controller: new AbortController() });
  const { net, fitted } = await run(resume);
  assert.deepEqual([fitted.ended, fitted.best, fitted.epochs.map((e) => e.validation)], ["patience", 2, [2, 1, 0, 1, 2]]);
  assert.equal(await net.weight.item(), 3);
  const { net: other, fitted: again } = await run(resume);
  assert.deepEqual([again.ended, again.epochs.length, await other.weight.item()], ["patience", 5, 3]);
});

test("generators and arrays go on too, and files that are something else are errors", async () => {
  const batches = Array.from({ length: 3 }, (_, i) => ({ x: new Tensor([inputs[i]]), y: new Tensor([targets[i]]) }));
  const run = async (resume, stopAt) => {
    const { net, options } = training();
    const stop = new AbortController();
    const losses = [];
    const onStep = ({ step, loss }) => void (losses.push(loss), step === stopAt && stop.abort());
    const loss = ({ x, y }) => net.layers[4].forward(net.layers[0].forward(x)).mseLoss(y);
    await fit(net, batches, { ...options, loss, validation: undefined, resume, onStep, signal: stop.signal });
    return losses;
  };
  const resume = memoryCheckpoint();
  const [first, second, unbroken] = [await run(resume, 4), await run(resume), await run(memoryCheckpoint())];
  assert.deepEqual([...first, ...second], unbroken);
  const weights = await saveWeights(new nn.Linear(3, 2).stateDict());
  await assert.rejects(train({ resume: memoryCheckpoint(weights) }), { code: "E_FORMAT", hint: /only weights/ });
  await assert.rejects(train({ resume: memoryCheckpoint(Uint8Array.of(1, 2, 3)) }), { code: "E_FORMAT" });
  const net = new nn.Linear(3, 1);
  const options = { optimizer: new optim.SGD(net.parameters(), { learningRate: 1 }), loss: ({ x, y }) => net.forward(x).mseLoss(y) };
  await assert.rejects(fit(net, batches, { ...options, resume: memoryCheckpoint(resume.files.at(-1)) }), { code: "E_VALUE" });
  await assert.rejects(fit(net, batches, { ...options, saveEvery: 0 }), { code: "E_VALUE" });
});

test("nothing is left behind", async () => {
  const tensors = async () => (await memory())[0].tensors;
  const resume = memoryCheckpoint();
  await train({ resume, patience: 3 }, 9);
  const { net, loader, options } = training();
  await fit(net, loader, { ...options, resume, patience: 3, epochs: 2 });
  const before = await tensors();
  await fit(net, loader, { ...options, resume, patience: 3, epochs: 3 });
  assert.ok((await tensors()) <= before + 2, `${before} tensors became ${await tensors()}`);
});

test("a process that is killed leaves a file from which another one goes on", async () => {
  const folder = new URL("../tmp/resume/", import.meta.url);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const path = fileURLToPath(new URL("run.safetensors", folder));
  const program = (killAt) => `
    import { Tensor, init, nn, optim } from "gradloom";
    import { DataLoader } from "gradloom/data";
    import { fileCheckpoint, fit } from "gradloom/fit";
    await init();
    const net = new nn.Sequential(new nn.Linear(3, 8), new nn.Dropout(0.5), (x) => x.tanh(), new nn.Linear(8, 1));
    const x = Array.from({ length: 12 }, (_, i) => [i / 12, Math.sin(i), 1]);
    const loader = new DataLoader({ x, y: x.map(([a, b]) => [a * b]) }, { batchSize: 3, shuffle: true });
    const optimizer = new optim.Adam(net.parameters(), { learningRate: 0.01 });
    const resume = ${killAt === undefined ? "undefined" : `fileCheckpoint(${JSON.stringify(path)})`};
    const loss = ({ x, y }) => net.forward(x).mseLoss(y);
    const onStep = ({ step, loss }) => { console.log(step, loss); if (step === ${killAt}) process.kill(process.pid, "SIGKILL"); };
    await fit(net, loader, { optimizer, loss, epochs: 3, resume, saveEvery: 2, onStep });
  `;
  const run = (killAt) => {
    const options = { cwd: new URL("..", import.meta.url), encoding: "utf8" };
    const { stdout, signal, stderr } = spawnSync(process.execPath, ["--input-type=module", "-e", program(killAt)], options);
    assert.ok(signal === (killAt > 0 ? "SIGKILL" : null), stderr);
    return stdout.trim().split("\n");
  };
  const unbroken = run();
  assert.equal(unbroken.length, 12);
  // killed in the step after a save
  const [first, second] = [run(7), run(-1)];
  assert.deepEqual([...first.slice(0, 6), ...second], unbroken);
  const weights = await loadWeights(path);
  assert.ok(weights["network.0.weight"] && weights["optimizer.step"]);
  assert.ok(!existsSync(`${path}.part`));
  const place = fileCheckpoint(path);
  await place.delete();
  assert.equal(await place.load(), undefined);
});
