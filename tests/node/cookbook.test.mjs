// The cookbook of the documentation: every program runs by itself, and writes what its comments say.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { leftOut } from "../lib/left_out.mjs";

const folder = new URL("../cookbook/", import.meta.url);
const names = readdirSync(folder).filter((name) => name.endsWith(".mjs")).sort();

/** Whether a program imports what `gradloom export` has not written yet. */
function lacks(name) {
  const [, module] = /from "(\.\.\/tmp\/[^"]+)"/.exec(readFileSync(new URL(name, folder), "utf8")) ?? [];
  if (!module || existsSync(new URL(module, folder))) return false;
  return leftOut(`cookbook/${name}`, "run `cargo test -p gradloom-tests --test it -- export::` first");
}

test("the cookbook", { concurrency: 2 }, async (t) => {
  assert.ok(names.length >= 20, "there are twenty programs");
  const program = (name) => t.test(name, { skip: lacks(name) }, async () => {
    const file = new URL(name, folder);
    const wanted = [...readFileSync(file, "utf8").matchAll(/^ *\/\/> (.*)$/gm)].map((found) => found[1]);
    assert.ok(wanted.length > 0, "it says what it writes");
    const { stdout } = await promisify(execFile)(process.execPath, [fileURLToPath(file)]);
    assert.deepEqual(stdout.trimEnd().split("\n"), wanted);
  });
  await Promise.all(names.map(program));
});
