// `npm run audit`: licences, sources, duplicated and withdrawn versions of all dependencies, and known advisories where the databases can be
// reached: RustSec's for crates, the registry's for node packages. A finding fails; a database that cannot be reached is said, and
// fails too with --strict, as a release asks.
import { spawnSync } from "node:child_process";
import { Failure, main, root, run } from "./lib/run.mjs";
import { tool } from "./lib/tools.mjs";

/** Runs a check that needs a database; `unreachable` tells from its output that it did not get there. */
function ask(what, program, args, unreachable) {
  const done = spawnSync(program, args, { cwd: root, encoding: "utf8" });
  const text = `${done.stdout ?? ""}${done.stderr ?? ""}`.trim();
  if (done.status === 0) {
    console.log(`audit: ${what}: nothing known`);
    return [];
  }
  if (unreachable.test(text)) {
    console.log(`audit: ${what}: NOT CHECKED, the database could not be reached`);
    return [what];
  }
  throw new Failure(`${text}\naudit: ${what}: findings`);
}

main(() => {
  const deny = tool("cargo-deny");
  run(deny, ["--all-features", "--log-level", "error", "check", "bans", "licenses", "sources"]);
  const unreachable = /failed to (fetch|clone|get)|unable to (fetch|clone)|error sending request|could ?n.t resolve/i;
  const missed = [
    ...ask("advisories of crates", deny, ["--all-features", "check", "advisories"], unreachable),
    ...ask("advisories of node packages", "npm", ["audit", "--loglevel=warn"], /audit endpoint returned an error|ENOTFOUND|ECONNREFUSED|network/i),
  ];
  if (missed.length > 0 && process.argv.includes("--strict")) throw new Failure(`audit: not checked: ${missed.join(", ")}`);
});
