// Kernels of the WASM device in Node and in headless Chromium, from tensor graph to time, without a build of the package.
// usage: node --experimental-wasm-relaxed-simd tests/bench/wasm/run.mjs [--in DIR] [--node] [--chromium] [--budget MS] [--kernels] CASE..
// CASE is a name of tests/examples/wasm_record.rs or a folder with model.onnx, input.npz and expected.npz.
// Times are minima, of the wall clock and of processor time, the better one first: the machine may be busy.
// --no-record times what was recorded before; PLAIN=1 records without relaxed SIMD, FLOATS=1 without products of pairs.
import { spawnSync } from "node:child_process";
import { readFileSync, readdirSync } from "node:fs";
import { basename, join } from "node:path";
import { launch } from "../../../scripts/lib/chromium.mjs";
import { Failure, main, root } from "../../../scripts/lib/run.mjs";
import { serve } from "../../../scripts/serve.mjs";
import { timeCase } from "./time.mjs";

const CASES = "matmul512 matmul1024 gemv conv3x3 conv1x1 dwconv3x3 softmax layernorm eltwise reduce attention mlp_train".split(" ");

function options(argv) {
  const found = { dir: join(root, "target/wasm-bench"), hosts: [], budget: 1000, kernels: false, record: true, cases: [] };
  for (let at = 0; at < argv.length; at += 1) {
    const arg = argv[at];
    if (arg === "--in") found.dir = argv[(at += 1)];
    else if (arg === "--budget") found.budget = Number(argv[(at += 1)]);
    else if (arg === "--node" || arg === "--chromium") found.hosts.push(arg.slice(2));
    else if (arg === "--kernels") found.kernels = true;
    else if (arg === "--no-record") found.record = false;
    else if (arg.startsWith("--")) throw new Failure(`there is no option ${arg}`);
    else found.cases.push(arg);
  }
  if (found.hosts.length === 0) found.hosts = ["node", "chromium"];
  if (found.cases.length === 0) found.cases = CASES;
  return found;
}

function print(host, name, { ms: wall, cpu, first, compile, error, kernels }, all) {
  const ms = Math.min(wall, cpu);
  const flops = kernels.reduce((n, k) => n + k.flops, 0);
  const bytes = kernels.reduce((n, k) => n + k.bytes, 0);
  const rate = `${(flops / ms / 1e6).toFixed(1)} GFLOP/s ${(bytes / ms / 1e6).toFixed(1)} GB/s`;
  const bad = error <= 1e-3 ? "" : "  WRONG";
  const cold = `first ${first.toFixed(1)} compile ${compile.toFixed(1)}`;
  const times = `${ms.toFixed(3).padStart(9)} ms (wall ${wall.toFixed(2)})  ${rate}  ${cold}`;
  console.log(`${host.padEnd(8)} ${name.padEnd(14)} ${times}  off by ${error.toExponential(1)}${bad}`);
  if (!all) return;
  for (const k of kernels.toSorted((a, b) => b.ms - a.ms).slice(0, 30)) {
    const rates = `${(k.flops / k.ms / 1e6).toFixed(1).padStart(6)} GFLOP/s ${(k.bytes / k.ms / 1e6).toFixed(1).padStart(5)} GB/s`;
    console.log(`    ${k.ms.toFixed(3).padStart(9)} ms ${rates}  ${k.name}`);
  }
}

main(async () => {
  const { dir, hosts, budget, kernels, record, cases } = options(process.argv.slice(2));
  if (record) {
    const args = ["run", "-q", "-p", "gradloom-tests", "--example", "wasm_record", "--", dir, ...cases];
    if (spawnSync("cargo", args, { stdio: "inherit", cwd: root }).status !== 0) throw new Failure("recording failed");
  }
  const names = cases.map((each) => basename(each));
  const options_ = { budget, perKernel: kernels };
  if (hosts.includes("node")) {
    const cpu = () => process.cpuUsage().user / 1000;
    for (const name of names) print("node", name, await timeCase((file) => readFileSync(join(dir, name, file)), cpu, options_), kernels);
  }
  if (!hosts.includes("chromium")) return;
  const server = await serve({ "/": join(root, "tests/bench/wasm"), "/data": dir }, { isolation: true });
  const browser = await launch({ webgpu: false });
  try {
    const page = await browser.newPage();
    await page.goto(`${server.url}/page.html`);
    const session = await browser.newBrowserCDPSession();
    const { processInfo } = await session.send("SystemInfo.getProcessInfo");
    const tasks = processInfo.filter(({ type }) => type === "renderer").map(({ id }) => `/proc/${id}/task`);
    const onCpu = (path) => readdirSync(path).map((thread) => Number(readFileSync(join(path, thread, "schedstat"), "utf8").split(" ")[0]));
    await page.exposeFunction("cpu", () => tasks.flatMap(onCpu).reduce((a, b) => a + b, 0) / 1e6);
    for (const name of names) {
      const result = await page.evaluate(async ([each, opts]) => {
        const { timeCase } = await import("/time.mjs");
        return timeCase(async (file) => new Uint8Array(await (await fetch(`/data/${each}/${file}`)).arrayBuffer()), window.cpu, opts);
      }, [name, options_]);
      print("chromium", name, result, kernels);
    }
  } finally {
    await browser.close();
    await server.close();
  }
});
