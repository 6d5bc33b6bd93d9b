// The benchmark's command line: what it does not know is a sentence with what there is.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { test } from "node:test";
import { names } from "../bench/browser/cases.mjs";

const script = fileURLToPath(new URL("../bench/browser/run.mjs", import.meta.url));

/** What the script says of options that it refuses, before it starts anything. */
function refused(...args) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [script, ...args], { encoding: "utf8" });
  assert.deepEqual([status, stdout], [1, ""]);
  return stderr.trim();
}

test("names that the benchmark does not know are said, with those that there are", () => {
  assert.equal(refused("--cases", "softmax,softmux", "--only", "gradloom-wasm"), `bench: there is no case softmux; there are ${names.join(", ")}`);
  assert.match(refused("--only", "gradloom-wosm"), /^bench: there is no column gradloom-wosm; there are gradloom-wasm, /);
  assert.equal(refused("--case", "softmax"), "bench: there is no option --case");
});
