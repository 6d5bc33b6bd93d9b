// What the site shows as code runs when it is copied: in a bare page with an import map, the programs of the cookbook write what their comments
// say, and the code of each demo, beside the models in the layout that its addresses have, gives what it should by its defaults alone.
// usage: node tests/browser/copied.mjs [NAME..]
import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { format } from "node:util";
import { launch } from "../../scripts/lib/chromium.mjs";
import { recipeFiles } from "../../scripts/lib/recipes.mjs";
import { Failure, main, root } from "../../scripts/lib/run.mjs";
import { serve } from "../../scripts/serve.mjs";
import { leftOut } from "../lib/left_out.mjs";
import { unpackPackage } from "./run.mjs";
import { uses } from "./copied/uses.mjs";

const folder = join(root, "tests/tmp/copied");
const cookbook = join(root, "tests/cookbook");
const demos = join(root, "www/demos");
/** A program or a demo has so long. */
const LIMIT_MS = 240_000;

/** The import map that the entries of the package need, as a user writes it. */
function importMap() {
  const { exports } = JSON.parse(readFileSync(join(root, "web/ts/package.json"), "utf8"));
  const entries = Object.entries(exports).filter(([, to]) => typeof to === "object");
  const imports = entries.map(([name, to]) => [name.replace(/^\./, "gradloom"), to.default.replace("./dist", "/gradloom")]);
  return { imports: Object.fromEntries(imports) };
}

/** A page with one script, which says when it has ended. What is written to the console comes back as values. */
const pageOf = (script) => `<!doctype html>
<meta charset="utf-8">
<title>copied</title>
<script type="importmap">${JSON.stringify(importMap())}</script>
<script>
  globalThis.written = [];
  const plain = (v) => {
    if (typeof v === "bigint") return { $: "BigInt", v: String(v) };
    if (ArrayBuffer.isView(v)) return { $: v.constructor.name, v: [...v].map(plain) };
    if (typeof v === "number" && !Number.isFinite(v)) return { $: "Number", v: String(v) };
    if (Array.isArray(v)) return v.map(plain);
    return v && typeof v === "object" ? Object.fromEntries(Object.entries(v).map(([key, each]) => [key, plain(each)])) : v;
  };
  console.log = (...args) => written.push(plain(args));
</script>
<script type="module">${script}</script>`;

/** A value of a page's console as it was there. */
function restored(value) {
  if (Array.isArray(value)) return value.map(restored);
  if (!value || typeof value !== "object") return value;
  const { $: kind, v } = value;
  if (kind === "BigInt") return BigInt(v);
  if (kind === "Number") return Number(v);
  if (kind) return new globalThis[kind](v.map(restored));
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, restored(each)]));
}

/** Opens a page of the server and waits for its end; gives what it wrote and its result. */
async function run(browser, url) {
  const page = await browser.newPage();
  const problems = [];
  let report;
  const failed = new Promise((done) => (report = done));
  const problem = (text) => report(problems.push(text));
  // a missing file is told with its address below
  page.on("console", (message) => message.type() === "error" && !message.text().startsWith("Failed to load resource") && problem(message.text()));
  page.on("pageerror", (error) => problem(String(error)));
  page.on("response", (response) => response.status() >= 400 && problem(`${response.status()}: ${response.url()}`));
  try {
    await page.goto(url);
    const ended = page.waitForFunction(() => globalThis.ended, null, { timeout: LIMIT_MS }).catch((error) => problem(error.message));
    await Promise.race([ended, failed]);
    if (problems.length > 0) throw new Failure(problems.join("\n"));
    return await page.evaluate(() => ({ written: globalThis.written, result: globalThis.result }));
  } finally {
    await page.close();
  }
}

/** The programs of the cookbook whose files are there. */
function programs() {
  const isThere = (name) => {
    const [, module] = /from "\.\.\/(tmp\/[^"]+)"/.exec(readFileSync(join(cookbook, name), "utf8")) ?? [];
    if (!module || existsSync(join(root, "tests", module))) return true;
    leftOut(`copied: ${name}`, "run `cargo test -p gradloom-tests --test it -- export::` first");
    return false;
  };
  return readdirSync(cookbook).filter((name) => name.endsWith(".mjs") && isThere(name)).sort();
}

async function runProgram(browser, server, name) {
  const text = readFileSync(join(cookbook, name), "utf8");
  writeFileSync(join(folder, "program.html"), pageOf(`import "/cookbook/${name}"; globalThis.ended = true;`));
  const { written } = await run(browser, `${server.url}/program.html`);
  const wanted = [...text.matchAll(/^ *\/\/> (.*)$/gm)].map((found) => found[1]);
  assert.deepEqual(written.map((args) => format(...restored(args))).join("\n").split("\n"), wanted, name);
}

/** The code of a demo as its page shows it, a script of somebody who uses it, and the models that its addresses name. */
async function runDemo(browser, server, slug) {
  const code = readFileSync(join(demos, slug, "code.js"), "utf8");
  const { script, files = {}, check } = uses[slug];
  const own = join(folder, "demo");
  rmSync(own, { recursive: true, force: true });
  const models = [...new Set([...`${code}${script}`.matchAll(/models\/(\w+)\//g)].map(([, name]) => name))];
  if (models.includes("ppocrv4_rec")) models.push("ppocr_cls");
  const beside = models.flatMap((name) => Object.entries(recipeFiles(name)));
  if (models.includes("selfie_segmentation")) beside.push(...Object.entries(recipeFiles("selfie_segmentation", "segment.json")));
  const all = [...beside, ...Object.entries(files).map(([path, from]) => [path, readFileSync(join(root, from))])];
  for (const [path, bytes] of [...all, ["code.js", code], ["index.html", pageOf(`${script}\nglobalThis.ended = true;`)]]) {
    mkdirSync(dirname(join(own, path)), { recursive: true });
    writeFileSync(join(own, path), bytes);
  }
  const { result } = await run(browser, `${server.url}/demo/index.html`);
  check(result);
}

main(async () => {
  const only = process.argv.slice(2);
  const slugs = readdirSync(demos, { withFileTypes: true }).filter((each) => each.isDirectory()).map(({ name }) => name);
  const unused = slugs.filter((slug) => !(slug in uses));
  if (unused.length > 0) throw new Failure(`copied: nothing uses the code of ${unused.join(", ")}`);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const mounts = { "/": folder, "/gradloom": unpackPackage(), "/cookbook": cookbook, "/models": join(root, "tests/models"), "/tmp": join(root, "tests/tmp") };
  const server = await serve(mounts);
  // sound that a page makes needs a visitor who touched it
  const browser = await launch({ flags: ["--autoplay-policy=no-user-gesture-required"] });
  const failed = [];
  try {
    const jobs = [
      ...programs().map((name) => [name, () => runProgram(browser, server, name)]),
      ...slugs.map((slug) => [slug, () => runDemo(browser, server, slug)]),
    ];
    for (const [name, job] of jobs) {
      if (only.length > 0 && !only.includes(name)) continue;
      const start = performance.now();
      const error = await job().then(() => null, (why) => why);
      console.log(`copied: ${name}: ${error ? `FAIL ${error.message}` : "ok"} (${(performance.now() - start).toFixed(0)} ms)`);
      if (error) failed.push(name);
    }
  } finally {
    await browser.close();
    await server.close();
  }
  if (failed.length > 0) throw new Failure(`copied: ${failed.join(", ")} failed`);
});
