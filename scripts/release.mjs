// `npm run release`: writes all parts of a release to dist/: the npm package, bills of materials (CycloneDX) of the
// package and of the native program, and checksums; and packs the two crates as they would be published. It publishes
// nothing; its last lines say how to. `npm run release -- --dry` lists within seconds what would be published, and
// fails for what would be rejected: differing versions, a changelog that lacks the version, a package that npm or cargo
// rejects. It packs the existing build.
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { buildPackage, buildWasm, tarball } from "./lib/package.mjs";
import { Failure, main, output, root, run } from "./lib/run.mjs";
import { tool } from "./lib/tools.mjs";

const dist = join(root, "dist");

/** How the package is published. The path begins with `./` since npm takes a name, a slash and a name for a repository of GitHub. */
const NPM = ["publish", "./dist/gradloom.tgz", "--access", "public"];

/** How the crates are published: those that others need come first, and cargo waits until the registry has them. */
const CRATES = ["gradloom-core", "gradloom"];
const CARGO = ["publish", ...CRATES.flatMap((name) => ["-p", name])];

/** The crates of a package for a target, as CycloneDX JSON. */
function writeCrateList(folder, target, file) {
  const made = join(root, folder, "gradloom-release.json");
  const args = ["cyclonedx", "--format", "json", "--target", target, "--all-features", "--override-filename", "gradloom-release"];
  try {
    output(tool("cargo-cyclonedx"), [...args, "--manifest-path", join(root, folder, "Cargo.toml")]);
    renameSync(made, join(dist, file));
  } finally {
    // the tool writes one file beside each manifest of the workspace
    const members = JSON.parse(/^members = (\[.*?\])$/m.exec(readFileSync(join(root, "Cargo.toml"), "utf8"))[1]);
    for (const member of members) {
      rmSync(join(root, member, "gradloom-release.json"), { force: true });
    }
  }
}

/** Fails if the release's version differs between files or is missing from the changelog. */
function checkVersions() {
  const text = (file) => readFileSync(join(root, file), "utf8");
  const { version } = JSON.parse(text("web/ts/package.json"));
  const crates = /^\[workspace\.package\][^[]*^version = "(.*?)"/ms.exec(text("Cargo.toml"))?.[1];
  if (crates !== version) throw new Failure(`release: the package is ${version}, the crates are ${crates}`);
  const heading = new RegExp(`^## (?:Unreleased|\\[?${version.replaceAll(".", "\\.")}\\]?(?: .*)?)$`, "m");
  const [, after] = text("CHANGELOG.md").split(heading);
  if (!after?.split(/^## /m)[0].trim()) throw new Failure(`release: CHANGELOG.md says nothing of ${version}`);
  return version;
}

/** Lists what would be published, according to npm and cargo. */
async function dryRun() {
  const version = checkVersions();
  if (!existsSync(tarball)) await buildPackage();
  const workflow = readFileSync(join(root, ".github/workflows/release.yml"), "utf8");
  for (const command of [`npm ${NPM.join(" ")} --provenance`, `cargo ${CARGO.join(" ")}`]) {
    if (!workflow.includes(`run: ${command}\n`)) throw new Failure(`release: the workflow lacks a step \`${command}\``);
  }
  // with these options npm does not contact the registry
  const [packed] = [JSON.parse(output("npm", [...NPM, "--dry-run", "--json", "--loglevel=error"]))].flat();
  const { name, version: own, files } = packed.gradloom ?? packed;
  if (name !== "gradloom" || own !== version) throw new Failure(`release: dist/gradloom.tgz is ${name} ${own}, not gradloom ${version}: build it again`);
  for (const wanted of ["package.json", "README.md", "LICENSE-MIT", "LICENSE-APACHE", "THIRD-PARTY-NOTICES.txt", "dist/index.js", "dist/index.d.ts"]) {
    if (!files.some(({ path }) => path === wanted)) throw new Failure(`release: dist/gradloom.tgz has no ${wanted}`);
  }
  console.log(`release: npm would take gradloom ${version}, ${files.length} files`);
  for (const crate of CRATES) {
    const list = output("cargo", ["package", "--list", "--allow-dirty", "-p", crate]).split("\n");
    for (const wanted of ["Cargo.toml", "src/lib.rs"]) {
      if (!list.includes(wanted)) throw new Failure(`release: ${crate} would lack ${wanted}`);
    }
    console.log(`release: cargo would pack ${crate} ${version}, ${list.length} files`);
  }
}

await main(async () => {
  if (process.argv.includes("--dry")) return dryRun();
  checkVersions();
  if (!process.argv.includes("--dirty") && output("git", ["status", "--porcelain"]) !== "") {
    throw new Failure("release: the working tree has changes that are not committed (--dirty makes a trial release)");
  }
  run("node", ["scripts/audit.mjs", ...(process.argv.includes("--offline") ? [] : ["--strict"])]);
  mkdirSync(dist, { recursive: true });
  buildWasm();
  await buildPackage();
  const host = /host: (\S+)/.exec(output("rustc", ["-vV"]))[1];
  writeCrateList("web/extra", "wasm32-unknown-unknown", "gradloom-wasm.cdx.json");
  writeCrateList("native", host, "gradloom-native.cdx.json");
  const npm = output("npm", ["sbom", "--sbom-format", "cyclonedx", "--workspace", "gradloom", "--omit", "dev"]);
  writeFileSync(join(dist, "gradloom-npm.cdx.json"), npm);
  const files = [tarball, ...["wasm", "native", "npm"].map((name) => join(dist, `gradloom-${name}.cdx.json`))];
  const sums = files.map((file) => `${createHash("sha256").update(readFileSync(file)).digest("hex")}  ${file.slice(dist.length + 1)}\n`);
  writeFileSync(join(dist, "SHA256SUMS"), sums.join(""));
  process.stdout.write(sums.join(""));
  // builds the crates from their packed files, which must be self-contained
  run("cargo", [...CARGO, "--dry-run", "--quiet", ...(process.argv.includes("--dirty") ? ["--allow-dirty"] : [])]);
  console.log(`release: ready in dist/; from a CI job with an identity token: npm ${NPM.join(" ")} --provenance`);
  console.log(`release: the crates: cargo ${CARGO.join(" ")}`);
});
