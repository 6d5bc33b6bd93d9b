// Installs the prerequisites for building xtask, which sets up the rest: a linker, cargo, node packages.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Failure, has, output, root, run } from "./run.mjs";

/** Installs Debian packages, through sudo where this is not root. */
export function apt(packages) {
  if (!has("apt-get")) throw new Failure(`there is no apt-get here; install by hand: ${packages.join(" ")}`);
  const sudo = process.getuid() === 0 ? [] : ["sudo", "--non-interactive"];
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive" };
  const aptGet = (args) => {
    const [program, ...rest] = [...sudo, "apt-get", ...args];
    return output(program, rest, { env });
  };
  const install = () => aptGet(["install", "--yes", "--no-install-recommends", ...packages]);
  try {
    install();
  } catch {
    aptGet(["update"]);
    install();
  }
}

/** Ensures that there is a C compiler: rustc links with it, and the C device calls it. */
function ensureCompiler() {
  if (has("cc")) return;
  console.log("setup: C compiler: not found, installing gcc with apt (rustc links through it)");
  apt(["gcc", "libc6-dev"]);
}

function requireCargo() {
  if (!has("cargo")) throw new Failure("cargo was not found; install Rust with rustup (https://rustup.rs) and try again");
}

/** Installs node packages exactly as locked; repeated only when the lock file has changed. */
function installNodePackages() {
  const lock = readFileSync(join(root, "package-lock.json"), "utf8");
  const stamp = join(root, "node_modules", ".installed-from");
  if (existsSync(stamp) && readFileSync(stamp, "utf8") === lock) return;
  console.log("setup: node packages: installing them as package-lock.json says");
  run("npm", ["ci", "--no-audit", "--no-fund", "--loglevel=error"]);
  writeFileSync(stamp, lock);
}

/** Installs everything that the build needs, with `browser` also what the browser tests need. */
export function setup({ browser = true } = {}) {
  requireCargo();
  ensureCompiler();
  installNodePackages();
  run("cargo", ["xtask", "setup", ...(browser ? [] : ["native"])]);
}
