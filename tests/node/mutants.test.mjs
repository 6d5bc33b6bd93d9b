// ONNX models changed by their structure on the WASM device in node, against the evaluator; more of them: `npm run fuzz`.
import assert from "node:assert/strict";
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";
import { ChangedModels } from "../lib/conformance.mjs";
import { changedModels } from "../lib/suites.mjs";
import { mutantSuites } from "../lib/mutants.mjs";

const files = new URL("../fixtures/fuzz/models/", import.meta.url);

test("1,000 changed models have the evaluator's values or are refused", async () => {
  const { run, wrong } = await changedModels(ChangedModels, mutantSuites(), { from: 1_000_000, count: 1000 });
  assert.deepEqual(wrong.map(({ seed, what }) => `${seed}: ${what}`), []);
  assert.ok(run > 50, `${run} models were run`);
});

test("changed models that failed once hold", async () => {
  const all = await ChangedModels.on(false, mutantSuites());
  const names = existsSync(files) ? readdirSync(files).filter((name) => name.endsWith(".onnx")) : [];
  for (const name of names) assert.match(await all.runFile(readFileSync(new URL(name, files))), /^(run|refused)$/, name);
});
