// Runs one suite of tests in a page of a headless browser and returns what happened: a row for each test, with console
// errors, uncaught exceptions, failed requests, crashes and hangs counted against the test that was running.
import { join } from "node:path";
import { launch } from "../../scripts/lib/chromium.mjs";
import { launchFirefox } from "../../scripts/lib/firefox.mjs";
import { root } from "../../scripts/lib/run.mjs";
import { serve } from "../../scripts/serve.mjs";

/** A Content-Security-Policy without `wasm-unsafe-eval`. The page of the tests contains scripts. */
const POLICY = "default-src 'self'; worker-src 'self'; script-src 'self' 'unsafe-inline'";
/** The policy that a page needs whose package is from another origin. */
const otherOriginPolicy = (origin) =>
  `default-src 'self'; connect-src 'self' ${origin}; worker-src blob: ${origin}; script-src 'self' 'unsafe-inline' 'wasm-unsafe-eval' ${origin}`;

/**
 * How a page is opened. A suite names the ones it wants in a line `// configs: a, b`; without one it gets `default`. In Firefox, which
 * has no WebGPU everywhere, every suite runs, in the last one alone.
 */
export const CONFIGS = {
  default: { webgpu: true, isolation: true },
  "no-webgpu": { webgpu: false, isolation: true },
  "not-isolated": { webgpu: true, isolation: false },
  // the server sends the headers of isolation with pages only, so browsers refuse its scripts as workers
  "isolated-pages": { webgpu: false, isolation: "pages" },
  // the package comes from another origin, as from a CDN
  "other-origin": { webgpu: true, isolation: true, otherOrigin: true },
  "other-origin-not-isolated": { webgpu: false, isolation: false, otherOrigin: true },
  "other-origin-csp": { webgpu: false, isolation: true, otherOrigin: true, csp: otherOriginPolicy },
  // Content-Security-Policies that permit WebAssembly, and that do not
  csp: { webgpu: false, isolation: true, csp: () => `${POLICY} 'wasm-unsafe-eval'` },
  "csp-without-wasm": { webgpu: false, isolation: true, csp: () => POLICY },
  // canvases of WebGPU, which end the GPU's process of a headless Chromium (148) without this
  vulkan: { webgpu: true, isolation: true, flags: ["--use-angle=vulkan", "--use-vulkan=swiftshader", "--enable-features=Vulkan"] },
  // sound without a visitor, who would have to touch the page first
  sound: { webgpu: false, isolation: true, flags: ["--autoplay-policy=no-user-gesture-required"] },
  firefox: { firefox: true, webgpu: false, isolation: true },
};

/** Beyond a test's own limit: a page that blocks its thread cannot report that it is late. */
const GRACE_MS = 40_000;

/** A folder of models that the package's command writes. */
export const MODEL_FOLDER = "tests/tmp/browser/model-folder";

/** What the page may load, by URL prefix. */
export function mounts(gradloom) {
  return {
    "/": join(root, "tests/browser"),
    "/lib": join(root, "tests/lib"),
    "/onnx": join(root, "tests/bench/browser"),
    "/conformance": join(root, "tests/web/pkg"),
    "/models": join(root, "tests/models"),
    "/model-folder": join(root, MODEL_FOLDER),
    "/cache": join(root, ".cache"),
    "/fixtures": join(root, "tests/fixtures"),
    "/gradloom": gradloom,
    // the Rust test `export` makes them
    "/exported": join(root, "tests/tmp/export/web"),
  };
}

/**
 * `path` is the suite's path below tests/browser. Returns [{name, error, ms, notes}]; `error` is null for a test that passed.
 */
export async function runSuite({ path, config, gradloom, grep = "", set = {}, onRow = () => {} }) {
  const { webgpu, isolation, firefox, flags = [], otherOrigin = false, csp = () => null } = CONFIGS[config];
  const packageServer = otherOrigin ? await serve({ "/gradloom": gradloom }, { isolation: false, crossOrigin: true }) : null;
  const server = await serve(mounts(gradloom), { isolation, csp: csp(packageServer?.url) });
  const browser = await (firefox ? launchFirefox() : launch({ webgpu, flags }));
  const rows = [];
  let current = null;
  let planned = null;
  let allowed = [];
  let watchdog = null;
  let finish;
  const finished = new Promise((done) => (finish = done));

  const close = (error, ms) => {
    const errors = [error, ...(current?.problems ?? [])].filter((problem) => problem);
    const row = { name: current?.name ?? "(outside any test)", error: errors.join("\n") || null, ms, notes: current?.notes ?? [] };
    rows.push(row);
    onRow(row);
    current = null;
    allowed = [];
  };
  const stop = (error) => {
    clearTimeout(watchdog);
    if (error) close(error, 0);
    finish();
  };
  const watch = (ms) => {
    clearTimeout(watchdog);
    watchdog = setTimeout(() => stop(`the page did not answer for ${ms} ms`), ms);
  };
  const problem = (text) => {
    if (allowed.some((pattern) => pattern.test(text))) return;
    if (current) current.problems.push(text);
    else close(text, 0);
  };
  const on = {
    plan: ({ count }) => (planned = count),
    begin: ({ name, timeoutMs }) => {
      current = { name, problems: [], notes: [] };
      watch(timeoutMs + GRACE_MS);
    },
    allow: ({ pattern }) => void allowed.push(new RegExp(pattern)),
    note: ({ text }) => void current?.notes.push(text),
    end: ({ error, ms }) => {
      close(error, ms);
      watch(GRACE_MS);
    },
    fatal: ({ error }) => stop(error),
    done: () => stop(null),
  };

  const open = async () => {
    const page = await browser.newPage();
    await page.exposeFunction("__report", (event) => on[event.kind](event));
    page.on("console", (message) => {
      if (process.env.VERBOSE) console.log(`      | ${message.text()}`);
      if (message.type() === "error") problem(`console error: ${message.text()}`);
    });
    page.on("pageerror", (error) => problem(`uncaught: ${error.stack ?? error}`));
    page.on("crash", () => stop("the page crashed"));
    const query = new URLSearchParams({ suite: `/${path}`, config, webgpu, grep, package: `${packageServer?.url ?? ""}/gradloom`, ...set });
    await page.goto(`${server.url}/page/index.html?${query}`);
  };
  try {
    watch(GRACE_MS);
    // a page that does not even open is late too; what it says after that is not waited for
    await Promise.race([open().then(() => finished), finished]);
    const ran = rows.filter(({ name }) => name !== "(outside any test)").length;
    if (planned === 0 && !grep && !firefox) close("the suite has no tests", 0);
    else if (planned !== null && ran < planned) close(`only ${ran} of ${planned} tests ran`, 0);
  } finally {
    clearTimeout(watchdog);
    await browser.close();
    await server.close();
    await packageServer?.close();
  }
  return rows;
}
