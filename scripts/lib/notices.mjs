// The notices that the npm package carries for the crates inside its wasm modules: made by a tool, committed, checked at every build.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Failure, output, root } from "./run.mjs";
import { tool } from "./tools.mjs";

const FILE = join(root, "THIRD-PARTY-NOTICES.txt");

/** Crates as `name version`, as they are compiled into the modules; those that only run inside the compiler are not. */
function crates() {
  const features = ["text", "chat", "files", "ops"].map((name) => `gradloom-web-extra/${name}`).join(",");
  const args = ["tree", "--locked", "--edges", "normal,no-proc-macro", "--prefix", "none", "--target", "wasm32-unknown-unknown"];
  const text = output("cargo", [...args, "--package", "gradloom-web", "--package", "gradloom-web-extra", "--features", features]);
  const names = text.split("\n").map((line) => /^(\S+) v(\S+)/.exec(line)).filter(Boolean);
  return [...new Set(names.map(([, name, version]) => `${name} ${version}`))].filter((name) => !name.startsWith("gradloom"));
}

/** Fails where a crate inside the package has no notice. */
export function checkNotices() {
  const text = readFileSync(FILE, "utf8");
  const missing = crates().filter((name) => !text.includes(`\n  ${name}`));
  if (missing.length > 0) throw new Failure(`THIRD-PARTY-NOTICES.txt lacks ${missing.join(", ")}: run \`npm run notices\``);
}

/** Collects the notices anew. */
export function writeNotices() {
  const args = ["generate", "--workspace", "--all-features", "--offline", "--locked", "--manifest-path", join(root, "web/extra/Cargo.toml")];
  const text = output(tool("cargo-about"), [...args, "--config", join(root, "about.toml"), join(root, "scripts/notices.hbs")]);
  writeFileSync(FILE, text.replace(/[ \t]+$/gm, "").replace(/\r/g, ""));
  checkNotices();
}
