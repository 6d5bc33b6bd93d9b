// Whole networks, exported by PyTorch's two exporters with seeded random weights, against onnxruntime: makes them in
// .cache/zoo (with the packages of a virtual environment there) and prints a table of errors.
// usage: npm run conformance:zoo [-- --device cpu] [NAME..]
import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { main, root, run } from "./lib/run.mjs";

const folder = join(root, ".cache/zoo");
const python = join(folder, "venv/bin/python");
const packages = ["torch", "torchvision", "timm", "transformers", "onnx", "onnxscript", "onnxruntime", "numpy"];

main(() => {
  const args = process.argv.slice(2);
  const at = args.indexOf("--device");
  const device = at >= 0 ? args.splice(at, 2)[1] : "cpu";
  mkdirSync(folder, { recursive: true });
  if (!existsSync(python)) run("python3", ["-m", "venv", "--system-site-packages", join(folder, "venv")]);
  run(python, ["-m", "pip", "install", "--quiet", ...packages]);
  const graphs = join(folder, "small");
  run(python, [join(root, "tests/zoo/make.py"), graphs, ...args]);
  run("cargo", ["build", "--release", "-p", "gradloom", ...(device.startsWith("wgpu") ? ["--features", "wgpu"] : [])]);
  run(python, [join(root, "tests/zoo/check.py"), graphs, "--device", device, ...args]);
});
