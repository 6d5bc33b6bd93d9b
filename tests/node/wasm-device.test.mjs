// Every sample program on the WASM device in node, with one thread and with workers on shared memory.
import assert from "node:assert/strict";
import { test } from "node:test";
import { samplesOnWasm, workers } from "../lib/conformance.mjs";

const worker = new URL("worker.js", import.meta.resolve("gradloom"));

test("all samples on one thread", () => {
  assert.ok(samplesOnWasm([]) > 300);
});

test("all samples on three threads", async () => {
  const list = await workers(2, worker);
  assert.ok(samplesOnWasm(list) > 300);
  await Promise.all(list.map((w) => w.terminate()));
});
