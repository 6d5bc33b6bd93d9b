// The tests' own npz reader and writer agree with each other and with a file that numpy wrote.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { readNpz, readZip, writeNpz } from "../lib/npz.mjs";

test("what is written is read back", async () => {
  const arrays = {
    x: { dtype: "<f4", shape: [2, 3], data: Float32Array.of(1, -2.5, Number.NaN, Infinity, 0, 1e-30) },
    n: { dtype: "<i8", shape: [], data: BigInt64Array.of(-(2n ** 62n)) },
    empty: { dtype: "|u1", shape: [0], data: new Uint8Array() },
  };
  assert.deepEqual(await readNpz(writeNpz(arrays)), arrays);
});

test("an archive of numpy is read", async () => {
  const { ids } = await readNpz(readFileSync(new URL("../models/hibari_oov/expected.npz", import.meta.url)));
  assert.deepEqual([ids.dtype, ids.shape, ids.data.slice(0, 6)], ["<i8", [1, 28], BigInt64Array.of(0n, 0n, 24n, 0n, 49n, 49n)]);
});

test("what is no archive is refused", async () => {
  await assert.rejects(readZip(new Uint8Array(100)), /not a zip archive/);
});
