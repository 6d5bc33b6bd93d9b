// Builds the pages that are compiled into the program: that of `gradloom viz` and that of `gradloom serve`.
//
// usage: node scripts/native-pages.mjs [--check]
//
// --check verifies that the committed pages equal those that would be built.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { build } from "vite";
import { served } from "../www/site/served.mjs";
import { viz } from "../www/site/viz.mjs";
import { root } from "./lib/run.mjs";

/** The pages: their script below www/src, their styles there, the function that builds them, and their file. */
const PAGES = [
  ["viz", ["style"], viz, "native/src/viz/page.html"],
  ["served", ["style", "served"], served, "native/src/serve/page.html"],
];

/** Builds a page from its sources. */
async function buildPage(name, sheets, make) {
  const input = [`${name}.ts`, ...sheets.map((sheet) => `${sheet}.css`)].map((file) => join(root, "www/src", file));
  const options = { target: "es2022", write: false, modulePreload: false, cssCodeSplit: true, assetsInlineLimit: 0, rolldownOptions: { input } };
  const { output } = await build({ root: join(root, "www"), configFile: false, publicDir: false, logLevel: "warn", build: options });
  const find = (file, ending) => output.find(({ fileName }) => fileName.startsWith(`assets/${file}-`) && fileName.endsWith(ending));
  const script = find(name, ".js").code;
  const all = sheets.map((sheet) => find(sheet, ".css").source).join("\n");
  // the page has no font file, so it falls back to the system's font
  const styles = all.replace(/@font-face\s*\{[^}]*\}/g, "");
  if (/<\/(script|style)/.test(script + styles)) throw new Error("the script or the styles would end their element");
  if (/\burl\((?!["']?data:)/.test(styles) || /^import\b/m.test(script)) throw new Error("the page would fetch something");
  return make(script.trim(), styles.trim());
}

const changed = [];
for (const [name, sheets, make, path] of PAGES) {
  const page = await buildPage(name, sheets, make);
  const file = join(root, path);
  if (!process.argv.includes("--check")) {
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, page);
  } else if (readFileSync(file, "utf8") !== page) changed.push(path);
}
if (changed.length > 0) {
  console.error(`${changed.join(" and ")} ${changed.length > 1 ? "are" : "is"} not what www makes: run npm run native:pages`);
  process.exit(1);
}
