// `npm run audit`: checks licences, sources, and duplicated and yanked versions of all dependencies, and known
// advisories if the databases are reachable: RustSec's for crates, the registry's for node packages. Any finding fails.
// An unreachable database is reported, and fails with --strict, which a release uses.
import { spawnSync } from "node:child_process";
import { Failure, main, root, run } from "./lib/run.mjs";
import { tool } from "./lib/tools.mjs";

/**
 * Runs a check that needs a database; `unreachable` recognises in its output that the database could not be reached.
 */
function runCheck(what, program, args, unreachable) {
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
    ...runCheck("advisories of crates", deny, ["--all-features", "check", "advisories"], unreachable),
    ...runCheck("advisories of node packages", "npm", ["audit", "--loglevel=warn"], /audit endpoint returned an error|ENOTFOUND|ECONNREFUSED|network/i),
  ];
  if (missed.length > 0 && process.argv.includes("--strict")) throw new Failure(`audit: not checked: ${missed.join(", ")}`);
});
