// A panic, a trap or the end of a thread, wherever it comes: what waits is told, nothing hangs, `init` and the next run start afresh,
// and the process lives on.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { once } from "node:events";
import { test } from "node:test";
import workerThreads from "node:worker_threads";
import { syncBuiltinESMExports } from "node:module";
import { ChatTemplate, InternalError, Tensor, Tokenizer, init, load, memory, torch } from "gradloom";
import * as data from "gradloom/data";
import { endlessModule, settleAll, trapAtClock, trappingExport, trappingModule } from "../lib/wasm_trap.mjs";

// a copy: the import itself would follow what the tests put in its place
const { Worker } = workerThreads;
const pkg = new URL("../node_modules/gradloom/dist/pkg/", import.meta.url);
const good = readFileSync(new URL("gradloom_web_bg.wasm", pkg));
const whole = readFileSync(new URL("gradloom_whole_bg.wasm", pkg));
const MODEL = new URL("../models/silero_vad_op15/model.onnx", import.meta.url);
const inputs = () => ({
  input: new Tensor(new Float32Array(512).map((_, i) => Math.sin(i / 7)), [1, 512]),
  state: new Tensor(new Float32Array(256), [2, 1, 128]),
  sr: new Tensor(BigInt64Array.of(16000n), []),
});
const stopped = (error) => error instanceof InternalError && error.code === "E_INTERNAL" && /the wasm module stopped/.test(error.message);
const lost = (error) => error.code === "E_DEVICE_LOST" && error.name === "DeviceError";

/** The numbers of the model, as a module that nothing happened to gives them. */
async function numbers(model) {
  const out = await model.run(inputs());
  return (await out.output.data())[0];
}

/** Everything that a page may still do with what a module that stopped had given it; with a model, `t` holds i32. */
async function nothingHangs({ t, model }) {
  assert.throws(() => t.add(1), stopped);
  assert.throws(() => new Tensor([1]).add(1), stopped);
  const calls = [t.data(), t.realize(), model?.run(inputs()), model?.strings(t)].filter(Boolean);
  for (const { status, reason } of await settleAll(calls)) {
    assert.equal(status, "rejected");
    assert.ok(stopped(reason), reason);
  }
  t.dispose();
  model?.dispose();
}

/** Ends the module that all share, if it has not ended. */
async function ends() {
  try {
    const t = new Tensor([1]).add(1);
    const end = trapAtClock(1);
    await settleAll([t.data()]);
    end();
  } catch (error) {
    assert.ok(stopped(error) || error.code === "E_STATE", error);
  }
}

async function startsAfresh(threads = 1) {
  await ends();
  await init({ device: "wasm", threads, bytes: good });
  assert.deepEqual(await new Tensor([1, 2, 3]).add(1).tolist(), [2, 3, 4]);
  return load(MODEL, { device: "wasm" });
}

let want;
const uncaught = [];
process.on("uncaughtException", (error) => uncaught.push(error));
process.on("unhandledRejection", (error) => uncaught.push(error));

test("what the model gives", async () => {
  want = await numbers(await startsAfresh());
  assert.ok(want > 0 && want < 1, String(want));
});

test("a trap in a call, and while a model loads", async () => {
  for (const name of ["runtime_op", "runtime_onnx", "runtime_tensor"]) {
    await init({ device: "wasm", threads: 1 });
    const old = new Tensor([1, 2]).add(1);
    // ends the shared module, so that the next one is what the test gives
    const end = trapAtClock(1);
    await assert.rejects(old.data(), stopped);
    assert.ok(end());
    await init({ device: "wasm", threads: 1, bytes: trappingExport(whole, name) });
    if (name === "runtime_onnx") await assert.rejects(load(MODEL, { device: "wasm" }), stopped);
    else assert.throws(() => new Tensor([1, 2]).add(1), stopped);
    await nothingHangs({ t: old });
    assert.equal(await numbers(await startsAfresh()), want);
  }
});

test("a panic says what it was", async () => {
  const model = await startsAfresh();
  const t = new Tensor([1, 2]).add(1).cast("i32");
  const { Module } = WebAssembly;
  // the module is called while it holds its engine: that is a panic of its own
  WebAssembly.Module = class extends Module {
    constructor(bytes) {
      super(bytes);
      model.device.raw.counters();
    }
  };
  const runs = [model.run(inputs()), t.data()];
  const [first, second] = await settleAll(runs);
  WebAssembly.Module = Module;
  assert.equal(first.status, "rejected");
  assert.match(first.reason.message, /^the wasm module stopped: RefCell already mutably borrowed/);
  // the place in the source is not in the module, but the function is in the frames
  assert.match(first.reason.cause.fullStack ?? first.reason.cause.stack, /wasm-function\[\d+\]/);
  assert.ok(stopped(second.reason));
  await nothingHangs({ t, model });
  assert.equal(await numbers(await startsAfresh()), want);
});

test("a trap at any point of two runs, a computation and a readback", async () => {
  let points = 0;
  // the clock is looked at hundreds of times: each of the first, and of the others every so many
  for (let n = 1; ; n += 1 + (n >> 4)) {
    const model = await startsAfresh();
    const t = new Tensor([1, 2]).add(1).cast("i32");
    const end = trapAtClock(n);
    // a run that need not wait may end the module before the next call begins
    const calls = [() => model.run(inputs()), () => t.data(), () => model.run(inputs()), () => t.mul(2).realize()];
    const results = await settleAll(calls.map(async (call) => call()));
    const reached = end();
    for (const { status, reason } of results) assert.ok(status === "fulfilled" || (reached && stopped(reason)), reason);
    if (!reached) break;
    points += 1;
    assert.ok(results.some(({ status }) => status === "rejected"));
    await nothingHangs({ t, model });
  }
  assert.ok(points > 10, `${points} points`);
  assert.equal(await numbers(await startsAfresh()), want);
});

test("stack and memory of the module that are used up", async () => {
  for (let round = 0; round < 2; round += 1) {
    await startsAfresh();
    const t = new Tensor([1, 2]).add(1);
    if (round === 0) {
      const deep = () => {
        try {
          deep();
        } catch {
          t.add(1).dispose();
        }
      };
      // where the stack ends is not for us to say: it may be in our own script, or in the module
      try {
        deep();
      } catch (error) {
        assert.ok(error instanceof RangeError || stopped(error), error);
      }
    } else {
      // more than all of a module's memory
      const files = [];
      const file = new Uint8Array(2 ** 30);
      await assert.rejects(async () => {
        for (let i = 0; i < 5; i += 1) {
          files.push(new t.device.engine.api.FileBuffer(file.length));
          files.at(-1).push(file);
        }
      });
    }
    const [{ status, value, reason }] = await settleAll([t.data()]);
    assert.ok(status === "fulfilled" ? value[0] === 2 : stopped(reason), reason);
    assert.equal(await numbers(await startsAfresh()), want);
  }
});

test("modules that are loaded on first use end alone", async () => {
  const shared = await startsAfresh();
  const json = JSON.stringify({ model: { type: "WordLevel", vocab: { a: 0, u: 1 }, unk_token: "u" }, pre_tokenizer: { type: "Whitespace" } });
  const messages = [{ role: "user", content: "b" }];
  const cases = [
    ["rawtokenizer_windows", async () => [await Tokenizer.fromJson(json), (made) => made.encode("a a")], [0, 0]],
    ["rawchattemplate_apply", async () => [await ChatTemplate.fromSource("{{ messages[0].content }}"), (made) => made.apply(messages)], "b"],
    ["graph", async () => [await torch(), (made) => made.square(new Tensor([3])).tolist()], [9]],
    ["idx", async () => [data, (made) => made.readIdx(Uint8Array.of(0, 0, 8, 1, 0, 0, 0, 1, 7))], { dtype: "u8", shape: [1], bytes: Uint8Array.of(7) }],
  ];
  for (const [name, make, right] of cases) {
    const { instantiate } = WebAssembly;
    // parts of the main module come compiled, and are left alone
    const trapping = (from) => (from instanceof WebAssembly.Module ? from : trappingExport(from, name));
    WebAssembly.instantiate = (from, imports) => instantiate(trapping(from), imports);
    const [made, call] = await make().catch((error) => {
      WebAssembly.instantiate = instantiate;
      throw error;
    });
    const attempts = [1, 2].map(async () => call(made));
    const results = await settleAll(attempts).finally(() => (WebAssembly.instantiate = instantiate));
    for (const { reason } of results) assert.ok(stopped(reason), reason);
    if (made instanceof Tokenizer) made.dispose();
    const [again] = await make();
    assert.deepEqual(await call(again), right, name);
  }
  assert.equal(await numbers(shared), want);
});

test("an isolated device ends alone, by itself and by dispose", async () => {
  const shared = await startsAfresh();
  const device = await init({ device: "wasm", threads: 1, isolated: true });
  const [model, t] = [await load(MODEL, { device }), new Tensor([1, 2], null, { device }).add(1)];
  assert.equal(model.device, device);
  assert.equal(await numbers(model), want);
  assert.notEqual(new Tensor([1]).add(1).device, device);
  assert.equal((await memory()).length, 2);
  const run = numbers(model);
  device.dispose();
  for (const call of [() => run, () => model.run(inputs()), () => t.data()]) {
    await assert.rejects(call, (error) => error.code === "E_STATE" && /disposed/.test(error.message));
  }
  assert.equal((await memory()).length, 1);
  const other = await init({ device: "wasm", threads: 1, isolated: true });
  const second = await load(MODEL, { device: other });
  const end = trapAtClock(3);
  const [result] = await settleAll([second.run(inputs())]);
  assert.ok(end());
  assert.ok(stopped(result.reason));
  // the device says so, too
  const { reason, message } = await other.lost;
  assert.deepEqual([reason, message], ["unknown", result.reason.message]);
  const third = await init({ device: "wasm", threads: 1, isolated: true });
  third.dispose();
  assert.equal((await third.lost).reason, "destroyed");
  assert.equal(await Promise.race([shared.device.lost, "there"]), "there");
  assert.equal(await numbers(shared), want);
  assert.throws(() => shared.device.dispose(), { code: "E_STATE" });
});

test("a kernel that traps loses the device, and the next run has another one", async () => {
  for (const threads of [1, 3]) {
    await startsAfresh(threads);
    const kept = new Tensor([1, 2]).add(1);
    await kept.realize();
    const model = await load(MODEL, { device: "wasm" });
    const { Module } = WebAssembly;
    WebAssembly.Module = function (bytes) {
      return new Module(trappingModule(bytes));
    };
    const result = await settleAll([model.run(inputs())]).finally(() => (WebAssembly.Module = Module));
    assert.ok(lost(result[0].reason), result[0].reason);
    assert.match(result[0].reason.message, /a kernel failed/);
    const why = await Promise.race([model.device.lost, new Promise((done) => setTimeout(done, 1000))]);
    assert.match(why?.message, /a kernel failed/);
    assert.throws(() => new Tensor([1]).add(1), lost);
    assert.equal(await numbers(model), want);
    assert.deepEqual(await new Tensor([1, 2]).add(1).tolist(), [2, 3]);
  }
});

/** A device whose threads the test can reach, with kernels that never end in them where the test says so. */
async function withThreads(n, kernels = "right") {
  const workers = [];
  workerThreads.Worker = class extends Worker {
    constructor(...args) {
      super(...args);
      workers.push(this);
    }

    postMessage(message) {
      if (message.kind === "start") start = message;
      super.postMessage(message.kind === "load" && kernels === "endless" ? { ...message, module: endless.get(message.module) } : message);
    }
  };
  syncBuiltinESMExports();
  let start;
  const endless = new Map();
  const { Module } = WebAssembly;
  if (kernels === "endless") {
    WebAssembly.Module = function (bytes) {
      const module = new Module(bytes);
      // kernels are exported by number, what the driver exports has names
      if (Module.exports(module).every(({ name }) => /^\d+$/.test(name))) endless.set(module, new Module(endlessModule(bytes)));
      return module;
    };
  }
  const model = await startsAfresh(n).finally(() => {
    workerThreads.Worker = Worker;
    syncBuiltinESMExports();
  });
  assert.equal(workers.length, n - 1);
  // the package lets go of them, and here their end is waited for
  workers.forEach((worker) => worker.ref());
  // how many threads are in a kernel, see core/src/render/wasm/driver.rs
  const inside = () => Atomics.load(new Int32Array(start.memory.buffer, start.sync, 1), 0) - 2;
  return { model, workers, inside, restore: () => (WebAssembly.Module = Module) };
}

test("threads that end between runs are done without", async () => {
  const { model, workers } = await withThreads(4);
  assert.equal(await numbers(model), want);
  for (const worker of workers) {
    const gone = once(worker, "exit");
    await worker.terminate();
    await gone;
    assert.equal(await numbers(model), want);
  }
});

test("a thread that does not come back from a kernel, or ends in it, loses the device, not the page", async () => {
  for (const dies of [false, true]) {
    const { model, workers, inside, restore } = await withThreads(2, "endless");
    const gone = once(workers[0], "exit");
    const a = new Tensor(new Float32Array(1024 * 1024).fill(0.5), [1024, 1024]);
    const product = a.matmul(a);
    await product.realize();
    while (inside() < 1) await new Promise((done) => setTimeout(done, 1));
    if (dies) {
      await workers[0].terminate();
      await gone;
    }
    const { now } = performance;
    let looks = 0;
    // a look at the clock takes half a minute, or a second once the end of the thread is known
    performance.now = () => now.call(performance) + (dies ? 1 : 30) * 1000 * looks++;
    const [result] = await settleAll([product.data()]).finally(() => {
      performance.now = now;
      restore();
    });
    assert.ok(lost(result.reason), result.reason);
    assert.match(result.reason.message, /a worker thread did not come back/);
    assert.equal(await numbers(model), want);
    await gone;
  }
});

test("a thread that does not start is done without", async () => {
  await ends();
  let made = 0;
  workerThreads.Worker = class extends Worker {
    constructor(url, options) {
      made += 1;
      super(made === 1 ? new URL("data:text/javascript,throw new Error('no')") : url, options);
    }
  };
  syncBuiltinESMExports();
  const { threads } = await init({ device: "wasm", threads: 3 }).finally(() => {
    workerThreads.Worker = Worker;
    syncBuiltinESMExports();
  });
  assert.equal(threads, 2);
  assert.deepEqual(await new Tensor([1, 2]).add(1).tolist(), [2, 3]);
});

test("nothing came to the process itself", () => {
  assert.deepEqual(uncaught, []);
});
