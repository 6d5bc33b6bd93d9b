// `npm run numerics`: records the results of torch and onnxruntime at the edge cases of every type, compares every
// device of this machine with them, including those in node and Chromium, and writes docs/numerics.md from the
// measurements. Both come from PyPI into .cache, which takes some gigabytes.
//
// usage: node scripts/numerics.mjs [--keep]   (--keep reuses existing records)
import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { main, root, run } from "./lib/run.mjs";
import { runTests } from "./lib/tests.mjs";

const PACKAGES = ["torch==2.15.0", "numpy==2.4.6", "onnx==1.23.2", "onnxruntime==1.31.1", "ml_dtypes==0.6.0"];
const cache = join(root, ".cache/numerics");
const python = join(cache, "venv/bin/python");

main(() => {
  if (!process.argv.includes("--keep")) {
    mkdirSync(cache, { recursive: true });
    if (!existsSync(python)) run("python3", ["-m", "venv", join(cache, "venv")]);
    run(python, ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", ...PACKAGES]);
    run(python, ["tests/conformance/numerics.py", "tests/fixtures/numerics/cases.txt"]);
    run(python, ["tests/conformance/numerics_onnx.py", "tests/fixtures/numerics/cases.txt", "tests/fixtures/numerics"]);
  }
  process.env.BLESS = "1";
  run("cargo", ["xtask", "wasm", "--tests"]);
  run("node", ["--test", "tests/node/numerics.test.mjs"]);
  run("node", ["tests/browser/numerics.mjs"]);
  runTests(["edges_of_every_type"], { args: ["--features", "gradloom-tests/wgpu"] });
});
