// Compares whole networks with onnxruntime, exported by PyTorch's two exporters with seeded random weights: creates
// them in .cache/zoo (with the packages of a virtual environment there) and prints a table of errors.
//
// usage: npm run conformance:zoo [-- --device cpu|wgpu|wasm|..] [--size small|real] [NAME..]
//
// On wasm they run in node, which requires a previous `npm test -- --only wasm`. The published sizes (real) are
// gigabytes: select some by name.
import { existsSync } from "node:fs";
import { join } from "node:path";
import { python } from "./lib/python.mjs";
import { Failure, main, root, run } from "./lib/run.mjs";

const folder = join(root, ".cache/zoo");

main(() => {
  const names = process.argv.slice(2);
  const option = (name, otherwise) => (names.includes(name) ? names.splice(names.indexOf(name), 2)[1] : otherwise);
  const device = option("--device", "cpu");
  const size = option("--size", "small");
  if (!["small", "real"].includes(size)) throw new Failure(`zoo: there is no size ${size}; there are small and real`);
  const interpreter = python(folder, ["zoo"]);
  const graphs = join(folder, size);
  run(interpreter, ["tests/zoo/make.py", "--size", size, graphs, ...names]);
  if (device === "wasm") {
    if (!existsSync(join(root, "tests/web/pkg"))) run("cargo", ["xtask", "wasm", "--tests"]);
  } else {
    run("cargo", ["build", "--release", "-p", "gradloom", ...(device.startsWith("wgpu") ? ["--features", "wgpu"] : [])]);
  }
  run(interpreter, ["tests/zoo/check.py", "--device", device, graphs, ...names]);
});
