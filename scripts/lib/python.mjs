// Python for external test suites: a virtual environment with exactly the packages of a lock file, each verified by its
// hash.
import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { root, run } from "./run.mjs";

/** Names of lock files, each generated from the `.in` file beside it. */
export const LOCKS = ["conformance", "nvrtc", "onnxruntime", "openai", "ptxas", "text", "zoo"];

const lockFile = (name) => join(root, `tests/requirements/${name}.txt`);

/**
 * The interpreter of the environment in a folder, with the packages of these locks installed; pip rejects a package
 * with another hash.
 */
export function python(folder, locks) {
  mkdirSync(folder, { recursive: true });
  const program = join(folder, "venv/bin/python");
  if (!existsSync(program)) run("python3", ["-m", "venv", join(folder, "venv")]);
  const files = locks.flatMap((name) => ["-r", lockFile(name)]);
  run(program, ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes", ...files]);
  return program;
}

/** Regenerates the lock files from the `.in` files with uv from PyPI. */
export function lockAll(folder) {
  const program = python(folder, ["uv"]);
  for (const name of ["uv", ...LOCKS]) {
    const args = ["--quiet", "--universal", "--generate-hashes", "--python-version", "3.11", "--no-emit-index-url", "--upgrade"];
    const files = [join("tests/requirements", `${name}.in`), "-o", join("tests/requirements", `${name}.txt`)];
    run(program, ["-m", "uv", "pip", "compile", ...args, "--custom-compile-command", "npm run lock:python", ...files]);
  }
}
