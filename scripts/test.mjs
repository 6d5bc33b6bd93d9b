// `npm test`: every test of the project, from a fresh clone. Stages run in order and the first failure ends the run.
// usage: node scripts/test.mjs [--only a,b] [--from a] [--list]
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { fetchData } from "./fetch-models.mjs";
import { buildPackage, buildSite, buildWasm, checkTypes, unpackInto } from "./lib/package.mjs";
import { Failure, main, root, run, runInBackground } from "./lib/run.mjs";
import { setup } from "./lib/system.mjs";

/**
 * Native tests are compiled with little optimisation; crates that would make a test very slow are optimised in
 * Cargo.toml.
 */
const stages = {
  setup: () => setup(),
  fetch: () => fetchData(),
  build: () => buildInParallel(),
  rust: () => {
    const tests = runInBackground("cargo", ["test", ...nativePackages, "--no-fail-fast"], { stdio: "inherit" });
    // if the module build fails meanwhile, the tests are ended
    return Promise.race([tests, wasmBuild?.then(() => tests) ?? tests]).then(() => run("cargo", ["test", "--package", "xtask"]));
  },
  wasm: () => {
    if (wasmBuild) return wasmBuild;
    buildWasm();
    run("cargo", ["xtask", "wasm", "--tests"]);
  },
  package: () => buildPackage(),
  node: () => {
    unpackInto(join(root, "tests"));
    const files = readdirSync(join(root, "tests/node")).filter((name) => name.endsWith(".test.mjs"));
    run("node", ["--test", "--test-reporter=spec", `--test-concurrency=${availableParallelism()}`, ...files.map((name) => `tests/node/${name}`)]);
  },
  consumers: () => run("node", ["tests/consumers/run.mjs"]),
  browser: () => {
    run("node", ["tests/browser/run.mjs", "--selftest"]);
    run("node", ["tests/browser/run.mjs"]);
    run("node", ["tests/browser/visits.mjs"]);
    run("node", ["tests/browser/crash.mjs"]);
    run("node", ["tests/browser/numerics.mjs"]);
  },
  site: async () => {
    await buildSite();
    run("node", ["scripts/native-pages.mjs", "--check"]);
  },
  demo: () => {
    run("node", ["tests/browser/demo.mjs"]);
    run("node", ["tests/browser/copied.mjs"]);
  },
};

/**
 * What the native tests are built of. The package xtask is tested by itself: among the others cargo would build its
 * dependencies, which are large, a second time with other features. Those of the web are tested as the modules that
 * they become.
 */
const nativePackages = [
  ...["gradloom-core", "gradloom", "gradloom-tests", "gradloom-cuda-emulator"].flatMap((name) => ["--package", name]),
  ...["--features", "gradloom-tests/wgpu"],
];

/** The build of the wasm modules, if this run has started it. */
let wasmBuild;

/**
 * Starts in parallel what later stages need. The wasm modules are optimised function by function on one core, and the
 * native build and tests use the remaining cores; the stage `wasm` waits for the modules. Later stages build nothing
 * again. Output of the native build is shown as it comes, that of the modules when they are done.
 */
async function buildInParallel() {
  run("cargo", ["build", "--quiet", "--package", "xtask"]);
  const xtask = join(process.env.CARGO_TARGET_DIR ?? join(root, "target"), "debug/xtask");
  wasmBuild = runInBackground(xtask, ["wasm"]).then(() => runInBackground(xtask, ["wasm", "--tests"]));
  const native = runInBackground("cargo", ["test", ...nativePackages, "--no-run"], { stdio: "inherit" });
  await Promise.race([native, wasmBuild.then(() => native)]);
}

/** Stages for --only, which other stages cover in a whole run. */
const extraStages = {
  tidy: () => run("cargo", ["xtask", "tidy"]),
  types: () => {
    if (!existsSync(join(root, "web/pkg"))) buildWasm();
    checkTypes();
  },
};

function selectStages(argv) {
  const value = (name) => (argv.includes(name) ? argv[argv.indexOf(name) + 1] : undefined);
  const names = Object.keys(stages);
  const only = value("--only")?.split(",");
  const from = value("--from");
  for (const name of only ?? (from ? [from] : [])) {
    if (!stages[name] && !extraStages[name]) throw new Failure(`test: there is no stage \`${name}\`; there are ${names.join(", ")}`);
  }
  return only ?? names.slice(from ? names.indexOf(from) : 0);
}

/** The file in which tests record what they skip, since test runners show no output of passing tests. */
const skipLog = join(root, "target/left-out.txt");

/** The skipped tests, once each, with the reason. */
function skippedTests() {
  const lines = existsSync(skipLog) ? readFileSync(skipLog, "utf8").trim().split("\n") : [];
  return [...new Set(lines)].sort().map((line) => `  ${line}\n`).join("");
}

const seconds = (since) => ((performance.now() - since) / 1000).toFixed(1);

main(async () => {
  if (process.argv.includes("--list")) {
    console.log([...Object.keys(stages), ...Object.keys(extraStages)].join("\n"));
    return;
  }
  const names = selectStages(process.argv.slice(2));
  const whole = performance.now();
  mkdirSync(join(root, "target"), { recursive: true });
  rmSync(skipLog, { force: true });
  process.env.GRADLOOM_LEFT_OUT = skipLog;
  const table = [];
  for (const name of names) {
    console.log(`\n== ${name} == (after ${seconds(whole)} s)`);
    const start = performance.now();
    try {
      await { ...stages, ...extraStages }[name]();
    } catch (error) {
      const text = error instanceof Failure ? error.message : error.stack;
      throw new Failure(`\ntest: stage \`${name}\` failed after ${seconds(start)} s\n${text}\n(again: npm test -- --only ${name})`);
    }
    table.push(`  ${name.padEnd(10)} ${seconds(start).padStart(7)} s`);
  }
  await wasmBuild;
  const skipped = skippedTests();
  if (skipped) console.log(`\ntest: left out\n${skipped}`);
  console.log(`\ntest: all passed\n${table.join("\n")}\n  ${"total".padEnd(10)} ${seconds(whole).padStart(7)} s`);
});
