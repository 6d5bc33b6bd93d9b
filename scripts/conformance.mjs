// The suites that others wrote, whole: `npm run conformance:onnx` and `npm run conformance:torch`, and `npm run features`, which
// writes FEATURES.md from both on every device.
// usage: node scripts/conformance.mjs onnx|torch [--device cpu] [--filter TEXT] [--every N] [--onnxruntime]
//        node scripts/conformance.mjs features [--keep]
// Devices: those of `gradloom devices`, and wasm (in node) and webgpu (in Chromium), for which `npm test -- --only wasm` must have
// run. ONNX's cases come from PyPI's `onnx`, installed into .cache; --onnxruntime counts what onnxruntime passes of them. --keep
// takes results that are in .cache/conformance already, so that a run that was interrupted goes on.
import { spawnSync } from "node:child_process";
import { closeSync, existsSync, mkdirSync, openSync, renameSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Failure, main, output, root, run } from "./lib/run.mjs";

const PACKAGES = ["onnx==1.23.2", "ml_dtypes==0.6.0"];
const RUNTIME = "onnxruntime==1.31.1";
const cache = join(root, ".cache/conformance");
const python = join(cache, "venv/bin/python");
const cases = join(cache, "onnx_cases.zip");

/** What FEATURES.md tells. */
const TABLE = { onnx: ["CPU", "C", "WASM", "WGPU", "WEBGPU"], torch: ["CPU", "C", "WASM", "WGPU", "WEBGPU"] };

function prepare(packages) {
  mkdirSync(cache, { recursive: true });
  if (!existsSync(python)) run("python3", ["-m", "venv", join(cache, "venv")]);
  run(python, ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", ...packages]);
  if (!existsSync(cases)) run(python, ["tests/conformance/onnx_cases.py", cases]);
}

/** The program that runs a suite on a device. */
function command(suite, device, { filter = "", every = 1 } = {}) {
  const file = suite === "onnx" ? [cases] : [];
  if (device === "webgpu") {
    return ["node", ["tests/browser/conformance.mjs", suite, ...file, "--filter", filter, "--every", String(every)]];
  }
  const rest = suite === "onnx" ? [filter] : [filter, String(every)];
  if (device === "wasm") return ["node", [`tests/lib/${suite}_suite.mjs`, ...file, ...rest]];
  const features = device.startsWith("wgpu") ? ["--features", "gradloom-tests/wgpu"] : [];
  return ["cargo", ["run", "--quiet", "-p", "gradloom-tests", ...features, "--example", `${suite}_suite`, "--", ...file, device, ...rest]];
}

function features(keep) {
  const results = Object.entries(TABLE).flatMap(([suite, devices]) =>
    devices.map((device) => {
      const file = join(cache, `${suite}.${device}.txt`);
      if (!keep || !existsSync(file)) {
        console.log(`${suite} on ${device}`);
        const begun = `${file}.part`;
        const out = openSync(begun, "w");
        // a suite that fails has said so in its lines
        const done = spawnSync(...command(suite, device.toLowerCase()), { cwd: root, stdio: ["ignore", out, "inherit"] });
        closeSync(out);
        if (done.signal) throw new Failure(`${suite} on ${device} was ended by ${done.signal}`);
        if (statSync(begun).size === 0) throw new Failure(`${suite} on ${device} has no results`);
        renameSync(begun, file);
      }
      return `${suite}.${device}=${file}`;
    }),
  );
  const groups = join(cache, "groups.txt");
  writeFileSync(groups, output("cargo", ["run", "--quiet", "-p", "gradloom-tests", "--example", "torch_suite", "--", "--groups"]));
  writeFileSync(join(root, "FEATURES.md"), output(python, ["tests/conformance/features.py", cases, groups, ...results]));
}

main(() => {
  const [what, ...args] = process.argv.slice(2);
  const value = (name, otherwise) => (args.includes(name) ? args[args.indexOf(name) + 1] : otherwise);
  const filter = value("--filter", "");
  const reference = args.includes("--onnxruntime");
  if (what !== "torch") prepare(reference ? [...PACKAGES, RUNTIME] : PACKAGES);
  if (what === "features") features(args.includes("--keep"));
  else if (what === "onnx" && reference) run(python, ["tests/conformance/onnxruntime_suite.py", cases, filter]);
  else if (what === "onnx" || what === "torch") run(...command(what, value("--device", "cpu"), { filter, every: value("--every", 1) }));
  else throw new Failure("conformance: name a suite, onnx or torch, or `features`");
});
