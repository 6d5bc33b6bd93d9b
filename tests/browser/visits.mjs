// Several visits of one profile: what the first compiled, the second finds, and the same numbers come out; entries that were
// damaged, or a storage that refuses, only mean that things are compiled again. Tuned kernels are found again too, and files of models.
// usage: node tests/browser/visits.mjs
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { launchProfile } from "../../scripts/lib/chromium.mjs";
import { main } from "../../scripts/lib/run.mjs";
import { serve } from "../../scripts/serve.mjs";
import { unpackPackage } from "./run.mjs";
import { mounts } from "./suite.mjs";

/** What a visit does, in the page: a model and some tensor work on a device. */
async function visit({ device, options = {}, tune = 0 }) {
  const { Tensor, flushCache, init, load, stats } = await import("/gradloom/index.js");
  const { readNpz } = await import("/lib/npz.mjs");
  const bytes = async (file) => new Uint8Array(await (await fetch(`/models/ppocr_cls/${file}`)).arrayBuffer());
  const started = await init({ device, ...options });
  const input = await readNpz(await bytes("input.npz"));
  const expected = await readNpz(await bytes("expected.npz"));
  const model = await load(await bytes("model.onnx"), { device, worker: false });
  const feeds = Object.fromEntries(Object.entries(input).map(([name, t]) => [name, new Tensor(t.data, t.shape)]));
  const run = async () => {
    const [output] = Object.values(await model.run(feeds));
    return [...(await output.data())];
  };
  const first = await run();
  const timing = model.timing;
  const x = new Tensor(Array.from({ length: 96 * 96 }, (_, i) => (i % 7) - 3), [96, 96]);
  const product = [...(await x.matmul(x).softmax(-1).data())];
  const before = await stats();
  // a machine so busy that nothing came of it gets more time
  let tuned = [];
  for (let ms = tune || Infinity; tuned.length === 0 && ms < 100_000; ms *= 4) tuned = await started.tune({ ms });
  const again = await run();
  await flushCache();
  const want = [...Object.values(expected)[0].data];
  return { first, again, want, product, timing, tuned, stats: before[0], after: (await stats())[0], repeat: model.timing };
}

/** Changes a byte in the middle of every entry. */
async function damage() {
  const done = (request) => new Promise((yes, no) => ((request.onsuccess = () => yes(request.result)), (request.onerror = no)));
  const database = await done(indexedDB.open("gradloom"));
  const transaction = database.transaction(["entries"], "readwrite");
  const store = transaction.objectStore("entries");
  const [keys, values] = await Promise.all([done(store.getAllKeys()), done(store.getAll())]);
  keys.forEach((key, at) => {
    // of all kinds of damage: a changed byte, a cut, and no bytes at all
    const value = at % 3 === 0 ? values[at].slice(0, values[at].length / 2) : at % 3 === 1 ? "no bytes" : values[at];
    if (at % 3 === 2) value[value.length >> 1] ^= 0x40;
    store.put(value, key);
  });
  await new Promise((yes) => (transaction.oncomplete = yes));
  database.close();
  return keys.length;
}

const close = (actual, expected, tolerance, what) => {
  assert.equal(actual.length, expected.length, what);
  const scale = Math.max(...expected.map(Math.abs), 1e-30);
  const worst = Math.max(...expected.map((value, at) => Math.abs(value - actual[at])));
  assert.ok(worst <= tolerance * scale, `${what}: differs by ${worst} of ${scale}`);
};

const counts = ({ plansMade, kernelsCompiled, plansCached, kernelsCached }) => ({ plansMade, kernelsCompiled, plansCached, kernelsCached });

async function device(name, server, { isolated }) {
  const profile = mkdtempSync(join(tmpdir(), "gradloom-profile-"));
  const inPage = async (body, argument, { script = null } = {}) => {
    const context = await launchProfile(profile);
    try {
      const page = await context.newPage();
      if (script) await page.addInitScript(script);
      await page.goto(`${server.url}/page/plain.html`);
      assert.equal(await page.evaluate(() => globalThis.crossOriginIsolated), isolated);
      return await page.evaluate(body, argument);
    } finally {
      await context.close();
    }
  };
  const say = (what, { stats, timing }) => {
    const ms = `model: plan ${timing.planMs.toFixed(0)} ms, device ${timing.deviceMs.toFixed(0)} ms; read ${stats.cache.readMs.toFixed(0)} ms`;
    console.log(`  ${name}, ${what}: ${stats.kernelsCompiled} kernels compiled, ${stats.kernelsCached} cached (${ms})`);
  };
  try {
    const first = await inPage(visit, { device: name });
    say("first visit", first);
    close(first.first, first.want, 1e-3, "first visit");
    assert.ok(first.stats.kernelsCompiled > 20, "the first visit compiles");
    assert.equal(first.stats.kernelsCached, 0);
    assert.equal(first.stats.cache.state, "on");
    assert.equal(first.repeat.kernelsCompiled, 0);

    const second = await inPage(visit, { device: name });
    say("second visit", second);
    assert.deepEqual(counts(second.stats), {
      plansMade: 0, kernelsCompiled: 0, plansCached: first.stats.plansMade, kernelsCached: first.stats.kernelsCompiled,
    });
    assert.deepEqual(second.first, first.first, "the second visit gives the same numbers");
    assert.deepEqual(second.product, first.product);
    assert.equal(second.timing.kernelsCompiled, 0);
    assert.ok(second.timing.kernelsCached > 20);

    if (name !== "wasm") return; // the rest is the same code, and compiling shaders takes long
    assert.ok((await inPage(damage)) >= first.stats.kernelsCompiled);
    const third = await inPage(visit, { device: name });
    say("damaged entries", third);
    assert.deepEqual(counts(third.stats), counts(first.stats), "damaged entries are made again");
    assert.deepEqual(third.first, first.first);
    const fourth = await inPage(visit, { device: name });
    assert.equal(fourth.stats.kernelsCompiled, 0, "and are kept again");

    const off = await inPage(visit, { device: name, options: { cache: false } });
    assert.deepEqual([off.stats.cache.state, off.stats.kernelsCompiled], ["off", first.stats.kernelsCompiled]);
    // storage that throws, that never answers, and that is full
    const broken = {
      failed: "Object.defineProperty(globalThis, 'indexedDB', { value: { open() { throw new DOMException('blocked', 'SecurityError'); } } })",
      mute: "Object.defineProperty(globalThis, 'indexedDB', { value: { open: () => ({}) } })",
      full: "IDBObjectStore.prototype.put = () => { throw new DOMException('full', 'QuotaExceededError'); }",
    };
    for (const [how, script] of Object.entries(broken)) {
      const result = await inPage(visit, { device: name, options: { cache: true } }, { script });
      assert.deepEqual(result.first, first.first, how);
      if (how !== "full") assert.equal(result.stats.cache.state, "failed", how);
    }

    const tuned = await inPage(visit, { device: name, tune: 3000 });
    const faster = tuned.tuned.filter((kernel) => kernel.afterMs < kernel.beforeMs);
    const gain = tuned.tuned.reduce((sum, k) => sum + k.beforeMs * k.launches, 0) / tuned.tuned.reduce((sum, k) => sum + k.afterMs * k.launches, 0);
    console.log(`  ${name}, tuned for 3 s: ${tuned.tuned.length} kernels tried, ${faster.length} exchanged, ${gain.toFixed(2)} times faster`);
    assert.ok(tuned.tuned.length > 0, "kernels were tried");
    assert.equal(tuned.after.kernelsTuned, faster.length);
    close(tuned.again, tuned.want, 1e-3, "the run after tuning");
    assert.equal(tuned.tuned.reduce((sum, kernel) => sum + kernel.wrong, 0), 0, "no candidate gave wrong numbers");
    const after = await inPage(visit, { device: name });
    assert.equal(after.stats.kernelsCompiled, 0, "tuned kernels are found again");
    close(after.first, after.want, 1e-3, "tuned kernels of an earlier visit");

    await inPage(async () => (await import("/gradloom/index.js")).clearCache());
    const cleared = await inPage(visit, { device: name, options: { cache: { limitBytes: 100_000 } } });
    assert.equal(cleared.stats.kernelsCached, 0, "nothing is left after clearCache");
    const small = await inPage(visit, { device: name });
    assert.ok(small.stats.cache.bytes <= 100_000, `${small.stats.cache.bytes} bytes were kept`);
    assert.ok(small.stats.kernelsCompiled > 0, "what did not fit is compiled again");
  } finally {
    rmSync(profile, { recursive: true, force: true });
  }
}

/** A model from a server that says which file it is: the second visit asks, and fetches nothing. */
async function files(gradloom) {
  const profile = mkdtempSync(join(tmpdir(), "gradloom-profile-"));
  const server = await serve(mounts(gradloom), { etags: true });
  const once = async () => {
    const context = await launchProfile(profile);
    try {
      const page = await context.newPage();
      const asked = [];
      page.on("request", (request) => request.url().endsWith("model.onnx") && asked.push(request.method()));
      await page.goto(`${server.url}/page/plain.html`);
      const result = await page.evaluate(async () => {
        const { load } = await import("/gradloom/index.js");
        const { list } = await import("/gradloom/downloads.js");
        const events = [];
        const model = await load("/models/magika/model.onnx", { device: "wasm", onProgress: (p) => events.push(p) });
        const { target_label: p } = await model.run({ bytes: new Int32Array(2048).fill(32) });
        const { loaded, cached } = events.filter(({ phase }) => phase === "download").at(-1);
        return { p: [...(await p.data())], loaded, cached, list: await list() };
      });
      return { asked, ...result };
    } finally {
      await context.close();
    }
  };
  try {
    const [first, second] = [await once(), await once()];
    assert.deepEqual([first.asked, second.asked], [["GET"], ["HEAD"]]);
    assert.deepEqual([first.cached, second.cached, second.loaded], [0, first.loaded, first.loaded]);
    assert.deepEqual(second.p, first.p);
    const [row] = second.list;
    assert.ok(row.url.endsWith("/models/magika/model.onnx") && row.complete && row.bytes === first.loaded, JSON.stringify(row));
    console.log(`  a model of ${(first.loaded / 1e6).toFixed(1)} MB is kept, and only asked for on the second visit`);
  } finally {
    await server.close();
    rmSync(profile, { recursive: true, force: true });
  }
}

main(async () => {
  const gradloom = unpackPackage();
  await files(gradloom);
  for (const isolation of [true, false]) {
    const server = await serve(mounts(gradloom), { isolation });
    try {
      if (isolation) await device("wasm", server, { isolated: true });
      else await device("webgpu", server, { isolated: false });
    } finally {
      await server.close();
    }
  }
  console.log("visits: passed");
});
