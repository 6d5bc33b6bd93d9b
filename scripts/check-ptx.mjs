// `npm run check:ptx`: assembles the PTX of every device sample and every benchmark network with NVIDIA's ptxas, for
// each compute capability for which code is generated. ptxas comes from PyPI into .cache (40 MB), verified by its hash;
// neither a GPU nor a driver is needed. Reports the number of kernels, the most registers that one uses, and which
// kernels spill.
//
// usage: node scripts/check-ptx.mjs [--strict] [NETWORK..]   (--strict fails if kernels of networks spill)
import { spawnSync } from "node:child_process";
import { mkdirSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { python } from "./lib/python.mjs";
import { Failure, main, output, root, run } from "./lib/run.mjs";

const cache = join(root, ".cache/ptxas");

/** Parses the output of `ptxas -v` for a module, which has a line of counts per kernel. */
function parseStatistics(text) {
  const numbers = (pattern) => [...text.matchAll(pattern)].map((m) => Number(m[1]));
  return { registers: numbers(/Used (\d+) registers/g), spilled: numbers(/(\d+) bytes spill stores/g).filter((n) => n > 0) };
}

main(() => {
  const args = process.argv.slice(2);
  const names = args.filter((a) => !a.startsWith("--"));
  const program = python(cache, ["ptxas"]);
  const where = "import nvidia.cuda_nvcc, sys; print(list(nvidia.cuda_nvcc.__path__)[0])";
  const ptxas = join(output(program, ["-c", where]).trim(), "bin/ptxas");
  const folder = join(cache, "ptx");
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  run("cargo", ["run", "--quiet", "-p", "gradloom-tests", "--example", "ptx", "--", folder, ...names], { stdio: ["ignore", "ignore", "inherit"] });
  const refused = [];
  const spills = [];
  for (const arch of readdirSync(folder)) {
    let kernels = 0;
    let most = 0;
    for (const file of readdirSync(join(folder, arch))) {
      const made = spawnSync(ptxas, ["-v", `-arch=${arch}`, file, "-o", "kernels.cubin"], { cwd: join(folder, arch), encoding: "utf8" });
      if (made.status !== 0) {
        refused.push(`${arch}/${file}: ${(made.stderr ?? String(made.error)).split("\n").filter((l) => /error|fatal/.test(l)).slice(0, 5).join("\n  ")}`);
        continue;
      }
      const { registers, spilled } = parseStatistics(made.stderr);
      kernels += registers.length;
      most = Math.max(most, ...registers);
      if (spilled.length > 0) spills.push(`${arch}/${file}: ${spilled.length} kernels, ${Math.max(...spilled)} bytes at most`);
    }
    console.log(`${arch}: ${kernels} kernels, ${most} registers at most`);
  }
  if (spills.length > 0) console.log(`spills:\n  ${spills.join("\n  ")}`);
  if (refused.length > 0) throw new Failure(`ptxas refuses\n${refused.join("\n")}`);
  const networks = spills.filter((s) => !s.includes("/samples.ptx"));
  if (args.includes("--strict") && networks.length > 0) throw new Failure(`kernels of networks spill\n${networks.join("\n")}`);
});
