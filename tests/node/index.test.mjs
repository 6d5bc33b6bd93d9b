// The index of tests (tests/README.md): every file that it names is there, and has what it quotes.
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { test } from "node:test";

const folder = new URL("../", import.meta.url);
const text = readFileSync(new URL("README.md", folder), "utf8");
/** Each row's last cell: a file, then quotes of it, then maybe another file. */
const rows = text.split("\n").filter((line) => /^\| (?!what \||# \||-)/.test(line)).map((line) => line.split("|").at(-2));

test("the index has twenty rows, and more", () => {
  const numbers = [...text.matchAll(/^\| (\d+) \|/gm)].map((m) => Number(m[1]));
  assert.deepEqual(numbers, Array.from({ length: 20 }, (_, i) => i + 1));
  assert.ok(rows.length > 25);
});

test("what it names is there", () => {
  for (const row of rows) {
    let source;
    let named = 0;
    for (const [, file, quote] of row.matchAll(/`([^`]+)`|"([^"]+)"/g)) {
      if (quote !== undefined) {
        assert.ok(source?.includes(quote), `nothing in it is called: ${quote}`);
        continue;
      }
      if (/^(npm|node) /.test(file)) {
        const [, script] = /^npm run (\S+)/.exec(file) ?? [];
        if (script) assert.ok(JSON.parse(readFileSync(new URL("../package.json", folder), "utf8")).scripts[script], `there is no script ${script}`);
        continue;
      }
      const url = new URL(file, folder);
      assert.ok(existsSync(url), `there is no ${file}`);
      source = readFileSync(url, "utf8");
      named += 1;
    }
    assert.ok(named > 0, `no file is named in: ${row}`);
  }
});
