// Whole networks, exported by PyTorch's two exporters with seeded random weights, against onnxruntime: makes them in
// .cache/zoo (with the packages of a virtual environment there) and prints a table of errors.
// usage: npm run conformance:zoo [-- --device cpu|wgpu|wasm|..] [--size small|real] [NAME..]
// On wasm they run in node, for which `npm test -- --only wasm` must have run. The published sizes (real) are gigabytes: name some.
import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { Failure, main, root, run } from "./lib/run.mjs";

const folder = join(root, ".cache/zoo");
const python = join(folder, "venv/bin/python");
const packages = ["torch", "torchvision", "timm", "transformers", "onnx", "onnxscript", "onnxruntime", "numpy"];

main(() => {
  const names = process.argv.slice(2);
  const option = (name, otherwise) => (names.includes(name) ? names.splice(names.indexOf(name), 2)[1] : otherwise);
  const device = option("--device", "cpu");
  const size = option("--size", "small");
  if (!["small", "real"].includes(size)) throw new Failure(`zoo: there is no size ${size}; there are small and real`);
  mkdirSync(folder, { recursive: true });
  if (!existsSync(python)) run("python3", ["-m", "venv", "--system-site-packages", join(folder, "venv")]);
  run(python, ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", ...packages]);
  const graphs = join(folder, size);
  run(python, ["tests/zoo/make.py", "--size", size, graphs, ...names]);
  if (device === "wasm") {
    if (!existsSync(join(root, "tests/web/pkg"))) run("cargo", ["xtask", "wasm", "--tests"]);
  } else {
    run("cargo", ["build", "--release", "-p", "gradloom", ...(device.startsWith("wgpu") ? ["--features", "wgpu"] : [])]);
  }
  run(python, ["tests/zoo/check.py", "--device", device, graphs, ...names]);
});
