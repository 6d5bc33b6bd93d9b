// Runs complete external test suites: `npm run conformance:onnx`, `npm run conformance:opset` (its cases in each
// operator set) and `npm run conformance:torch`; and `npm run features`, which writes FEATURES.md from the results of
// all suites on every device.
//
// usage: node scripts/conformance.mjs onnx|contrib|ml|opset|torch [--device cpu] [--filter TEXT] [--every N] [--onnxruntime]
//        node scripts/conformance.mjs features [--keep]
//
// Devices are those of `gradloom devices`, wasm (in node) and webgpu (in Chromium), both of which require a previous
// `npm test -- --only wasm`; for onnx and opset also onnxruntime, which --onnxruntime abbreviates. The cases come from
// PyPI's `onnx`, installed into .cache. --every N runs every N-th case of torch's suite. --keep reuses results in
// .cache/conformance, to resume an interrupted run.
import { spawnSync } from "node:child_process";
import { closeSync, existsSync, openSync, readFileSync, renameSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { python } from "./lib/python.mjs";
import { Failure, main, output, root, run } from "./lib/run.mjs";

const cache = join(root, ".cache/conformance");
const interpreter = join(cache, "venv/bin/python");
const DEVICES = ["CPU", "C", "WASM", "WGPU", "WEBGPU"];
/** The project's own suites: operators of com.microsoft and of ai.onnx.ml. */
const OWN_SUITES = ["contrib", "ml"];
const archive = (suite) => (OWN_SUITES.includes(suite) ? join(root, `tests/fixtures/onnx/${suite}.zip`) : join(cache, `${suite}_cases.zip`));

/**
 * The devices in FEATURES.md for each suite. The meaning of an operator set does not depend on shaders, so `opset`
 * skips GPUs.
 */
const SUITE_DEVICES = { onnx: [...DEVICES, "onnxruntime"], contrib: DEVICES, ml: DEVICES, opset: ["CPU", "WASM"], torch: DEVICES };

function prepare(suites, locks) {
  python(cache, locks);
  for (const suite of suites) {
    if (existsSync(archive(suite))) continue;
    run(interpreter, [`tests/conformance/${suite}_cases.py`, `${archive(suite)}.part`]);
    renameSync(`${archive(suite)}.part`, archive(suite));
  }
}

/** The command that runs a suite on a device. */
function command(suite, device, { filter = "", every = 1 } = {}) {
  const [program, file] = suite === "torch" ? ["torch", []] : ["onnx", [archive(suite)]];
  if (device === "onnxruntime") return [interpreter, ["tests/conformance/onnxruntime_suite.py", ...file, filter]];
  if (device === "webgpu") {
    return ["node", ["tests/browser/conformance.mjs", program, ...file, "--filter", filter, "--every", String(every)]];
  }
  const rest = suite === "torch" ? [filter, String(every)] : [filter];
  if (device === "wasm") return ["node", [`tests/lib/${program}_suite.mjs`, ...file, ...rest]];
  const features = device.startsWith("wgpu") ? ["--features", "gradloom-tests/wgpu"] : [];
  return ["cargo", ["run", "--quiet", "-p", "gradloom-tests", ...features, "--example", `${program}_suite`, "--", ...file, device, ...rest]];
}

function features(keep) {
  const results = Object.entries(SUITE_DEVICES).flatMap(([suite, devices]) =>
    devices.map((device) => {
      const file = join(cache, `${suite}.${device}.txt`);
      if (!keep || !existsSync(file)) {
        console.log(`${suite} on ${device}`);
        const partialFile = `${file}.part`;
        const out = openSync(partialFile, "w");
        // failures are in the suite's output lines, so its exit status is not needed
        const done = spawnSync(...command(suite, device.toLowerCase()), { cwd: root, stdio: ["ignore", out, "inherit"] });
        closeSync(out);
        if (done.signal) throw new Failure(`${suite} on ${device} was ended by ${done.signal}`);
        if (statSync(partialFile).size === 0) throw new Failure(`${suite} on ${device} has no results`);
        renameSync(partialFile, file);
      }
      return `${suite}.${device}=${file}`;
    }),
  );
  const groups = join(cache, "groups.txt");
  writeFileSync(groups, output("cargo", ["run", "--quiet", "-p", "gradloom-tests", "--example", "torch_suite", "--", "--groups"]));
  const archives = ["onnx", ...OWN_SUITES].map((suite) => `${suite}=${archive(suite)}`);
  const file = join(root, "FEATURES.md");
  // the section on GPU drivers is made by `npm run features:drivers` and kept as it is
  const [drivers = ""] = readFileSync(file, "utf8").match(/## Drivers\n[^]*?(?=## torch's operators\n)/) ?? [];
  const text = output(interpreter, ["tests/conformance/features.py", groups, ...archives, ...results]);
  writeFileSync(file, text.replace("## torch's operators\n", () => `${drivers}## torch's operators\n`));
}

main(() => {
  const [what, ...args] = process.argv.slice(2);
  const value = (name, otherwise) => (args.includes(name) ? args[args.indexOf(name) + 1] : otherwise);
  const device = args.includes("--onnxruntime") ? "onnxruntime" : value("--device", "cpu");
  const suites = Object.keys(SUITE_DEVICES);
  if (![...suites, "features"].includes(what)) throw new Failure(`conformance: name one of ${suites.join(", ")}, or features`);
  if (what === "features") {
    prepare(["onnx", "opset"], ["conformance", "onnxruntime"]);
    features(args.includes("--keep"));
    return;
  }
  // the expected results of the older operator sets come from onnxruntime as well
  const locks = ["conformance", ...(what === "opset" || device === "onnxruntime" ? ["onnxruntime"] : [])];
  if (what !== "torch") prepare(OWN_SUITES.includes(what) ? [] : [what], locks);
  run(...command(what, device, { filter: value("--filter", ""), every: value("--every", 1) }));
});
