// The cookbook of the documentation: every program runs by itself, and writes what its comments say.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const folder = new URL("../cookbook/", import.meta.url);
const names = readdirSync(folder).filter((name) => name.endsWith(".mjs")).sort();

test("the cookbook", { concurrency: 2 }, async (t) => {
  assert.ok(names.length >= 20, "there are twenty programs");
  const program = (name) => t.test(name, async () => {
    const file = new URL(name, folder);
    const wanted = [...readFileSync(file, "utf8").matchAll(/^ *\/\/> (.*)$/gm)].map((found) => found[1]);
    assert.ok(wanted.length > 0, "it says what it writes");
    const { stdout } = await promisify(execFile)(process.execPath, [fileURLToPath(file)]);
    assert.deepEqual(stdout.trimEnd().split("\n"), wanted);
  });
  await Promise.all(names.map(program));
});
