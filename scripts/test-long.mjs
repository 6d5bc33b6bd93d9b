// `npm run test:long`: the checks that take too long for `npm test`, one after the other: other systems and processors,
// the vendors' compilers, drivers under validation, and all models. A failed check does not end the run; the table at
// the end has every check with its time.
//
// usage: node scripts/test-long.mjs [--only a,b] [--list]
import { existsSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { Failure, main, root, run } from "./lib/run.mjs";

/** The checks by name, each a script of package.json with its arguments. */
const CHECKS = {
  targets: ["check:targets"],
  metal: ["check:metal"],
  ptx: ["check:ptx", "--strict"],
  "cuda-c": ["check:cuda-c"],
  arm: ["test:arm"],
  windows: ["test:windows"],
  vulkan: ["test:vulkan", "--models"],
  models: ["test:models"],
  graphs: ["test:graphs"],
};

/** The file in which tests record what they skip. */
const skipLog = join(root, "target/left-out-long.txt");

function selectChecks(argv) {
  const names = argv.includes("--only") ? (argv[argv.indexOf("--only") + 1] ?? "").split(",") : Object.keys(CHECKS);
  for (const name of names) {
    if (!CHECKS[name]) throw new Failure(`test:long: there is no check \`${name}\`; there are ${Object.keys(CHECKS).join(", ")}`);
  }
  return names;
}

/** Runs a check; the result is why it failed, or nothing. */
function failureOf([script, ...args]) {
  try {
    run("npm", ["run", "--silent", script, "--", ...args]);
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    return error.message;
  }
}

const seconds = (since) => ((performance.now() - since) / 1000).toFixed(1);

main(() => {
  if (process.argv.includes("--list")) {
    console.log(Object.keys(CHECKS).join("\n"));
    return;
  }
  const names = selectChecks(process.argv.slice(2));
  const whole = performance.now();
  mkdirSync(join(root, "target"), { recursive: true });
  rmSync(skipLog, { force: true });
  process.env.GRADLOOM_LEFT_OUT = skipLog;
  const table = [];
  const failed = [];
  for (const name of names) {
    console.log(`\n== ${name} ==`);
    const start = performance.now();
    const why = failureOf(CHECKS[name]);
    if (why) {
      console.error(why);
      failed.push(name);
    }
    table.push(`  ${name.padEnd(10)} ${seconds(start).padStart(7)} s  ${why ? "FAILED" : "passed"}`);
  }
  const skipped = existsSync(skipLog) ? [...new Set(readFileSync(skipLog, "utf8").trim().split("\n"))].sort() : [];
  if (skipped.length) console.log(`\ntest:long: left out\n${skipped.map((line) => `  ${line}`).join("\n")}`);
  console.log(`\n${table.join("\n")}\n  ${"total".padEnd(10)} ${seconds(whole).padStart(7)} s`);
  if (failed.length) throw new Failure(`\ntest:long: ${failed.join(", ")} failed (again: npm run test:long -- --only ${failed.join(",")})`);
  console.log("test:long: all passed");
});
