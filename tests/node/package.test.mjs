// The packed package in Node: what it holds, and that it starts.
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";
import { init, probeWebGpu, version } from "gradloom";

const folder = new URL("../node_modules/gradloom/", import.meta.url);
const manifest = JSON.parse(readFileSync(new URL("package.json", folder), "utf8"));

test("these tests run against the packed package, not the workspace", () => {
  assert.equal(import.meta.resolve("gradloom"), new URL("dist/index.js", folder).href);
});

test("the package has no run-time dependency and no install script", () => {
  assert.equal(manifest.dependencies, undefined);
  assert.equal(manifest.scripts, undefined);
});

test("the licences are in it, and no source", () => {
  const names = readdirSync(folder).sort();
  assert.deepEqual(names, ["LICENSE-APACHE", "LICENSE-MIT", "README.md", "dist", "package.json"]);
});

test("every export names a file", () => {
  for (const entry of Object.values(manifest.exports).flatMap((value) => (typeof value === "string" ? [value] : Object.values(value)))) {
    assert.ok(readFileSync(new URL(entry, folder)).length > 0, entry);
  }
});

test("it starts in Node and says that there is no WebGPU", async () => {
  await init();
  assert.equal(version(), manifest.version);
  assert.equal(await probeWebGpu(), null);
});
