// Runs the browser suites against the packed npm package.
// usage: node tests/browser/run.mjs [SUITE..] [--grep TEXT] [--config NAME] [--set KEY=VALUE] [--selftest]
// `--config firefox` runs them in Firefox.
// SUITE is a file name in tests/browser/suites without `.mjs`. VERBOSE=1 shows the page's console.
import { mkdirSync, readFileSync, readdirSync } from "node:fs";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { unpackInto } from "../../scripts/lib/package.mjs";
import { Failure, main, root } from "../../scripts/lib/run.mjs";
import { CONFIGS, runSuite } from "./suite.mjs";

const folder = join(root, "tests/browser");

function options(argv) {
  const found = { suites: [], grep: "", config: null, set: {}, selftest: false };
  for (let at = 0; at < argv.length; at += 1) {
    if (argv[at] === "--grep") found.grep = argv[(at += 1)];
    else if (argv[at] === "--config") found.config = argv[(at += 1)];
    else if (argv[at] === "--set") Object.assign(found.set, Object.fromEntries([argv[(at += 1)].split("=")]));
    else if (argv[at] === "--selftest") found.selftest = true;
    else if (argv[at].startsWith("--")) throw new Failure(`browser: there is no option ${argv[at]}`);
    else found.suites.push(argv[at]);
  }
  return found;
}

/** The configurations a suite's file names in its `// configs:` line. */
function configsOf(path) {
  const line = /^\/\/ configs: (.+)$/m.exec(readFileSync(join(folder, path), "utf8"));
  const names = line ? line[1].split(",").map((name) => name.trim()) : ["default"];
  for (const name of names) if (!CONFIGS[name]) throw new Failure(`${path}: there is no configuration \`${name}\``);
  return names;
}

function print({ name, error, ms, notes }) {
  console.log(`  ${error ? "FAIL" : "ok  "} ${name} (${ms.toFixed(0)} ms)`);
  for (const note of notes) console.log(`         ${note}`);
  if (error) console.log(error.replace(/^/gm, "         "));
}

/** The unpacked package's files, as a page would get them. */
export function unpacked() {
  const project = join(root, "tests/tmp/browser");
  mkdirSync(project, { recursive: true });
  unpackInto(project);
  return join(project, "node_modules/gradloom/dist");
}

async function suites({ suites: names, grep, config, set }) {
  const all = readdirSync(join(folder, "suites")).filter((name) => name.endsWith(".mjs")).sort();
  const unknown = names.filter((name) => !all.includes(`${name}.mjs`));
  if (unknown.length > 0) throw new Failure(`browser: there is no suite ${unknown.join(", ")}`);
  const gradloom = unpacked();
  let passed = 0;
  const failed = [];
  for (const name of names.length > 0 ? names.map((each) => `${each}.mjs`) : all) {
    const path = `suites/${name}`;
    for (const each of config === "firefox" ? ["firefox"] : configsOf(path).filter((named) => !config || named === config)) {
      console.log(`browser: ${basename(name, ".mjs")} (${each})`);
      const rows = await runSuite({ path, config: each, gradloom, grep, set, onRow: print });
      passed += rows.filter((row) => !row.error).length;
      failed.push(...rows.filter((row) => row.error).map((row) => `${name} (${each}): ${row.name}`));
    }
  }
  console.log(`browser: ${passed} passed, ${failed.length} failed`);
  if (failed.length > 0) throw new Failure(`browser: failed\n  ${failed.join("\n  ")}`);
}

/** The runner must see every way a test can fail: each test of this suite names the text its row's error must hold. */
async function selftest() {
  const rows = await runSuite({ path: "selftest/failures.mjs", config: "default", gradloom: root });
  const wrong = rows.filter(({ name, error }) => (name === "passes" ? error : !error?.includes(name.split(": ")[1])));
  if (rows.length !== 7 || wrong.length > 0) throw new Failure(`browser: the runner's self-test failed\n${JSON.stringify(rows, null, 1)}`);
  const hung = await runSuite({ path: "selftest/hang.mjs", config: "default", gradloom: root });
  if (!hung.at(-1)?.error) throw new Failure("browser: the runner did not see a page that hangs");
  console.log("browser: self-test: every way to fail is seen");
}

if (process.argv[1] === fileURLToPath(import.meta.url)) main(async () => {
  const chosen = options(process.argv.slice(2));
  await (chosen.selftest ? selftest() : suites(chosen));
});
