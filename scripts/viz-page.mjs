// Builds the page of `gradloom viz`, which is compiled into the program.
//
// usage: node scripts/viz-page.mjs [--check]
//
// --check verifies that the committed page equals the one that would be built.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "vite";
import { viz } from "../www/site/viz.mjs";
import { root } from "./lib/run.mjs";

const FILE = join(root, "native/src/viz/page.html");

/** Builds the page from its sources. */
async function buildPage() {
  const input = [join(root, "www/src/viz.ts"), join(root, "www/src/style.css")];
  const options = { target: "es2022", write: false, modulePreload: false, cssCodeSplit: true, assetsInlineLimit: 0, rolldownOptions: { input } };
  const { output } = await build({ root: join(root, "www"), configFile: false, publicDir: false, logLevel: "warn", build: options });
  const script = output.find(({ fileName }) => /viz-.*\.js$/.test(fileName)).code;
  const sheet = output.find(({ fileName }) => fileName.endsWith(".css")).source;
  // the page has no font file, so it falls back to the system's font
  const styles = sheet.replace(/@font-face\s*\{[^}]*\}/g, "");
  if (/<\/(script|style)/.test(script + styles)) throw new Error("the script or the styles would end their element");
  if (/\burl\((?!["']?data:)/.test(styles) || /^import\b/m.test(script)) throw new Error("the page would fetch something");
  return viz(script.trim(), styles.trim());
}

const page = await buildPage();
if (!process.argv.includes("--check")) writeFileSync(FILE, page);
else if (readFileSync(FILE, "utf8") !== page) {
  console.error("native/src/viz/page.html is not what www makes: run npm run viz:page");
  process.exit(1);
}
