// The packed tarball in other people's tools: bundlers, frameworks with a server, an extension of the browser, workers of every kind, an import
// map, Bun and Deno; and what publint and arethetypeswrong say of it. `npm run test:consumers`, which installs the tools (tests/consumers/tools) on first use.
// usage: node tests/consumers/bundlers.mjs [NAME..]
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { cpSync, existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { launch, launchProfile } from "../../scripts/lib/chromium.mjs";
import { tarball, unpack } from "../../scripts/lib/package.mjs";
import { Failure, main, output, root } from "../../scripts/lib/run.mjs";
import { npmTools } from "../../scripts/lib/tools.mjs";
import { areExpectedTokens, areWrittenTokens, expect, isExpectedVoice, isSpeechOutput, project, resultAt, resultOf } from "./common.mjs";

/** The path of a tool. */
const tool = (name) => join(npmTools(), "node_modules/.bin", name);

const PAGE = {
  "the model's output": ({ speech }) => isSpeechOutput(speech),
  "two threads": ({ threads }) => threads === 2,
  "a worker that starts before the module is there": ({ order }) => order.join() === "worker,module",
  "tokens, by a module of their own": ({ tokens }) => areExpectedTokens(tokens),
  "weights of torch.save": ({ weights }) => weights.join() === "0,6,12",
  "pixels of a canvas": ({ pixels }) => pixels.join() === "0,0,0,255,0,0,0,0",
  "an entry of its own": ({ batches }) => batches === 2,
  "a task": ({ segments }) => isExpectedVoice(segments),
  "a language model": ({ written }) => areWrittenTokens(written),
};

/** The files that pages fetch. */
const FILES = ["model.onnx", "inputs.json", "tokenizer.json", "weights.pt", "recipe.json", "speech.wav", "language.gguf"];

/** A built page: what the tool wrote, with the files that it fetches. */
async function page(browser, name, app, built, options = {}) {
  if (built !== app) for (const file of FILES) cpSync(join(app, file), join(built, file));
  if (!existsSync(join(built, "index.html"))) cpSync(join(app, "index.html"), join(built, "index.html"));
  expect(name, await resultOf(browser, { "/": built }, options), PAGE);
}

/** What a server serves that sends the headers of isolation with pages alone: browsers refuse the scripts of workers themselves. */
const isolatedPages = { isolation: "pages" };

/** What people write, in strict TypeScript: a callback may give anything. */
const USE_OF_TYPES = `import type { FitOptions } from "gradloom/fit";
export const onEpoch: NonNullable<FitOptions<unknown>["onEpoch"]> = ({ epoch, loss }) => epoch % 5 === 4 && console.log(loss);`;

/**
 * Compiles an import of each entry with the libraries that Vite's template has, without leaving out what is wrong inside
 * the declarations.
 */
function checkDeclarations(names) {
  const folder = mkdtempSync(join(tmpdir(), "gradloom-types-"));
  try {
    unpack(join(folder, "node_modules/gradloom"));
    const lines = names.map((name, at) => `export * as entry${at} from ${JSON.stringify(join("gradloom", name))};`);
    lines.push(USE_OF_TYPES);
    for (const [at, line] of lines.entries()) writeFileSync(join(folder, `entry${at}.ts`), line);
    const libraries = ["--lib", "es2022,dom,dom.iterable", "--skipLibCheck", "false"];
    const flags = ["--strict", "--noEmit", "--target", "es2022", "--module", "esnext", "--moduleResolution", "bundler", ...libraries];
    // each entry by itself, since one could bring what another lacks
    for (const at of lines.keys()) output(join(root, "node_modules/.bin/tsc"), [...flags, `entry${at}.ts`], { cwd: folder });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** A port that nobody listens on. */
async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  return port;
}

const SITE = {
  "the model's output in the page": ({ speech }) => isSpeechOutput(speech),
  "two threads": ({ threads }) => threads === 2,
  "tokens, by a module of their own": ({ tokens }) => areExpectedTokens(tokens),
  "the model's output on the server": ({ server }) => server.device === "wasm" && isSpeechOutput(server.speech),
  "a task, in the page and on the server": ({ segments, server }) => isExpectedVoice(segments) && isExpectedVoice(server.segments),
  "a language model, in the page and on the server": ({ written, server }) => areWrittenTokens(written) && areWrittenTokens(server.written),
};

/** Waits until a program serves an address. */
async function answers(name, server, url) {
  for (let tries = 0; ; tries += 1) {
    if (await fetch(url).then(({ ok }) => ok, () => false)) return;
    if (tries === 100 || server.exitCode !== null) throw new Failure(`consumers: ${name}: its server does not answer`);
    await new Promise((done) => setTimeout(done, 100));
  }
}

/** A framework's own server, in Node, and the page that it draws. */
async function site(browser, name, app, port, args, env) {
  const server = spawn(process.execPath, args, { cwd: app, env, stdio: ["ignore", "ignore", "inherit"] });
  try {
    const url = `http://127.0.0.1:${port}/`;
    await answers(name, server, url);
    expect(name, await resultAt(browser, url), SITE);
  } finally {
    server.kill();
  }
}

/** Copies what a bundler that takes `new URL` for text needs beside its output, by the package's command. */
const copyFiles = (app, built) => output(process.execPath, ["node_modules/gradloom/cli/gradloom.mjs", "copy", built], { cwd: app });

const WITH_URL = '<script>globalThis.wasmUrl = "gradloom_web_bg.wasm";</script>\n<script type="module" src="./main.js"></script>';

const TOOLS = {
  async "vite-dev"(browser, parent) {
    const app = project("bundle", parent, "vite-dev");
    const headers = { "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp" };
    writeFileSync(join(app, "vite.config.mjs"), `export default ${JSON.stringify({ server: { headers } })};\n`);
    const port = await freePort();
    // the server that developers work with serves modules one by one, so nothing is bundled before the page asks
    const vite = spawn(join(root, "node_modules/.bin/vite"), ["--port", `${port}`, "--strictPort", "--host", "127.0.0.1", "--logLevel", "warn"], { cwd: app });
    let text = "";
    for (const stream of [vite.stdout, vite.stderr]) stream.on("data", (part) => (text += part));
    try {
      const url = `http://127.0.0.1:${port}/`;
      await answers("vite-dev", vite, url);
      expect("vite-dev", await resultAt(browser, url), PAGE);
      if (text.trim()) throw new Failure(`consumers: vite-dev\n${text}`);
    } finally {
      vite.kill();
    }
  },
  async webpack(browser, parent) {
    const app = project("bundle", parent, "webpack");
    const args = ["--mode", "production", "--entry", "./main.js", "-o", "built", "--no-performance"];
    const text = output(tool("webpack"), args, { cwd: app });
    if (/WARNING|ERROR/.test(text)) throw new Failure(`consumers: webpack\n${text}`);
    const strange = readdirSync(join(app, "built")).filter((name) => !/\.(js|wasm)$/.test(name));
    if (strange.length > 0) throw new Failure(`consumers: webpack copies ${strange.join(", ")}`);
    await page(browser, "webpack", app, join(app, "built"));
    await page(browser, "webpack, isolated pages", app, join(app, "built"), isolatedPages);
  },
  async vite(browser, parent) {
    // `consumers/run.mjs` has Vite as it should be served
    const app = project("bundle", parent, "vite");
    output(join(root, "node_modules/.bin/vite"), ["build", "--logLevel", "warn", "--target", "es2022"], { cwd: app });
    await page(browser, "vite, isolated pages", app, join(app, "dist"), isolatedPages);
  },
  async parcel(browser, parent) {
    const app = project("bundle", parent, "parcel");
    output(tool("parcel"), ["build", "index.html", "--dist-dir", "built", "--no-cache", "--log-level", "warn"], { cwd: app });
    await page(browser, "parcel", app, join(app, "built"));
  },
  async esbuild(browser, parent) {
    const app = project("bundle", parent, "esbuild", { html: WITH_URL });
    output(tool("esbuild"), ["main.js", "--bundle", "--format=esm", "--splitting", "--outdir=built", "--log-level=warning"], { cwd: app });
    copyFiles(app, join(app, "built"));
    await page(browser, "esbuild", app, join(app, "built"));
  },
  async rollup(browser, parent) {
    const app = project("bundle", parent, "rollup", { html: WITH_URL });
    const resolve = join(npmTools(), "node_modules/@rollup/plugin-node-resolve/dist/es/index.js");
    output(tool("rollup"), ["main.js", "-d", "built", "-p", resolve, "--silent"], { cwd: app });
    copyFiles(app, join(app, "built"));
    await page(browser, "rollup", app, join(app, "built"));
  },
  async "import-map"(browser, parent) {
    const app = project("import-map", parent, "import-map");
    for (const file of ["main.js", "tasks.js"]) cpSync(join(root, "tests/consumers/bundle", file), join(app, file));
    await page(browser, "import-map", app, app);
  },
  async next(browser, parent) {
    const app = project("next", parent);
    const env = { ...process.env, NEXT_TELEMETRY_DISABLED: "1" };
    output("npx", ["--no-install", "next", "build"], { cwd: app, env });
    const port = await freePort();
    await site(browser, "next", app, port, ["node_modules/next/dist/bin/next", "start", "-p", `${port}`], env);
  },
  async sveltekit(browser, parent) {
    const app = project("sveltekit", parent);
    output("npx", ["--no-install", "vite", "build"], { cwd: app });
    const port = await freePort();
    await site(browser, "sveltekit", app, port, ["build/index.js"], { ...process.env, HOST: "127.0.0.1", PORT: `${port}` });
  },
  async extension(_, parent) {
    const app = project("bundle", parent, "extension");
    const built = join(app, "built");
    output(tool("webpack"), ["--mode", "production", "--entry", "./main.js", "-o", "built", "--no-performance"], { cwd: app });
    for (const file of FILES) cpSync(join(app, file), join(built, file));
    cpSync(join(root, "tests/consumers/extension"), built, { recursive: true });
    // how Chromium names an extension that has no key: by the hash of its folder
    const hash = createHash("sha256").update(built).digest("hex").slice(0, 32);
    const id = [...hash].map((digit) => "abcdefghijklmnop"[Number.parseInt(digit, 16)]).join("");
    const context = await launchProfile(join(parent, "profile"), { extension: built });
    try {
      expect("extension", await resultAt(context, `chrome-extension://${id}/index.html`), PAGE);
    } finally {
      await context.close();
    }
  },
  async "service-worker"(browser, parent) {
    const result = await resultOf(browser, { "/": project("service-worker", parent, "service-worker") });
    expect("service-worker", result, {
      "the model's output": ({ speech }) => isSpeechOutput(speech),
      "an entry of its own": ({ half }) => half === 0.5,
      "a tokenizer": ({ encoded }) => areExpectedTokens(encoded),
      "a file of torch.save": ({ names, sums }) => names.length > 0 && sums.every(Number.isFinite),
      "a file that was written": ({ copied }) => String(copied) === "1,2",
      "an error with a code": ({ refused }) => refused === "E_FORMAT",
      "torch's operators": ({ inverse }) => String(inverse) === "0.5,0,0,0.25",
      "the module of kernels in the IR": ({ kernel }) => kernel === "E_FORMAT",
      "a task": ({ segments }) => isExpectedVoice(segments),
      "a language model": ({ written }) => areWrittenTokens(written),
      "a task that a chat is": ({ answer }) => /has no tokenizer/.test(answer),
    });
  },
  async workers(browser, parent) {
    const result = await resultOf(browser, { "/": project("workers", parent) });
    const each = (holds) => [result.module, result.shared].every(holds);
    expect("workers", result, {
      "the model's output": each(({ speech }) => isSpeechOutput(speech)),
      "a device": each(({ kind }) => kind === "wasm"),
      training: each(({ losses: [first, last] }) => last < first / 20),
      "tokens, by a module of their own": each(({ tokens }) => areExpectedTokens(tokens)),
    });
  },
  async bun(_, parent) {
    const app = project("node", parent, "bun");
    expect("bun", JSON.parse(output(tool("bun"), ["main.mjs"], { cwd: app })), NODE);
  },
  async deno(_, parent) {
    const app = project("node", parent, "deno");
    const env = { ...process.env, DENO_NO_UPDATE_CHECK: "1", DENO_DIR: join(parent, "deno-dir") };
    expect("deno", JSON.parse(output(tool("deno"), ["run", "--no-remote", "--allow-all", "main.mjs"], { cwd: app, env })), NODE);
  },
  async publint() {
    const text = output(tool("publint"), [tarball, "--strict"]);
    if (!text.includes("All good!")) throw new Failure(`consumers: publint\n${text}`);
    console.log("consumers: publint: ok");
  },
  async types() {
    const { exports: entries } = JSON.parse(readFileSync(join(root, "web/ts/package.json"), "utf8"));
    const plain = Object.keys(entries).filter((name) => name.endsWith(".wasm"));
    checkDeclarations(Object.keys(entries).filter((name) => !plain.includes(name) && name !== "./package.json"));
    output(tool("attw"), [tarball, "--profile", "esm-only", "--exclude-entrypoints", ...plain, "--format", "ascii"]);
    console.log("consumers: types: ok");
  },
};

const NODE = {
  "the model's output": ({ speech }) => isSpeechOutput(speech),
  "wasm": ({ device }) => device === "wasm",
  "tokens, by a module of their own": ({ tokens }) => areExpectedTokens(tokens),
  "weights of torch.save": ({ weights }) => weights.join() === "0,6,12",
  "tensor sums": ({ sum }) => sum === 12,
  "a task": ({ segments }) => isExpectedVoice(segments),
  "a language model": ({ written }) => areWrittenTokens(written),
};

main(async () => {
  const names = process.argv.slice(2);
  const unknown = names.find((name) => !TOOLS[name]);
  if (unknown) throw new Failure(`consumers: there is no ${unknown}; there are ${Object.keys(TOOLS).join(", ")}`);
  const parent = mkdtempSync(join(tmpdir(), "gradloom-tools-"));
  const browser = await launch();
  const failed = [];
  try {
    for (const name of names.length > 0 ? names : Object.keys(TOOLS)) {
      await TOOLS[name](browser, parent).catch((error) => {
        console.error(`consumers: ${name}: FAILED\n${error instanceof Failure ? error.message : error.stack}`);
        failed.push(name);
      });
    }
  } finally {
    await browser.close();
    rmSync(parent, { recursive: true, force: true });
  }
  if (failed.length > 0) throw new Failure(`consumers: failed: ${failed.join(", ")}`);
});
