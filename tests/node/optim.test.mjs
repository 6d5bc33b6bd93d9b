// Optimisers, schedules and limits on gradients from JavaScript, against the numbers of PyTorch.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Tensor, ValueError, init, loadWeights, optim, saveWeights } from "gradloom";
import * as all from "gradloom/optim";
import { cases, close } from "./cases.mjs";

/** Name, class, options, the parameter after the first and after the sixth step. */
const CASES = [
  ["SGD", "SGD", { learningRate: 0.05 }, [0.885, -1.96, 0.39625, 3.165], [0.4924728, -1.7552865, 0.1266624, 3.992172]],
  [
    "SGD with momentum and decay", "SGD", { learningRate: 0.05, momentum: 0.9, weightDecay: 0.1 },
    [0.88, -1.95, 0.39375, 3.15], [-0.380385, -1.110417, -0.3669019, 5.570621],
  ],
  [
    "SGD with Nesterov's momentum", "SGD", { learningRate: 0.05, momentum: 0.9, nesterov: true },
    [0.7815, -1.924, 0.302875, 3.3135], [-0.3085267, -1.1007133, -0.2017055, 6.3370852],
  ],
  ["Adam", "Adam", { learningRate: 0.1 }, [0.9, -1.9, 0.4, 3.1], [0.4161971, -1.3993347, -0.0463409, 3.600173]],
  [
    "Adam with L2", "Adam", { learningRate: 0.1, betas: [0.8, 0.95], eps: 1e-6, weightDecay: 0.1 },
    [0.9, -1.9, 0.4, 3.1], [0.42224, -1.4002937, -0.0318918, 3.5999048],
  ],
  ["AdamW", "AdamW", { learningRate: 0.1, weightDecay: 0.2 }, [0.88, -1.86, 0.39, 3.04], [0.335638, -1.200529, -0.0667994, 3.2284436]],
];

for (const [name, kind, options, first, sixth] of CASES) {
  test(name, async () => {
    await init();
    const p = new Tensor([1, -2, 0.5, 3], [4], { requiresGrad: true });
    const c = new Tensor([1, 0.5, 2, -1]);
    const optimizer = new optim[kind]([p], options);
    for (let step = 1; step <= 6; step += 1) {
      optimizer.zeroGrad();
      c.mul(p).mul(p).sum().add(p.mul(p).mul(p).sum().mul(0.1)).backward();
      await optimizer.step();
      const expected = { 1: first, 6: sixth }[step];
      if (!expected) continue;
      const actual = await p.data();
      expected.forEach((value, at) => assert.ok(Math.abs(actual[at] - value) <= 1e-5 * 7, `step ${step}: ${actual} is not ${expected}`));
    }
    optimizer.dispose();
  });
}

test("an optimiser goes on where another one was", async () => {
  await init();
  const [momentum, lrDecay] = [0.5, 0.01];
  const kinds = {
    SGD: { momentum }, Adam: {}, AdamW: { weightDecay: 0.2 }, RMSprop: { momentum, centered: true }, Adagrad: { lrDecay },
    Adamax: {}, LAMB: {}, Lion: {}, Adafactor: {},
  };
  for (const [kind, options] of Object.entries(kinds)) {
    const make = (values) => {
      const own = values.map((v) => new Tensor(v, [2, 2], { requiresGrad: true }));
      return [own, new all[kind](own, { learningRate: 0.05, ...options })];
    };
    const run = async (own, optimizer, steps) => {
      for (let step = 0; step < steps; step += 1) await optimizer.minimize(() => own[0].matmul(own[1]).sub(1).square().sum());
      return Promise.all(own.map((t) => t.data()));
    };
    const first = [[1, -2, 0.5, 3], [0.25, 1, -1, 2]];
    const whole = await run(...make(first), 6);
    const [own, optimizer] = make(first);
    const values = await run(own, optimizer, 4);
    const file = await saveWeights(optimizer.stateDict());
    const [again, other] = make(values);
    await other.loadStateDict(await loadWeights(file));
    assert.deepEqual(await run(again, other, 2), whole, kind);
    await assert.rejects(other.loadStateDict({}), { code: "E_VALUE", message: /step is missing/ });
    const others = Object.fromEntries(Object.keys(other.stateDict()).map((name) => [name, Tensor.zeros([name === "step" ? 1 : 3])]));
    await assert.rejects(other.loadStateDict(others), ValueError);
  }
});

/** Recorded cases: class and options. Twenty steps on matrices where the name begins with opt20, else five. */
const RECORDED = {
  opt_sgd: ["SGD", { learningRate: 0.01 }],
  opt_momentum: ["SGD", { learningRate: 0.01, momentum: 0.9, weightDecay: 0.1 }],
  opt_nesterov: ["SGD", { learningRate: 0.01, momentum: 0.8, nesterov: true }],
  opt_adam: ["Adam", { learningRate: 0.05 }],
  opt_adam_decay: ["Adam", { learningRate: 0.05, betas: [0.8, 0.95], eps: 1e-6, weightDecay: 0.1 }],
  opt_adamw: ["AdamW", { learningRate: 0.05, weightDecay: 0.2 }],
  opt20_rmsprop: ["RMSprop", { learningRate: 0.01, weightDecay: 0.1 }],
  opt20_rmsprop_centered: ["RMSprop", { learningRate: 0.01, momentum: 0.5, centered: true }],
  opt20_adagrad: ["Adagrad", { learningRate: 0.1, lrDecay: 0.01 }],
  opt20_adadelta: ["Adadelta", {}],
  opt20_adamax: ["Adamax", { learningRate: 0.05 }],
  opt20_adafactor: ["Adafactor", { learningRate: 0.05, weightDecay: 0.1 }],
  opt20_muon: ["Muon", { learningRate: 0.02 }],
  opt20_lamb: ["LAMB", { learningRate: 0.05, weightDecay: 0.1 }],
  opt20_lars: ["LARS", { learningRate: 1, weightDecay: 0.1 }],
  opt20_lion: ["Lion", { learningRate: 0.01, weightDecay: 0.1 }],
};

test("every recorded optimiser is run", () => {
  assert.deepEqual([...cases.keys()].filter((name) => name.startsWith("opt")).sort(), Object.keys(RECORDED).sort());
});

for (const [name, [kind, options]] of Object.entries(RECORDED)) {
  test(name, async () => {
    await init();
    const { inputs, outs } = cases.get(name);
    const [p, q, a, b] = inputs.map(({ shape, values }, at) => new Tensor(values, shape, { requiresGrad: at < 2 }));
    const optimizer = new all[kind]([p, q], options);
    const twenty = name.startsWith("opt20");
    const steps = twenty ? 20 : 5;
    const loss = () => twenty ? p.tanh().matmul(q).sub(a).square().sum() : p.mul(q).mul(a).sub(b).square().sum().add(q.square().sum());
    for (let step = 0; step < steps; step += 1) {
      optimizer.zeroGrad();
      loss().backward();
      await optimizer.step();
    }
    for (const [at, t] of [p, q].entries()) close(`${name} parameter ${at}`, await t.data(), [...outs[at].values]);
    optimizer.dispose();
  });
}

test("parameters of other ranks", async () => {
  await init();
  // a scalar, a vector and a stack of matrices go where their gradients do not point
  const run = async (optimizer, p) => {
    const before = await p.square().sum().item();
    for (let step = 0; step < 3; step += 1) {
      optimizer.zeroGrad();
      p.square().sum().backward();
      await optimizer.step();
    }
    assert.ok((await p.square().sum().item()) < before, `${optimizer.constructor.name} of shape [${p.shape}]`);
    optimizer.dispose();
  };
  for (const kind of ["RMSprop", "Adagrad", "Adadelta", "Adamax", "LAMB", "LARS", "Lion", "Adafactor"]) {
    for (const shape of [[], [3], [2, 3, 2]]) {
      const p = Tensor.full(shape, 1.5, { requiresGrad: true });
      await run(new all[kind]([p], { learningRate: 0.01 }), p);
    }
  }
  const vector = Tensor.ones([3], { requiresGrad: true });
  assert.throws(() => new all.Muon([vector]), { code: "E_VALUE" });
});

/** By torch's schedulers, from the base rate 1: factors at the steps counted from 0. */
const SCHEDULES = {
  constant: [[undefined, { 0: 1, 50: 1 }]],
  // StepLR(step_size=30), gamma 0.1
  step: [[{ size: 30 }, { 0: 1, 29: 1, 30: 0.1, 59: 0.1, 60: 0.01, 90: 0.001 }]],
  multiStep: [[{ milestones: [30, 80] }, { 29: 1, 30: 0.1, 79: 0.1, 80: 0.01 }], [{ milestones: [2], gamma: 0.5 }, { 1: 1, 2: 0.5 }]],
  exponential: [[{ gamma: 0.9 }, { 0: 1, 1: 0.9, 3: 0.729 }]],
  linear: [[{ start: 0.5, steps: 4 }, { 0: 0.5, 1: 0.625, 2: 0.75, 3: 0.875, 4: 1, 9: 1 }], [undefined, { 0: 1 / 3, 5: 1 }]],
  polynomial: [[{ steps: 4 }, { 0: 1, 1: 0.75, 2: 0.5, 3: 0.25, 4: 0, 5: 0 }], [{ steps: 4, power: 2 }, { 1: 0.5625 }]],
  cosine: [[{ steps: 4, floor: 0.2 }, { 0: 1, 1: 0.8828427, 2: 0.6, 3: 0.3171573, 4: 0.2, 8: 1 }]],
  // CosineAnnealingWarmRestarts(T_0=2, T_mult=2): periods of 2, 4, 8
  cosineRestarts: [[{ steps: 2, factor: 2 }, { 0: 1, 1: 0.5, 2: 1, 3: 0.8535534, 4: 0.5, 6: 1, 10: 0.5, 14: 1 }]],
  // OneCycleLR(total_steps=10): up to the peak in 2 steps, down in 7
  oneCycle: [
    [{ steps: 10 }, { 0: 0.04, 1: 0.52, 2: 1, 3: 0.9504846, 9: 4e-6 }],
    [{ steps: 10, share: 0.1 }, { 0: 1, 9: 4e-6 }],
  ],
  warmup: [[{ steps: 4 }, { 0: 0.25, 3: 1, 4: 1 }], [{ steps: 2, then: all.Schedule.exponential({ gamma: 0.5 }) }, { 0: 0.5, 1: 1, 2: 1, 3: 0.5 }]],
};

test("schedules", () => {
  const made = Object.getOwnPropertyNames(all.Schedule).filter((name) => typeof all.Schedule[name] === "function");
  assert.deepEqual(made.sort(), Object.keys(SCHEDULES).sort());
  for (const [name, list] of Object.entries(SCHEDULES)) {
    for (const [options, factors] of list) {
      const { at } = all.Schedule[name](options);
      for (const [step, want] of Object.entries(factors)) {
        const got = at(Number(step));
        assert.ok(Math.abs(got - want) <= 1e-6 * want + 1e-12, `${name} at ${step}: ${got} is not ${want}`);
      }
    }
  }
});

test("a scheduler sets the rate that the next step takes", async () => {
  await init();
  const p = new Tensor([10], null, { requiresGrad: true });
  const optimizer = new optim.SGD([p], { learningRate: 0.5 });
  const scheduler = new all.LRScheduler(optimizer, all.Schedule.step({ size: 1, gamma: 0.1 }));
  const values = [];
  for (let step = 0; step < 3; step += 1) {
    optimizer.zeroGrad();
    p.sum().backward();
    await optimizer.step();
    scheduler.step();
    values.push(await p.item());
  }
  close("values", values, [9.5, 9.45, 9.445], 1e-6);
  close("rate", [optimizer.learningRate], [5e-4], 1e-9);
  assert.equal(scheduler.steps, 3);
});

test("gradients are limited by their joint norm", async () => {
  await init();
  // the gradients of half the sum of squares are the parameters; their norm is 13. The joint norm is, as torch's, that of the norms
  const start = [[3, -4], [12]];
  for (const [norm, total] of [[2, 13], [1, 19], [Infinity, 12], [-Infinity, 3], [0, 2], [3, (27 + 64 + 1728) ** (1 / 3)]]) {
    for (const limit of [total / 2, 2 * total]) {
      const params = start.map((values) => new Tensor(values, null, { requiresGrad: true }));
      const optimizer = new optim.SGD(params, { learningRate: 1 });
      const loss = Tensor.cat(params).square().sum().div(2);
      loss.backward();
      const found = all.clipGradNorm(params, limit, norm);
      await optimizer.step();
      const factor = Math.min(1, limit / (total + 1e-6));
      close(`steps by norm ${norm}`, await Tensor.cat(params).data(), start.flat().map((v) => v - v * factor), 1e-5);
      // both are those from before the step
      close(`norm ${norm}`, [await found.item()], [total], 1e-5);
      close("loss", [await loss.item()], [84.5], 1e-6);
    }
  }
  assert.throws(() => all.clipGradNorm([new Tensor([1], null, { requiresGrad: true })], 1), { code: "E_VALUE" });
});

test("gradients are limited by value", async () => {
  await init();
  const p = new Tensor([3, -4, 0.5], null, { requiresGrad: true });
  const loss = p.square().sum().div(2);
  loss.backward();
  all.clipGradValue([p, new Tensor([1], null, { requiresGrad: true })], 2);
  assert.deepEqual(await p.grad.tolist(), [2, -2, 0.5]);
  await new optim.SGD([p], { learningRate: 1 }).step();
  assert.deepEqual(await p.tolist(), [1, -2, 0]);
  assert.equal(await loss.item(), 12.625);
});

test("every loss of a sum of gradients is that from before the step", async () => {
  await init();
  const p = new Tensor([2], null, { requiresGrad: true });
  const [a, b] = [p.square().sum(), p.mul(3).sum()];
  a.backward();
  b.backward();
  await new optim.SGD([p], { learningRate: 1 }).step();
  assert.deepEqual([await p.item(), await a.item(), await b.item()], [2 - (4 + 3), 4, 6]);
});

test("where a loss takes long the page has its turn before the gradients, and the step is the same", async () => {
  await init();
  const stepped = async (ms) => {
    const p = new Tensor([1, -2, 0.5, 3], [4], { requiresGrad: true });
    let [turned, between] = [false, undefined];
    const loss = () => {
      setImmediate(() => (turned = true));
      const end = performance.now() + ms;
      while (performance.now() < end);
      const t = p.mul(p).sum();
      const own = t.backward;
      t.backward = () => {
        between = turned;
        own.call(t);
      };
      return t;
    };
    const value = await new optim.SGD([p], { learningRate: 0.1 }).minimize(loss);
    return { between, value, after: [...(await p.data())], gradient: p.grad };
  };
  const [quick, long] = [await stepped(0), await stepped(30)];
  assert.equal(long.between, true);
  assert.deepEqual([quick.value, quick.gradient], [14.25, null]);
  assert.deepEqual({ ...long, between: quick.between }, quick);
  close("weights", quick.after, [0.8, -1.6, 0.4, 2.4]);
});
