// Times the models of a folder in gradloom's npm package and in onnxruntime-web: in Node, or in a page of Chromium. Prints a JSON object a
// model. What ends or hangs the page or the process is an error of the model that it was at; the others go on in another one.
// usage: node tests/bench/cliffs/web.mjs FOLDER --on node|page|webgpu [--threads 1] [--ms 200] [--other TARBALL] [--busy] NAME..
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { launch } from "../../../scripts/lib/chromium.mjs";
import { unpack } from "../../../scripts/lib/package.mjs";
import { Failure, main, root } from "../../../scripts/lib/run.mjs";
import { serve } from "../../../scripts/serve.mjs";
import { install } from "../browser/peers.mjs";
import { compareRuntimes } from "./compare_runtimes.mjs";

const TIMEOUT_MS = 120_000;
const cache = join(root, ".cache/bench");
const peers = join(cache, "onnxruntime-web");

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    on: { type: "string", default: "node" },
    threads: { type: "string", default: "1" },
    ms: { type: "string", default: "200" },
    other: { type: "string" },
    busy: { type: "boolean" },
    worker: { type: "string" },
  },
});

/** In a process of its own: `[lines as they come, how to end it]`. */
function inNode(options, onLine) {
  const child = spawn(process.execPath, [import.meta.filename, "--worker", JSON.stringify(options)], { stdio: ["ignore", "pipe", "inherit"] });
  createInterface({ input: child.stdout }).on("line", onLine);
  child.on("exit", () => onLine("@@{\"done\":true}"));
  return async () => void child.kill("SIGKILL");
}

async function inPage(options, mounts, onLine) {
  const server = await serve(mounts, { isolation: true });
  const browser = await launch({ flags: ["--enable-features=WebAssemblyRelaxedSIMD"] });
  const page = await browser.newPage();
  page.on("console", (message) => onLine(message.text()));
  page.on("crash", () => onLine("@@{\"done\":true}"));
  const query = new URLSearchParams({ script: "page", options: JSON.stringify(options) });
  await page.goto(`${server.url}/tests/bench/browser/page.html?${query}`);
  return async () => {
    await browser.close();
    await server.close();
  };
}

/** Goes through names as far as one page or process comes. The rows. */
async function attempt(start) {
  const rows = [];
  let at;
  let fatal;
  let stop;
  let watchdog;
  await new Promise((finish) => {
    const wait = () => {
      clearTimeout(watchdog);
      watchdog = setTimeout(finish, TIMEOUT_MS);
    };
    const onLine = (line) => {
      if (process.env.VERBOSE) console.error(`  | ${line.slice(0, 300)}`);
      if (!line.startsWith("@@")) return;
      wait();
      const value = JSON.parse(line.slice(2));
      if (value.begin) at = value.begin;
      if (value.name) {
        rows.push(value);
        at = undefined;
        console.log(JSON.stringify(value));
      }
      fatal ??= value.fatal;
      if (value.done) finish();
    };
    wait();
    stop = start(onLine);
  });
  clearTimeout(watchdog);
  await (await stop)();
  if (at !== undefined) {
    rows.push({ name: at, error: "it ended the page or the process, or hung" });
    console.log(JSON.stringify(rows.at(-1)));
  }
  if (rows.length === 0) throw new Failure(`cliffs: ${fatal ?? "nothing ran"}`);
  return rows;
}

async function drive() {
  const [folder, ...names] = positionals;
  install(peers, ["onnxruntime-web"]);
  const gradloom = unpack(join(cache, "package"));
  const other = values.other && unpack(join(cache, "other"), resolve(values.other));
  const options = { device: values.on === "webgpu" ? "webgpu" : "wasm", threads: Number(values.threads), budget: Number(values.ms), busy: values.busy };
  const dist = join(peers, "node_modules/onnxruntime-web/dist");
  const mounts = { "/tests": join(root, "tests"), "/bench": join(root, "tests/bench/cliffs"), "/data": resolve(folder),
    "/gradloom": gradloom, ...(other && { "/other": other }), "/peers": join(peers, "node_modules") };
  let left = names;
  while (left.length > 0) {
    const start = (onLine) => {
      if (values.on !== "node") return inPage({ ...options, otherAt: other && "/other/index.js", names: left }, mounts, onLine);
      const [gradloomAt, otherAt] = [gradloom, other].map((at) => at && pathToFileURL(join(at, "index.js")).href);
      const places = { folder: resolve(folder), gradloomAt, otherAt, ortAt: `${pathToFileURL(dist).href}/` };
      return inNode({ ...options, ...places, names: left }, onLine);
    };
    const rows = await attempt(start);
    left = left.filter((name) => !rows.some((row) => row.name === name));
  }
}

main(async () => {
  if (!values.worker) return drive();
  const { folder, ...options } = JSON.parse(values.worker);
  const say = (value) => console.log(`@@${JSON.stringify(value)}`);
  const file = async (name) => new Uint8Array(readFileSync(join(folder, name)));
  await compareRuntimes({ ...options, file, say }).catch((error) => say({ fatal: String(error?.stack ?? error) }));
  process.exit(0);
});
