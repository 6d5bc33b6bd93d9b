// `npm run conformance:onnx`: the whole ONNX backend suite on a device of this machine.
// usage: node scripts/conformance-onnx.mjs [--device cpu] [--filter TEXT] [--onnxruntime] [--wasm] [--features]
// The cases come from PyPI's `onnx`, installed into .cache; --onnxruntime counts what onnxruntime passes of the same cases,
// --wasm runs them in node (after `npm test -- --only wasm`), --features writes FEATURES.md from both.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { main, root, run } from "./lib/run.mjs";

const PACKAGES = ["onnx==1.23.2", "ml_dtypes==0.6.0"];
const RUNTIME = "onnxruntime==1.31.1";

main(async () => {
  const args = process.argv.slice(2);
  const value = (name, otherwise) => (args.includes(name) ? args[args.indexOf(name) + 1] : otherwise);
  const device = value("--device", "cpu");
  const filter = value("--filter", "");
  const cache = join(root, ".cache/conformance");
  const python = join(cache, "venv/bin/python");
  const cases = join(cache, "onnx_cases.zip");
  mkdirSync(cache, { recursive: true });
  if (!existsSync(python)) run("python3", ["-m", "venv", join(cache, "venv")]);
  const wanted = args.includes("--onnxruntime") ? [...PACKAGES, RUNTIME] : PACKAGES;
  run(python, ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", ...wanted]);
  if (!existsSync(cases)) run(python, ["tests/conformance/onnx_cases.py", cases]);
  if (args.includes("--onnxruntime")) {
    run(python, ["tests/conformance/onnxruntime_suite.py", cases, filter]);
  } else if (args.includes("--features")) {
    const suites = {
      CPU: ["cargo", ["run", "-p", "gradloom-tests", "--example", "onnx_suite", "--", cases, "cpu"]],
      WASM: ["node", ["tests/lib/onnx_suite.mjs", cases]],
    };
    const lines = (program, rest) => spawnSync(program, rest, { cwd: root, encoding: "utf8", maxBuffer: 1 << 28 }).stdout;
    const results = Object.entries(suites).map(([device, [program, rest]]) => {
      const file = join(cache, `${device}.txt`);
      writeFileSync(file, lines(program, rest));
      return `${device}=${file}`;
    });
    writeFileSync(join(root, "FEATURES.md"), lines(python, ["tests/conformance/features.py", cases, ...results]));
  } else if (args.includes("--wasm")) {
    run("node", ["tests/lib/onnx_suite.mjs", cases, filter]);
  } else {
    const features = device === "wgpu" ? ["--features", "gradloom-tests/wgpu"] : [];
    run("cargo", ["run", "-p", "gradloom-tests", ...features, "--example", "onnx_suite", "--", cases, device, filter]);
  }
});
