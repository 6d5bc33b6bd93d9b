// Cargo tools that only some commands need: pinned, installed into target/tools on first use.
import { existsSync } from "node:fs";
import { join } from "node:path";
import { root, run } from "./run.mjs";

/** Features that a tool's program needs. */
const FEATURES = { "cargo-about": ["--features", "cli"] };
const VERSIONS = { "cargo-about": "0.9.3", "cargo-cyclonedx": "0.5.9", "cargo-deny": "0.20.2" };

/** The path of a cargo tool of the pinned version. */
export function tool(name) {
  const folder = join(root, "target/tools", `${name}-${VERSIONS[name]}`);
  const program = join(folder, "bin", name);
  if (!existsSync(program)) {
    console.log(`tools: installing ${name} ${VERSIONS[name]} (some minutes, once)`);
    run("cargo", ["install", "--quiet", "--locked", "--root", folder, ...(FEATURES[name] ?? []), `${name}@${VERSIONS[name]}`]);
  }
  return program;
}
