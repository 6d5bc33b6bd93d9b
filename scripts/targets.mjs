// `npm run check:targets`: type-checks the native crate and its tests for other systems and processors, as far as rustup
// has their standard libraries. Nothing is linked or run.
//
// usage: node scripts/targets.mjs [TRIPLE..]
import { join } from "node:path";
import { main, root, run } from "./lib/run.mjs";

const TRIPLES = ["aarch64-unknown-linux-gnu", "aarch64-apple-darwin", "x86_64-pc-windows-gnu", "riscv64gc-unknown-linux-gnu"];
const WHAT = ["-p", "gradloom", "-p", "gradloom-tests", "--lib", "--bins", "--tests"];

main(() => {
  const asked = process.argv.slice(2);
  for (const triple of asked.length ? asked : TRIPLES) {
    run("rustup", ["target", "add", triple]);
    // a separate target folder, so that it does not block other builds
    run("cargo", ["check", ...WHAT, "--target", triple, "--target-dir", join(root, "target/targets")]);
    console.log(`${triple}: no errors`);
  }
});
