// Runs the browser suites against the packed npm package.
// usage: node tests/browser/run.mjs [SUITE..] [--grep TEXT] [--config NAME] [--set KEY=VALUE] [--selftest]
// `--config firefox` runs them in Firefox.
// SUITE is a file name in tests/browser/suites without `.mjs`. VERBOSE=1 shows the page's console.
// Two suites run at a time, each in a browser of its own, since one keeps about one processor busy; those that measure time say `// alone:` and why.
import { mkdirSync, readFileSync, readdirSync } from "node:fs";
import { availableParallelism } from "node:os";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { unpackInto } from "../../scripts/lib/package.mjs";
import { Failure, main, root } from "../../scripts/lib/run.mjs";
import { writeModelFolder } from "../lib/model_folder.mjs";
import { CONFIGS, MODEL_FOLDER, runSuite } from "./suite.mjs";

const folder = join(root, "tests/browser");
/** Where the package is unpacked. */
const project = join(root, "tests/tmp/browser");
/** So many suites at a time. */
const CONCURRENT_SUITES = 2;

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

/** What a line of the head of a suite's file says. */
const headerField = (path, what) => new RegExp(`^// ${what}: (.+)$`, "m").exec(readFileSync(join(folder, path), "utf8"))?.[1];

/** The configurations a suite's file names in its `// configs:` line. */
function configsOf(path) {
  const names = headerField(path, "configs")?.split(",").map((name) => name.trim()) ?? ["default"];
  for (const name of names) if (!CONFIGS[name]) throw new Failure(`${path}: there is no configuration \`${name}\``);
  return names;
}

/** The lines about a test. */
function lines({ name, error, ms, notes }) {
  const first = `  ${error ? "FAIL" : "ok  "} ${name} (${ms.toFixed(0)} ms)`;
  return [first, ...notes.map((note) => `         ${note}`), ...(error ? [error.replace(/^/gm, "         ")] : [])];
}

/** The unpacked package's files, as a page would get them. */
export function unpackPackage() {
  mkdirSync(project, { recursive: true });
  unpackInto(project);
  return join(project, "node_modules/gradloom/dist");
}

async function suites({ suites: names, grep, config, set }) {
  const all = readdirSync(join(folder, "suites")).filter((name) => name.endsWith(".mjs")).sort();
  const unknown = names.filter((name) => !all.includes(`${name}.mjs`));
  if (unknown.length > 0) throw new Failure(`browser: there is no suite ${unknown.join(", ")}`);
  const gradloom = unpackPackage();
  writeModelFolder(join(root, MODEL_FOLDER), project);
  let passed = 0;
  const failed = [];
  const jobs = (names.length > 0 ? names.map((each) => `${each}.mjs`) : all).flatMap((name) => {
    const path = `suites/${name}`;
    const configs = config === "firefox" ? ["firefox"] : configsOf(path).filter((named) => !config || named === config);
    return configs.map((each) => ({ name, path, config: each, isAlone: headerField(path, "alone") !== undefined }));
  });
  /** Runs a suite, and says so at its end, or as it goes. */
  const job = async ({ name, path, config: each }, live) => {
    const held = [];
    const say = (...more) => (live ? console.log(more.join("\n")) : held.push(...more));
    say(`browser: ${basename(name, ".mjs")} (${each})`);
    const rows = await runSuite({ path, config: each, gradloom, grep, set, onRow: (row) => say(...lines(row)) });
    if (!live) console.log(held.join("\n"));
    passed += rows.filter((row) => !row.error).length;
    failed.push(...rows.filter((row) => row.error).map((row) => `${name} (${each}): ${row.name}`));
  };
  const [beside, alone] = [jobs.filter(({ isAlone }) => !isAlone), jobs.filter(({ isAlone }) => isAlone)];
  const lanes = Math.min(CONCURRENT_SUITES, availableParallelism(), beside.length);
  const lane = async () => {
    for (let next = beside.shift(); next; next = beside.shift()) await job(next, lanes < 2);
  };
  await Promise.all(Array.from({ length: lanes }, lane));
  for (const each of alone) await job(each, true);
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
