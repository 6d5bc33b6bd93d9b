// Random programs of tensor operations on the WASM device in node, against the evaluator; more of them: `npm run fuzz`.
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";
import { Programs } from "../lib/conformance.mjs";
import { programs } from "../lib/suites.mjs";

const files = new URL("../fixtures/fuzz/frontend/", import.meta.url);

test("150 programs have the evaluator's values", async () => {
  assert.deepEqual(await programs(Programs, { from: 1_000_000, count: 150 }), []);
});

test("programs that failed once hold", async () => {
  const suite = await Programs.on(false);
  const names = readdirSync(files).filter((name) => name.endsWith(".txt"));
  assert.ok(names.length > 0, `no programs in ${files}`);
  for (const name of names) {
    assert.equal(await suite.runText(readFileSync(new URL(name, files), "utf8")), undefined, name);
  }
});
