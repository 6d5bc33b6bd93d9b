// Times gradloom in a headless Chromium beside other libraries of the browser: the same cases, every result checked.
// usage: node tests/bench/browser/run.mjs [--only COLUMN,..] [--cases NAME,..] [--ms 300] [--rounds 2] [--json FILE] [--table FILE..]
//        node tests/bench/browser/run.mjs --tune FILE --only gradloom-wasm --ms 20000 [--cases NAME,..]
//        node tests/bench/browser/run.mjs --scaling yes --ms 5000 [--cases NAME,..]
//        node tests/bench/browser/run.mjs --first 100 [--only COLUMN,..] [--rounds 3]
// Peers are installed on demand into .cache/bench/peers. Columns take turns, and the least time of each is kept.
// --scaling compares two threads of WebAssembly with one, and with what two workers that share nothing get of the machine.
// --first measures no cases: it fails where the import of the package and the sum of two 4x4 matrices take more milliseconds in all, with
// nothing cached, in the best of the rounds; by default on WebAssembly with one thread.
// --tune searches for faster kernels instead, so long for each case, and appends them to a file for `init({ tuned })`.
import { appendFileSync, existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { launch } from "../../../scripts/lib/chromium.mjs";
import { unpack } from "../../../scripts/lib/package.mjs";
import { Failure, main, output, root } from "../../../scripts/lib/run.mjs";
import { serve } from "../../../scripts/serve.mjs";
import { names, write } from "./cases.mjs";
import { install } from "./peers.mjs";

const cache = join(root, ".cache/bench");

/** A column: an adapter with its options; `isolated` pages may share memory between threads. */
const COLUMNS = [
  { name: "gradloom-wasm", adapter: "gradloom", opts: { device: "wasm", threads: 1 } },
  { name: "ort-wasm", adapter: "ort", opts: { device: "wasm" } },
  { name: "tfjs-wasm", adapter: "tfjs", opts: { device: "wasm" } },
  { name: "jax-wasm", adapter: "jax", opts: { device: "wasm" } },
  { name: "gradloom-wasm-2t", adapter: "gradloom", opts: { device: "wasm", threads: 2 }, isolated: true },
  { name: "ort-wasm-2t", adapter: "ort", opts: { device: "wasm", threads: 2 }, isolated: true },
  { name: "gradloom-webgpu", adapter: "gradloom", opts: { device: "webgpu" } },
  { name: "jax-webgpu", adapter: "jax", opts: { device: "webgpu" } },
  { name: "tfjs-webgpu", adapter: "tfjs", opts: { device: "webgpu" } },
  { name: "ort-webgpu", adapter: "ort", opts: { device: "webgpu" } },
];

/** Modules that a page can load as they are. */
const TFJS = `export * from "@tensorflow/tfjs-core"; import "@tensorflow/tfjs-core/dist/register_all_gradients.js";
import "@tensorflow/tfjs-core/dist/public/chained_ops/register_all_chained_ops.js";`;
const VENDOR = {
  "tfjs-wasm": `${TFJS} export * from "@tensorflow/tfjs-backend-wasm";`,
  "tfjs-webgpu": `${TFJS} import "@tensorflow/tfjs-backend-webgpu";`,
  jax: `export * from "@jax-js/jax";`,
};

function options(argv) {
  const found = { only: "", cases: names.join(","), ms: "300", rounds: "2", json: join(cache, "browser.json"), tune: "", scaling: "", first: "", table: [] };
  for (let at = 0; at < argv.length; at += 1) {
    const key = argv[at].replace(/^--/, "");
    if (key === "table") found.table = argv.slice(at + 1);
    if (key === "table") break;
    if (!(key in found) || argv[at] === key) throw new Failure(`bench: there is no option ${argv[at]}`);
    found[key] = argv[(at += 1)];
  }
  return found;
}

/** The packages of the peers, and bundles of those that are no single module. */
function installPeers() {
  const folder = join(cache, "peers");
  mkdirSync(join(folder, "vendor"), { recursive: true });
  install(folder);
  for (const [name, text] of Object.entries(VENDOR)) {
    const to = join(folder, `vendor/${name}.js`);
    if (existsSync(to)) continue;
    const from = join(folder, `${name}.js`);
    writeFileSync(from, text);
    const flags = ["--bundle", "--minify", "--format=esm", "--platform=browser", "--external:fs", "--external:path"];
    output(join(folder, "node_modules/.bin/esbuild"), [from, ...flags, "--external:os", "--external:worker_threads",
      "--external:perf_hooks", `--outfile=${to}`, "--log-level=error"], { cwd: folder });
  }
  return folder;
}

/** Processor milliseconds so far of the browser's renderer and GPU processes. */
async function cpuOf(session) {
  const { processInfo } = await session.send("SystemInfo.getProcessInfo");
  let nanos = 0;
  for (const { id } of processInfo.filter(({ type }) => type === "renderer" || type === "GPU")) {
    try {
      for (const task of readdirSync(`/proc/${id}/task`)) {
        nanos += Number(readFileSync(`/proc/${id}/task/${task}/schedstat`, "utf8").split(" ")[0]);
      }
    } catch {
      // a thread that ended meanwhile
    }
  }
  return nanos / 1e6;
}

/** One column in a fresh browser: {start, cases: {name: row}}. */
async function column({ adapter, opts, isolated = false, script = "page" }, list, ms, mounts, tune = "") {
  const server = await serve(mounts, { isolation: isolated });
  const browser = await launch({ flags: ["--enable-features=WebAssemblyRelaxedSIMD"] });
  const got = { cases: {} };
  try {
    const page = await browser.newPage();
    const session = await browser.newBrowserCDPSession();
    await page.exposeFunction("__cpu", () => cpuOf(session));
    let finish;
    let current = null;
    const timeoutMs = 120_000 + (tune ? 2 * Number(ms) : 0);
    const finished = new Promise((done) => (finish = done));
    let watchdog = setTimeout(finish, timeoutMs);
    page.on("console", (message) => {
      const match = /^@@(\w+) (.*)$/s.exec(message.text());
      if (process.env.VERBOSE) console.error(`  | ${message.text().slice(0, 300)}`);
      if (!match) return;
      clearTimeout(watchdog);
      watchdog = setTimeout(() => {
        if (current) got.cases[current] = { error: `no answer in ${timeoutMs / 1000} s` };
        finish();
      }, timeoutMs);
      const value = JSON.parse(match[2]);
      if (match[1] === "start") got.start = value;
      if (match[1] === "begin") current = value.name;
      if (match[1] === "case") got.cases[value.name] = value;
      if (match[1] === "fatal") got.error = value.error;
      if (match[1] === "done") finish();
    });
    page.on("crash", finish);
    const query = new URLSearchParams({ adapter, opts: JSON.stringify(opts), cases: list, ms, tune, script });
    await page.goto(`${server.url}/bench/page.html?${query}`);
    await finished;
    clearTimeout(watchdog);
  } finally {
    await browser.close();
    await server.close();
  }
  return got;
}

/** A gain below this many milliseconds may be the clock's. */
const LEAST_GAIN = 0.02;

/** Appends the kernels that became faster to a file. */
async function tuneCases(each, { cases, ms, tune }, mounts) {
  const got = await column(each, cases, ms, mounts, tune);
  if (got.error) throw new Failure(`${each.name}: ${got.error}`);
  for (const { name, kernels = [], error } of Object.values(got.cases)) {
    const better = kernels.filter(({ line, beforeMs, afterMs }) => line && beforeMs - afterMs > LEAST_GAIN);
    console.log(`${each.name} ${name}: ${error ?? `${kernels.length} kernels, ${better.length} faster`}`);
    better.forEach((k) => console.log(`  ${(k.beforeMs / k.afterMs).toFixed(2)}  ${k.beforeMs.toFixed(3)} -> ${k.afterMs.toFixed(3)} ms  ${k.name}`));
    if (better.length > 0) appendFileSync(tune, `# ${name}\n${better.map(({ line }) => line).join("\n")}\n`);
  }
}

/** Fails where a column's first result comes later than it should, in the best of the rounds, each in a fresh browser. */
async function checkFirst({ first, rounds }, columns, mounts) {
  if (!(Number(first) > 0)) throw new Failure("bench: --first takes milliseconds");
  const late = [];
  for (const each of columns) {
    const times = [];
    for (let round = 0; round < Number(rounds); round += 1) {
      const got = await column(each, "", 20, mounts);
      if (got.error || !got.start) throw new Failure(`${each.name}: ${got.error ?? "no result"}`);
      if (!got.start.ok) throw new Failure(`${each.name}: the sum is wrong`);
      times.push(got.start.first_ms);
    }
    console.log(`${each.name}: from import to the first result of a 4x4 addition ${times.map(number).join(", ")} ms; at most ${first} are allowed`);
    if (Math.min(...times) > Number(first)) late.push(each.name);
  }
  if (late.length > 0) throw new Failure(`bench: the first result takes over ${first} ms on ${late.join(", ")}`);
}

/** Two threads beside one, and beside two workers. */
async function scaling({ cases, ms }, mounts) {
  const got = await column({ script: "scaling", isolated: true }, cases, ms, mounts);
  if (got.error || !got.start?.isolated) throw new Failure(`scaling: ${got.error ?? "the page may not share memory"}`);
  console.log("| case | one thread, ms | two threads | two workers | times: least | median | machine's median | with a free core: times | machine |");
  console.log(`|${"---|".repeat(9)}`);
  for (const { name, error, one, two, separate, times, machine, freeTimes, freeMachine } of Object.values(got.cases)) {
    const ratios = error ? [] : [one / two, times, machine, freeTimes, freeMachine].map((v) => v.toFixed(2));
    console.log(`| ${name} | ${error ?? [...[one, two, separate].map(number), ...ratios].join(" | ")} |`);
  }
}

/** The best of two measurements of one column. */
function merge(old, fresh) {
  if (!old) return fresh;
  const out = { ...fresh, start: fresh.start ?? old.start, cases: { ...old.cases } };
  for (const [name, row] of Object.entries(fresh.cases)) {
    const before = old.cases[name];
    if (!before || before.error) out.cases[name] = row;
    else if (!row.error) {
      const least = (key) => Math.min(before[key] ?? Infinity, row[key] ?? Infinity);
      out.cases[name] = { ...row, ok: row.ok && before.ok, ms: least("ms"), cpu_ms: least("cpu_ms"), first_ms: least("first_ms"),
        first_cpu_ms: least("first_cpu_ms") };
    }
  }
  if (fresh.start && old.start) out.start.first_ms = Math.min(fresh.start.first_ms, old.start.first_ms);
  return out;
}

const number = (v) => (v >= 100 ? v.toFixed(0) : v >= 10 ? v.toFixed(1) : v >= 1 ? v.toFixed(2) : v.toFixed(3));

/** Markdown: wall / processor ms, and gradloom's ratio to the best peer of the same kind (processor time). */
export function table(results) {
  const text = [];
  for (const [title, ours, kind] of [["WASM, one thread", "gradloom-wasm", /-wasm$/], ["WASM, two threads", "gradloom-wasm-2t", /-2t$/],
    ["WebGPU", "gradloom-webgpu", /-webgpu$/]]) {
    const columns = Object.keys(results).filter((name) => kind.test(name));
    if (!columns.includes(ours)) continue;
    const peers = columns.filter((name) => name !== ours);
    text.push(`\n${title}: wall ms / processor ms\n`, `| case | ${ours} | rate | ${peers.join(" | ")} | ratio | first |`,
      `|${"---|".repeat(peers.length + 5)}`);
    const cell = (row) => (!row ? "" : row.error ? "fails" : `${row.ok ? "" : "WRONG "}${number(row.ms)} / ${number(row.cpu_ms)}`);
    for (const name of Object.keys(results[ours].cases)) {
      const row = results[ours].cases[name];
      const others = peers.map((peer) => results[peer].cases[name]);
      const best = Math.min(...others.filter((r) => r && !r.error && r.ok).map((r) => Math.min(r.ms, r.cpu_ms)));
      const own = row.error ? Infinity : Math.min(row.ms, row.cpu_ms);
      const ratio = Number.isFinite(best) && row.ok ? `**${(best / own).toFixed(2)}**` : "";
      const work = row.flops > 4 * row.bytes ? row.flops : row.bytes;
      const rate = row.error || !work ? "" : `${number(work / own / 1e6)} ${work === row.flops ? "GFLOP/s" : "GB/s"}`;
      const first = row.first_ms ? `${number(row.first_ms)} / ${number(row.first_cpu_ms)}` : "";
      text.push(`| ${name} | ${cell(row)} | ${rate} | ${others.map(cell).join(" | ")} | ${ratio} | ${first} |`);
    }
    const starts = columns.map((name) => `${name} ${number(results[name].start?.first_ms ?? 0)}`).join(", ");
    text.push("", `From import to the first result of a 4x4 addition, ms: ${starts}`);
  }
  return text.join("\n");
}

main(async () => {
  const chosen = options(process.argv.slice(2));
  if (chosen.table.length > 0) {
    console.log(table(Object.assign({}, ...chosen.table.map((file) => JSON.parse(readFileSync(file, "utf8"))))));
    return;
  }
  if (chosen.first) Object.assign(chosen, { cases: "", only: chosen.only || "gradloom-wasm" });
  const only = chosen.only ? chosen.only.split(",") : COLUMNS.map(({ name }) => name);
  const unknown = only.filter((name) => !COLUMNS.some((each) => each.name === name));
  if (unknown.length > 0) throw new Failure(`bench: there is no column ${unknown.join(", ")}; there are ${COLUMNS.map((c) => c.name).join(", ")}`);
  const cases = chosen.cases.split(",").filter(Boolean);
  const strange = cases.filter((name) => !names.includes(name));
  if (strange.length > 0) throw new Failure(`bench: there is no case ${strange.join(", ")}; there are ${names.join(", ")}`);
  const columns = COLUMNS.filter(({ name }) => only.includes(name));
  const peers = columns.some(({ adapter }) => adapter !== "gradloom") ? installPeers() : join(cache, "peers");
  const data = join(cache, "browser");
  for (const name of ["tiny", ...cases]) await write(name, data);
  const mounts = { "/bench": join(root, "tests/bench/browser"), "/data": data, "/gradloom": unpack(join(cache, "package")),
    "/peers": join(peers, "node_modules"), "/vendor": join(peers, "vendor") };
  if (chosen.first) return checkFirst(chosen, columns, mounts);
  if (chosen.scaling) return scaling(chosen, mounts);
  if (chosen.tune) {
    for (const each of columns) await tuneCases(each, chosen, mounts);
    return;
  }
  const results = {};
  for (let round = 0; round < Number(chosen.rounds); round += 1) {
    for (const each of columns) {
      const got = await column(each, chosen.cases, chosen.ms, mounts);
      if (got.error) console.error(`${each.name}: ${got.error}`);
      results[each.name] = merge(results[each.name], got);
      const rows = Object.entries(got.cases).map(([name, row]) => `${name} ${row.error ?? `${number(row.ms)}/${number(row.cpu_ms)}${row.ok ? "" : " WRONG"}`}`);
      console.error(`${each.name}: ${rows.join(", ")}`);
      mkdirSync(dirname(chosen.json), { recursive: true });
      writeFileSync(chosen.json, JSON.stringify(results, null, 1));
    }
  }
  console.log(table(results));
});
