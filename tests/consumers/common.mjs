// What the consumers share: the files they are given, what they should find, and pages that leave a result.
import { cpSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { tarball } from "../../scripts/lib/package.mjs";
import { Failure, output, root } from "../../scripts/lib/run.mjs";
import { serve } from "../../scripts/serve.mjs";
import { readNpz } from "../lib/npz.mjs";

const model = join(root, "tests/models/silero_vad_op18_ifless");

const arrays = await readNpz(readFileSync(join(model, "input.npz")));
const inputs = { input: Array.from(arrays.input.data), state: Array.from(arrays.state.data) };
const [speech] = (await readNpz(readFileSync(join(model, "expected.npz")))).output.data;
export const isSpeechOutput = (value) => Math.abs(value - speech) < 1e-3 * Math.abs(speech);

/** The folder whose files are served, where that is not the project's own. */
const SERVED = { next: "public", sveltekit: "static", vite: "public" };

// what the modules that are loaded on first use should give
const words = JSON.parse(readFileSync(join(root, "tests/fixtures/text/samples.json"), "utf8"));
const greeting = words.texts[2];
export const areExpectedTokens = (tokens) => JSON.stringify(tokens) === JSON.stringify(words.bert.ids[2]);

// what a task and a language model should give: the voice of the recording, and the tokens that transformers writes
const llama = JSON.parse(readFileSync(join(root, "tests/fixtures/llm/llama/expected.json"), "utf8"));
export const isExpectedVoice = ([{ start, end } = {}, ...others]) => others.length === 0 && start < 1 && end > 2;
export const areWrittenTokens = (tokens) => tokens.join() === llama.tokens.slice(0, 8).join();

/**
 * A copy of a consumer's files, under another name and with another script where that is asked for, with the tarball installed by npm:
 * offline, because the package has no dependencies, unless the consumer has its own, which its lock file names.
 */
export function project(name, parent, as = name, { html } = {}) {
  const folder = join(parent, as);
  cpSync(join(root, "tests/consumers", name), folder, { recursive: true });
  if (html) {
    const index = join(folder, "index.html");
    writeFileSync(index, readFileSync(index, "utf8").replace(/<script type="module".*?<\/script>/s, () => html));
  }
  const offline = existsSync(join(folder, "package-lock.json")) ? [] : ["--offline"];
  const args = ["install", ...offline, "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error", tarball];
  output("npm", args, { cwd: folder });
  const files = join(folder, SERVED[name] ?? ".");
  mkdirSync(files, { recursive: true });
  cpSync(join(model, "model.onnx"), join(files, "model.onnx"));
  cpSync(join(root, "tests/fixtures/text/bert.json"), join(files, "tokenizer.json"));
  cpSync(join(root, "tests/fixtures/io/torch_zip.pt"), join(files, "weights.pt"));
  cpSync(join(model, "recipe.json"), join(files, "recipe.json"));
  cpSync(join(root, "tests/models/whisper_tiny_en/speech.wav"), join(files, "speech.wav"));
  cpSync(join(root, "tests/fixtures/llm/llama.gguf"), join(files, "language.gguf"));
  writeFileSync(join(files, "inputs.json"), JSON.stringify({ ...inputs, greeting, prompt: llama.prompt }));
  return folder;
}

/** Opens a page and waits for the `result` its script leaves; anything on the error console fails it. */
export async function resultOf(browser, mounts, options = {}) {
  const server = await serve(mounts, options);
  try {
    return await resultAt(browser, server.url);
  } finally {
    await server.close();
  }
}

/** The same of a page that is served already. */
export async function resultAt(browser, url) {
  const page = await browser.newPage();
  const problems = [];
  // the package warns of what it does without: a worker that did not start
  const told = (message) => `${message.text()} (${message.location().url})`;
  page.on("console", (message) => (message.type() === "error" || message.text().startsWith("gradloom:")) && problems.push(told(message)));
  page.on("pageerror", (error) => problems.push(String(error)));
  try {
    await page.goto(url);
    const until = Date.now() + 600_000;
    while (Date.now() < until && problems.length === 0) {
      const result = await page.evaluate(() => globalThis.result);
      if (result !== undefined) return result;
      await page.waitForTimeout(100);
    }
    throw new Failure(problems.length > 0 ? problems.join("\n") : "the page left no result");
  } finally {
    await page.close();
  }
}

export function expect(name, result, checks) {
  for (const [what, holds] of Object.entries(checks)) {
    if (typeof holds === "function" ? !holds(result) : !holds) throw new Failure(`consumers: ${name}: ${what} does not hold in ${JSON.stringify(result)}`);
  }
  console.log(`consumers: ${name}: ok ${JSON.stringify(result)}`);
}
