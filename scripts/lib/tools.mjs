// Tools that only some commands need, with pinned versions, installed on first use: cargo's into target/tools, npm's
// into .cache/consumers.
import { cpSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { output, root, run } from "./run.mjs";

/** Cargo features that are needed to build a tool's program. */
const FEATURES = { "cargo-about": ["--features", "cli"] };
const VERSIONS = { "cargo-about": "0.9.3", "cargo-cyclonedx": "0.5.9", "cargo-deny": "0.20.2" };

/** The path of a cargo tool in its pinned version, installed if needed. */
export function tool(name) {
  const folder = join(root, "target/tools", `${name}-${VERSIONS[name]}`);
  const program = join(folder, "bin", name);
  if (!existsSync(program)) {
    console.log(`tools: installing ${name} ${VERSIONS[name]} (some minutes, once)`);
    run("cargo", ["install", "--quiet", "--locked", "--root", folder, ...(FEATURES[name] ?? []), `${name}@${VERSIONS[name]}`]);
  }
  return program;
}

/**
 * The folder whose node_modules contains the packages of tests/consumers/tools; installed again only when their lock
 * file has changed.
 */
export function npmTools() {
  const folder = join(root, ".cache/consumers");
  const source = join(root, "tests/consumers/tools");
  const lock = readFileSync(join(source, "package-lock.json"), "utf8");
  const stamp = join(folder, ".installed-from");
  if (!existsSync(stamp) || readFileSync(stamp, "utf8") !== lock) {
    console.log("tools: installing bundlers, runtimes and a driver of browsers with npm");
    mkdirSync(folder, { recursive: true });
    for (const file of ["package.json", "package-lock.json"]) cpSync(join(source, file), join(folder, file));
    // Not `npm ci`, which requires packages for other systems that Parcel's lock omits. Install scripts download
    // programs.
    output("npm", ["install", "--no-audit", "--no-fund", "--loglevel=error"], { cwd: folder });
    writeFileSync(stamp, lock);
  }
  return folder;
}
