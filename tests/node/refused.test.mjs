// Memory of the wasm device that does not grow, from any of its attempts on: the error says so by its code, nothing else is harmed, and the
// same computation gives the right numbers once there is memory.
import assert from "node:assert/strict";
import { test } from "node:test";
import { OutOfMemoryError, Tensor, init, load } from "gradloom";

const MODEL = new URL("../models/silero_vad_op15/model.onnx", import.meta.url);
const { grow } = WebAssembly.Memory.prototype;

/** Refuses growth after so many more times, until the function that it returns is called: whether it refused any. */
function refuseAfter(times) {
  let [left, refused] = [times, false];
  WebAssembly.Memory.prototype.grow = function (pages) {
    if (left <= 0) {
      refused = true;
      throw new RangeError("no memory");
    }
    left -= 1;
    return grow.call(this, pages);
  };
  return () => {
    WebAssembly.Memory.prototype.grow = grow;
    return refused;
  };
}

/** Refuses the first, the second .. attempt of `make`'s job. Returns how often it failed. */
async function everyAttempt(make, want) {
  for (let times = 0; ; times += 1) {
    const device = await init({ device: "wasm", threads: 1, isolated: true });
    const job = await make(device);
    const end = refuseAfter(times);
    let [value, error] = [undefined, undefined];
    try {
      value = await job();
    } catch (thrown) {
      error = thrown;
    }
    const refused = end();
    if (error) {
      assert.ok(refused && error instanceof OutOfMemoryError, `${times}: ${error.stack}`);
      assert.equal(error.code, "E_OUT_OF_MEMORY");
    } else {
      // it asks for less when much is refused
      assert.deepEqual(value, want, `${times}`);
    }
    assert.deepEqual(await job(), want, `${times}: afterwards`);
    device.dispose();
    if (!refused) return times;
  }
}

test("tensors", async () => {
  const side = 512;
  const data = Float32Array.from({ length: side * side }, (_, at) => at % 100);
  const make = (device) => {
    const t = new Tensor(data, [side, side], { device });
    const [twice, turned] = [t.mul(2), t.add(1).permute([1, 0]).contiguous()];
    return async () => {
      await turned.realize();
      return [...(await twice.add(turned).data()).subarray(0, 3), ...(await twice.data()).subarray(0, 3)];
    };
  };
  const at = (row, column) => data[row * side + column];
  const want = [0, 1, 2].map((i) => 2 * at(0, i) + at(i, 0) + 1).concat([0, 1, 2].map((i) => 2 * at(0, i)));
  assert.ok((await everyAttempt(make, want)) >= 3);
});

test("a model", async () => {
  const make = async (device) => {
    const model = await load(MODEL, { device });
    return async () => {
      const inputs = {
        input: new Tensor(new Float32Array(512).map((_, i) => Math.sin(i / 7)), [1, 512], { device }),
        state: new Tensor(new Float32Array(256), [2, 1, 128], { device }),
        sr: new Tensor(BigInt64Array.of(16000n), [], { device }),
      };
      return [...(await (await model.run(inputs)).output.data())];
    };
  };
  const device = await init({ device: "wasm", threads: 1, isolated: true });
  const want = await (await make(device))();
  device.dispose();
  assert.ok((await everyAttempt(make, want)) >= 1);
});
