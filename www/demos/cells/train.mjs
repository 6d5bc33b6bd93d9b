// Trains the cells of the gallery's automaton with gradloom, in Node: worlds grow from one cell, some are damaged, and
// the target is always the picture. Grown worlds go back to a pool (Mordvintsev et al. 2020), so that cells learn to
// persist and to heal. The file in the repository took 3,000 iterations with a rim of 2 cells, then about 1,700 that
// continued from it, the last 500 with a rim of 4.
//
// usage: node www/demos/cells/train.mjs [ITERATIONS] [FILE]    after `npm run build`; writes cells.safetensors beside
// this file
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { Tensor, init, loadWeights, saveWeights, tidy } from "gradloom";
import { Adam, clipGradNorm } from "gradloom/optim";
import { CHANNELS, Cells } from "./code.js";
import { moth } from "./moth.js";

const [POOL, BATCH, STEPS] = [24, 3, 24];
const ITERATIONS = Number(process.argv[2] ?? 3000);
const FILE = process.argv[3] ?? new URL("cells.safetensors", import.meta.url);

await init({ device: "wasm", threads: 1 });
Tensor.manualSeed(7);
let state = 1;
const random = () => (state = (Math.imul(state, 1664525) + 1013904223) >>> 0) / 2 ** 32;

const { planes, side } = moth();
const area = side * side;
const size = CHANNELS * area;
const target = new Tensor(planes, [1, 4, side, side]);

function seed() {
  const world = new Float32Array(size);
  for (let c = 3; c < CHANNELS; c += 1) world[c * area + (side >> 1) * side + (side >> 1)] = 1;
  return world;
}

/** Removes a disk of cells from a world. */
function hurt(world) {
  const [radius, turn, far] = [side * (0.12 + 0.14 * random()), 7 * random(), side * 0.3 * random()];
  const [x, y] = [side / 2 + far * Math.cos(turn), side / 2 + far * Math.sin(turn)];
  return world.map((v, i) => (((i % side) - x) ** 2 + (Math.floor((i % area) / side) - y) ** 2 < radius ** 2 ? 0 : v));
}

const difference = (world) => planes.reduce((sum, v, i) => sum + (v - world[i]) ** 2, 0) / planes.length;

const cells = await new Cells().realize();
// continue from an existing file, with a lower learning rate
const more = existsSync(FILE);
if (more) cells.loadStateDict(await loadWeights(readFileSync(FILE)));
else cells.act.weight.assign(Tensor.zeros(cells.act.weight.shape));
const optimizer = new Adam(cells.parameters(), { learningRate: 2e-3 });
const pool = Array.from({ length: POOL }, seed);
const start = performance.now();
let mean = 0;
for (let at = 0; at < ITERATIONS; at += 1) {
  optimizer.learningRate = (more ? 1e-3 : 3e-3) * Math.min(1, (at + 1) / 20) * (at > 0.8 * ITERATIONS ? 0.1 : at > 0.5 * ITERATIONS ? 0.4 : 1);
  const picked = Array.from({ length: BATCH }, () => Math.floor(random() * POOL)).sort((a, b) => difference(pool[b]) - difference(pool[a]));
  const worlds = picked.map((i) => pool[i]);
  worlds[0] = seed();
  if (more || at > 0.1 * ITERATIONS) worlds[BATCH - 1] = hurt(worlds[BATCH - 1]);
  if (more || at > 0.4 * ITERATIONS) worlds[BATCH - 2] = hurt(worlds[BATCH - 2]);
  const before = new Float32Array(BATCH * size);
  worlds.forEach((world, i) => before.set(world, i * size));
  const { loss, after } = tidy(() => {
    let world = new Tensor(before, [BATCH, CHANNELS, side, side]);
    for (let step = 0; step < STEPS; step += 1) world = cells.step(world);
    const away = world.narrow(1, 0, 4).sub(target).square().mean();
    away.backward();
    for (const p of cells.parameters()) clipGradNorm([p], 1e-3);
    return { loss: away, after: world };
  });
  await optimizer.step();
  optimizer.zeroGrad();
  const grown = await after.data("f32");
  picked.forEach((i, row) => (pool[i] = grown.slice(row * size, (row + 1) * size)));
  const value = await loss.item();
  mean = at === 0 ? value : 0.95 * mean + 0.05 * value;
  loss.dispose();
  after.dispose();
  if (at < 5 || at % 50 === 49) {
    const each = picked.map((i) => difference(pool[i]).toFixed(4)).join(" ");
    console.log(`${at + 1}: ${mean.toFixed(5)} (${each}), ${((performance.now() - start) / 1000).toFixed(0)} s`);
    writeFileSync(FILE, await saveWeights(cells.stateDict()));
  }
}
