// Compiles GPU kernels with the vendors' compilers, without the hardware: `npm run check:cuda-c` compiles CUDA C++ with
// nvrtc, `npm run check:hip` HIP C++ with clang, and `npm run check:metal` type-checks the Metal runtime for macOS. The
// kernels are those of the device samples and of the benchmark's networks.
//
// usage: node scripts/check-gpu.mjs cuda-c|hip|metal [CHIP..]
import { mkdirSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { python } from "./lib/python.mjs";
import { Failure, has, main, output, root, run } from "./lib/run.mjs";

const cache = join(root, ".cache/check-gpu");
const MAC = "aarch64-apple-darwin";
/** The default chips: the oldest and the newest for which the printed instructions differ. */
const CHIPS = { "cuda-c": ["75", "80", "90"], hip: ["gfx1100", "gfx1200", "gfx942"], metal: [MAC] };
/** Names of clang, newest first; the first one supports all the chips. */
const CLANGS = ["clang-22", "clang-21", "clang-20", "clang-19", "clang"];

/** Writes the kernels for a target to files, several per file. */
function writeSources(target) {
  const folder = join(cache, target.replace(":", "-"));
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  run("cargo", ["run", "--quiet", "-p", "gradloom-tests", "--example", "gpu_sources", "--", target, folder]);
  return readdirSync(folder).sort().map((name) => join(folder, name));
}

function cuda(chips) {
  const program = python(cache, ["nvrtc"]);
  for (const chip of chips) run(program, ["tests/conformance/nvrtc.py", `sm_${chip}`, ...writeSources(`cuda:${chip}`)]);
}

function hip(chips) {
  const clang = CLANGS.find(has);
  if (!clang) throw new Failure("no clang of version 19 or later is here: apt-get install clang-19");
  for (const chip of chips) {
    const files = writeSources(`hip:${chip}`);
    const args = ["-x", "hip", "--offload-device-only", `--offload-arch=${chip}`, "-nogpulib", "-nogpuinc", "-nostdinc"];
    for (const file of files) {
      output(clang, [...args, "--no-gpu-bundle-output", "-O2", "-w", "-c", file, "-o", `${file}.o`]);
    }
    console.log(`${files.length} files for ${chip}: ${clang} takes them all`);
  }
}

function metal(targets) {
  for (const target of targets) {
    run("rustup", ["target", "add", target]);
    run("cargo", ["check", "-p", "gradloom", "--target", target, "--target-dir", join(root, "target/metal")]);
  }
}

main(() => {
  const [what, ...chips] = process.argv.slice(2);
  const check = { "cuda-c": cuda, hip, metal }[what];
  if (!check) throw new Failure("usage: node scripts/check-gpu.mjs cuda-c|hip|metal [CHIP..]");
  check(chips.length ? chips : CHIPS[what]);
});
