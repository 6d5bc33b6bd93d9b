// Every sample program on the WASM device in node, with one thread and with workers on shared memory.
import assert from "node:assert/strict";
import { test } from "node:test";
import { samplesOnWasm } from "../lib/conformance.mjs";

const { startWorkers } = await import(new URL("workers.js", import.meta.resolve("gradloom")));

test("all samples on one thread", () => {
  assert.ok(samplesOnWasm([]) > 300);
});

test("all samples on three threads", async () => {
  const { workers: list } = await startWorkers(2, () => {});
  assert.ok(samplesOnWasm(list) > 300);
  await Promise.all(list.map((w) => w.terminate()));
});
