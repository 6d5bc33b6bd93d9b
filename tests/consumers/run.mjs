// The packed tarball in three kinds of project, each in a temporary folder far from the repository so that nothing of the
// workspace is found by accident: a Node program, a plain page, a Vite application with strict types.
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { launch } from "../../scripts/lib/chromium.mjs";
import { tarball } from "../../scripts/lib/package.mjs";
import { Failure, main, output, root } from "../../scripts/lib/run.mjs";
import { serve } from "../../scripts/serve.mjs";
import { readNpz } from "../lib/npz.mjs";

const model = join(root, "tests/models/silero_vad_op18_ifless");

const arrays = await readNpz(readFileSync(join(model, "input.npz")));
const inputs = { input: Array.from(arrays.input.data), state: Array.from(arrays.state.data) };
const [speech] = (await readNpz(readFileSync(join(model, "expected.npz")))).output.data;
const heard = (value) => Math.abs(value - speech) < 1e-3 * Math.abs(speech);

// what the modules that are loaded on first use should give
const words = JSON.parse(readFileSync(join(root, "tests/fixtures/text/samples.json"), "utf8"));
const greeting = words.texts[2];
const same = (tokens) => JSON.stringify(tokens) === JSON.stringify(words.bert.ids[2]);

const bin = (name) => join(root, "node_modules/.bin", name);

/** A copy of a consumer's files with the tarball installed by npm, offline: the package has no dependencies. */
function project(name, parent) {
  const folder = join(parent, name);
  cpSync(join(root, "tests/consumers", name), folder, { recursive: true });
  const args = ["install", "--offline", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error", tarball];
  output("npm", args, { cwd: folder });
  // Vite serves what is in `public`.
  const files = name === "vite" ? join(folder, "public") : folder;
  mkdirSync(files, { recursive: true });
  cpSync(join(model, "model.onnx"), join(files, "model.onnx"));
  cpSync(join(root, "tests/fixtures/text/bert.json"), join(files, "tokenizer.json"));
  cpSync(join(root, "tests/fixtures/io/torch_zip.pt"), join(files, "weights.pt"));
  writeFileSync(join(files, "inputs.json"), JSON.stringify({ ...inputs, greeting }));
  return folder;
}

/** Opens a page and waits for the `result` its script leaves; anything on the error console fails it. */
async function resultOf(browser, mounts) {
  const server = await serve(mounts);
  const page = await browser.newPage();
  const problems = [];
  page.on("console", (message) => message.type() === "error" && problems.push(message.text()));
  page.on("pageerror", (error) => problems.push(String(error)));
  try {
    await page.goto(server.url);
    const until = Date.now() + 600_000;
    while (Date.now() < until && problems.length === 0) {
      const result = await page.evaluate(() => globalThis.result);
      if (result !== undefined) return result;
      await page.waitForTimeout(100);
    }
    throw new Failure(problems.length > 0 ? problems.join("\n") : "the page left no result");
  } finally {
    await page.close();
    await server.close();
  }
}

function expect(name, result, checks) {
  for (const [what, holds] of Object.entries(checks)) {
    if (!holds) throw new Failure(`consumers: ${name}: ${what} does not hold in ${JSON.stringify(result)}`);
  }
  console.log(`consumers: ${name}: ok ${JSON.stringify(result)}`);
}

main(async () => {
  const parent = mkdtempSync(join(tmpdir(), "gradloom-consumers-"));
  const browser = await launch();
  try {
    const version = JSON.parse(output("npm", ["pkg", "get", "version", "--workspace", "gradloom", "--loglevel=error"])).gradloom;

    const node = JSON.parse(output("node", ["main.mjs"], { cwd: project("node", parent) }));
    expect("node", node, {
      "the version": node.version === version,
      "wasm in Node": node.device === "wasm",
      "the model's output": heard(node.speech),
      "tokens, by a module of their own": same(node.tokens),
      "weights of torch.save": node.weights.join() === "0,6,12",
      "tensor sums": node.sum === 12,
      progress: node.phases.join() === "device,download,parse",
    });

    const page = await resultOf(browser, { "/": project("page", parent) });
    expect("page", page, {
      "the version": page.version === version,
      WebGPU: page.webgpu,
      "the model's output": heard(page.speech),
      "tokens, by a module of their own": same(page.tokens),
      "weights of torch.save": page.weights.join() === "0,6,12",
      "tensor sums": page.sum === 12,
    });

    const app = project("vite", parent);
    output(bin("tsc"), ["-p", app]);
    output(bin("vite"), ["build", "--logLevel", "warn"], { cwd: app });
    const vite = await resultOf(browser, { "/": join(app, "dist") });
    expect("vite", vite, {
      "the version": vite.version === version,
      WebGPU: vite.webgpu,
      "the model's output": heard(vite.speech),
      "tokens, by a module of their own": same(vite.tokens),
      "weights of torch.save": vite.weights.join() === "0,6,12",
      training: vite.losses[1] < vite.losses[0] / 4,
    });
  } finally {
    await browser.close();
    rmSync(parent, { recursive: true, force: true });
  }
});
