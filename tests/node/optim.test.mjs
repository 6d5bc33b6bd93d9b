// Optimisers from JavaScript, against the numbers of PyTorch 2.15 for the same six steps.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Tensor, init, optim } from "gradloom";

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
