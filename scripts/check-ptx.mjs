// `npm run check:ptx`: assembles the PTX of every device sample and every benchmark network with NVIDIA's ptxas, for
// each compute capability for which code is generated. ptxas comes from PyPI into .cache (40 MB), verified by its hash;
// neither a GPU nor a driver is needed. Reports the number of kernels, the most registers that one uses, and which
// kernels spill: with no register left, or by the assembler's own choice.
//
// usage: node scripts/check-ptx.mjs [--strict] [NETWORK..]   (--strict fails if kernels of networks spill for want of registers)
import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { python } from "./lib/python.mjs";
import { Failure, main, output, root, run } from "./lib/run.mjs";

const cache = join(root, ".cache/ptxas");

/** The registers of a multiprocessor and the most of one thread, on each GPU for which code is generated. */
const REGISTERS = 65536;
const MOST = 255;

/**
 * The kernels of a module, from the output of `ptxas -v` and the module's text, which has the threads of each. One that spills is `full`
 * if it uses as many registers as its threads can have: its tile is too large. ptxas also spills a word or two of kernels with far fewer
 * registers, where one workgroup more fits on a multiprocessor then.
 */
function parseKernels(listing, text) {
  const entries = text.matchAll(/\.entry (\w+)\([^{]*?\.reqntid (\d+), (\d+), (\d+)/g);
  const threads = new Map([...entries].map(([, name, x, y, z]) => [name, x * y * z]));
  const pattern = /Function properties for (\w+)\n.*? (\d+) bytes spill stores.*\n.*?Used (\d+) registers/g;
  return [...listing.matchAll(pattern)].map(([, name, spilled, used]) => {
    if (!threads.has(name)) throw new Failure(`no threads of ${name} in its text`);
    const registers = Number(used);
    // they are given out in eights
    const room = Math.min(MOST, Math.floor(REGISTERS / threads.get(name) / 8) * 8);
    return { name, registers, spilled: Number(spilled), full: registers + 8 > room };
  });
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
      const found = parseKernels(made.stderr, readFileSync(join(folder, arch, file), "utf8"));
      if (found.length === 0) throw new Failure(`${arch}/${file}: ptxas lists its kernels in another way`);
      kernels += found.length;
      most = Math.max(most, ...found.map(({ registers }) => registers));
      for (const { name, registers, spilled, full } of found.filter((k) => k.spilled > 0)) {
        spills.push({ file, full, text: `${arch}/${file} ${name}: ${spilled} bytes, at ${registers} registers` });
      }
    }
    console.log(`${arch}: ${kernels} kernels, ${most} registers at most`);
  }
  const lines = (list) => list.map(({ text }) => `\n  ${text}`).join("");
  if (spills.length > 0) console.log(`spills:${lines(spills)}`);
  if (refused.length > 0) throw new Failure(`ptxas refuses\n${refused.join("\n")}`);
  const networks = spills.filter(({ file, full }) => full && file !== "samples.ptx");
  if (args.includes("--strict") && networks.length > 0) throw new Failure(`kernels of networks do not fit their registers${lines(networks)}`);
});
