// Fuzzing for a given time.
//
// usage: npm run fuzz -- [--target calls|frontend|models|parsers|wasm|wasm-models] [--minutes 5] [--seed 1] [--devices
// cuda,cpu]
//
// A finding is written to tests/fixtures/fuzz/TARGET, where every test run starts with it. The targets are in
// tests/fuzz/main.rs; wasm and wasm-models run the frontend's programs and mutated models on the WASM device in node,
// which requires a previous `npm test -- --only wasm`.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Failure, main, root, run } from "./lib/run.mjs";

/** The test that implements each target. */
const TARGETS = {
  calls: "calls::methods_on_any_arguments_end",
  frontend: "frontend::programs_have_the_evaluators_values",
  models: "models::changed_models_do_no_harm",
  parsers: "parsers::parsers_survive_mutated_files",
};
const findings = join(root, "tests/fixtures/fuzz");

/** Runs random programs on the WASM device until the time is up. */
async function wasm(minutes, seed) {
  const { Programs } = await import("../tests/lib/conformance.mjs");
  const { programs } = await import("../tests/lib/suites.mjs");
  const until = performance.now() + minutes * 60_000;
  let [done, found] = [0, 0];
  while (performance.now() < until) {
    const from = seed * 2 ** 32 + done;
    for (const [i, text] of (await programs(Programs, { from, count: 100 })).entries()) {
      const file = join(findings, `frontend/wasm-${from}-${i}.txt`);
      mkdirSync(join(findings, "frontend"), { recursive: true });
      writeFileSync(file, `${text}\n`);
      console.error(`found ${file}\n${text}`);
      found += 1;
    }
    done += 100;
  }
  console.log(`wasm: ${done} programs, ${found} findings`);
  if (found > 0) throw new Failure("fuzz: there are findings");
}

/** Runs mutated models on the WASM device until the time is up. */
async function wasmModels(minutes, seed) {
  const { ChangedModels } = await import("../tests/lib/conformance.mjs");
  const { changedModels } = await import("../tests/lib/suites.mjs");
  const { mutantSuites } = await import("../tests/lib/mutants.mjs");
  const until = performance.now() + minutes * 60_000;
  let [inspected, run, longest, slowest] = [0, 0, 0, 0n];
  const known = new Set();
  while (performance.now() < until) {
    const from = seed * 2 ** 32 + inspected;
    const some = await changedModels(ChangedModels, mutantSuites(), { from, count: 10_000 });
    for (const { seed: each, op, what, file } of some.wrong) {
      // keep one finding of each kind
      const kind = `${op} ${what.split(/[0-9]/)[0]}`;
      if (known.has(kind)) continue;
      known.add(kind);
      const path = join(findings, `models/${op}-wasm-${each}.onnx`);
      mkdirSync(join(findings, "models"), { recursive: true });
      writeFileSync(path, file);
      console.error(`found ${path}: ${what}`);
    }
    inspected += 10_000;
    run += some.run;
    if (some.longest > longest) [longest, slowest] = [some.longest, some.slowest];
  }
  console.log(`wasm-models: ${inspected} models inspected, ${run} run, ${known.size} findings, the longest, ${slowest}, took ${longest.toFixed(0)} ms`);
  if (known.size > 0) throw new Failure("fuzz: there are findings");
}

const IN_NODE = { wasm, "wasm-models": wasmModels };

main(async () => {
  const args = process.argv.slice(2);
  const value = (name, otherwise) => (args.includes(name) ? args[args.indexOf(name) + 1] : otherwise);
  const [target, minutes, seed] = [value("--target", "frontend"), Number(value("--minutes", 5)), Number(value("--seed", 1))];
  if (!(minutes > 0) || !Number.isInteger(seed)) throw new Failure("fuzz: --minutes and --seed are numbers");
  if (IN_NODE[target]) return IN_NODE[target](minutes, seed);
  if (!TARGETS[target]) throw new Failure(`fuzz: there is no target \`${target}\`; there are ${[...Object.keys(TARGETS), ...Object.keys(IN_NODE)].join(", ")}`);
  const env = {
    ...process.env,
    GRADLOOM_FUZZ_MINUTES: String(Math.ceil(minutes)),
    GRADLOOM_FUZZ_SEED: String(seed),
    GRADLOOM_FUZZ_FINDINGS: findings,
    ...(args.includes("--devices") && { GRADLOOM_FUZZ_DEVICES: value("--devices") }),
  };
  const test = ["test", "--release", "-p", "gradloom-tests", "--features", "gradloom-tests/wgpu", "--test", "fuzz"];
  run("cargo", [...test, "--", "--exact", "--nocapture", TARGETS[target]], { env });
});
