// Checks the cost model against time: predicts and measures some thousand kernels of each target, and prints how far they are apart.
// usage: node tests/bench/model/run.mjs [--fit] [--score] [--release] [--in DIR] [TARGET..]
// TARGET is cpu (one thread), cpu2, wasm (in Node) or wgpu; all of them if none is named. --score takes the times of earlier runs, --fit
// prints prices that fit them better. Times are the least of all runs so far: run it again where the machine was busy.
// BLOCKS and VARIED change how many random blocks there are, and kernels that are tried with other opts.
import { spawnSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { Failure, main, root } from "../../../scripts/lib/run.mjs";

const TARGETS = { cpu: ["cpu", "1"], cpu2: ["cpu", "2"], wasm: ["wasm", "1"], wgpu: ["wgpu", "0"] };

function options(argv) {
  const found = { dir: join(root, "target/model-bench"), fit: false, measure: true, release: false, targets: [] };
  for (let at = 0; at < argv.length; at += 1) {
    const arg = argv[at];
    if (arg === "--in") found.dir = argv[(at += 1)];
    else if (arg === "--fit") found.fit = true;
    else if (arg === "--score") found.measure = false;
    else if (arg === "--release") found.release = true;
    else if (arg in TARGETS) found.targets.push(arg);
    else throw new Failure(`there is no option ${arg}`);
  }
  if (found.targets.length === 0) found.targets = Object.keys(TARGETS);
  return found;
}

/** An emulated GPU takes a hundred times as long: fewer kernels. */
const EMULATED_GPU_ENV = { BLOCKS: "240", VARIED: "40" };

function run(command, args, env = {}) {
  const { status } = spawnSync(command, args, { stdio: "inherit", cwd: root, env: { ...env, ...process.env } });
  if (status !== 0) throw new Failure(`${command} ${args.join(" ")} failed`);
}

main(async () => {
  const { dir, fit, measure, release, targets } = options(process.argv.slice(2));
  mkdirSync(dir, { recursive: true });
  const profile = release ? ["--release"] : [];
  // machine code is ours in each profile: what differs is a launch by some nanoseconds
  run("cargo", ["build", "-q", "--workspace", "--features", "gradloom-tests/wgpu", "--example", "cost_model", ...profile]);
  const binary = join(root, `target/${release ? "release" : "debug"}/examples/cost_model`);
  for (const name of targets) {
    const [device, threads] = TARGETS[name];
    const [file, env] = [join(dir, `${name}.txt`), name === "wgpu" ? EMULATED_GPU_ENV : {}];
    if (measure && name === "wasm") {
      const folder = join(dir, "wasm");
      run(binary, ["record", folder], env);
      run("node", ["--experimental-wasm-relaxed-simd", join(root, "tests/bench/model/wasm.mjs"), folder, file]);
    } else if (measure) {
      run(binary, ["measure", device, threads, file], env);
    }
    run(binary, [fit ? "fit" : "score", device, threads, file], env);
  }
});
