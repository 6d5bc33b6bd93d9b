// Prepares the guides for the site and for the npm package.
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "./run.mjs";

const read = (path) => readFileSync(join(root, path), "utf8");

/**
 * Replaces `<!-- table: HEADING -->` in a page by the table under that heading in `docs/performance.md`, so that each
 * number is written only once.
 */
export function insertTables(text) {
  return text.replace(/<!-- table: (.+) -->/g, (_, heading) => {
    const measured = read("docs/performance.md");
    const at = measured.indexOf(`${heading}\n`);
    const table = /(?:^\|.*\n)+/m.exec(measured.slice(at));
    if (at < 0 || !table) throw new Error(`docs/performance.md has no table below ${heading}`);
    return table[0];
  });
}

/**
 * Writes the guides to a folder. Links that leave it point to the repository, and links to the site's pages become
 * plain text.
 */
export function writeGuides(folder) {
  const { homepage } = JSON.parse(read("web/ts/package.json"));
  const repository = homepage.replace(/#.*/, "");
  const rewriteLink = (whole, name, to) => {
    if (/^(https?:|#|\.\/)/.test(to)) return whole;
    return to.endsWith("/") ? name : `[${name}](${repository}/blob/main/docs/${to.replace(/^\.\.\//, "")})`;
  };
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  for (const name of readdirSync(join(root, "docs/guide"))) {
    writeFileSync(join(folder, name), insertTables(read(`docs/guide/${name}`)).replace(/\[([^\]]+)\]\(([^)\s]+)\)/g, rewriteLink));
  }
}
