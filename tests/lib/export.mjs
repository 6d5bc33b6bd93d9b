// Runs an exported module in node, for the Rust tests: node export.mjs DIR reads DIR/in0.bin .. and writes DIR/out0.bin ..
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { brotliCompressSync } from "node:zlib";

const dir = process.argv[2];
// the JavaScript of a page on either device; what is as large as the model has kernels and weights lies in files beside it
const size = (name) => brotliCompressSync(readFileSync(join(dir, name))).length;
for (const plan of ["wasm.js", "webgpu.js"]) {
  const bytes = size("model.js") + size(plan);
  console.log(`model.js and ${plan}: ${bytes} bytes (brotli)`);
  assert.ok(bytes <= 30_000, `${dir}: model.js and ${plan} are ${bytes} bytes (brotli)`);
}
// shaders are text that people can read, one for each line of the plan
const { default: plan } = await import(pathToFileURL(join(dir, "webgpu.js")));
const shaders = readFileSync(join(dir, "kernels.wgsl"), "utf8");
console.log(`kernels.wgsl: ${plan.shaders.length} shaders, ${size("kernels.wgsl")} bytes (brotli)`);
assert.deepEqual([...shaders.matchAll(/^\/{4} (\d+) \w+$/gm)].map((m) => Number(m[1])), plan.shaders.map((_, i) => i));
assert.equal(shaders.match(/^@compute @workgroup_size/gm).length, plan.shaders.length);
assert.match(shaders, /^  +\S/m);

const { load, inputs, outputs } = await import(pathToFileURL(join(dir, "model.js")));
const arrays = {
  bool: Uint8Array, u8: Uint8Array, i8: Int8Array, u16: Uint16Array, i16: Int16Array, f16: globalThis.Float16Array ?? Uint16Array,
  bf16: Uint16Array, i32: Int32Array, u32: Uint32Array, f32: Float32Array, i64: BigInt64Array, u64: BigUint64Array, f64: Float64Array,
};
const model = await load();
assert.equal(model.device, "wasm");
const given = Object.fromEntries(
  inputs.map(({ name, dtype }, i) => [name, new arrays[dtype](new Uint8Array(readFileSync(join(dir, `in${i}.bin`))).buffer)]),
);
await assert.rejects(model.run({ ...given, nothing: new Float32Array(1) }), /there is no input `nothing`/);
await assert.rejects(model.run({}), new RegExp(`input \`${inputs[0].name.replace(/[^\w ]/g, ".")}\` is a`));
// two at a time: each gets its own
const both = await Promise.all([model.run(given), model.run(given)]);
outputs.forEach(({ name }, i) => {
  assert.deepEqual(both[0][name], both[1][name]);
  const { buffer, byteOffset, byteLength } = both[1][name];
  writeFileSync(join(dir, `out${i}.bin`), new Uint8Array(buffer, byteOffset, byteLength));
});
