// The guides, for the site and for the package.
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "./run.mjs";

const read = (path) => readFileSync(join(root, path), "utf8");

/** Tables of `docs/performance.md` that a page includes by `<!-- table: HEADING -->`, so that no number is written twice. */
export function included(text) {
  return text.replace(/<!-- table: (.+) -->/g, (_, heading) => {
    const measured = read("docs/performance.md");
    const at = measured.indexOf(`${heading}\n`);
    const table = /(?:^\|.*\n)+/m.exec(measured.slice(at));
    if (at < 0 || !table) throw new Error(`docs/performance.md has no table below ${heading}`);
    return table[0];
  });
}

/** The guides as files of a folder: what leads out of it leads to the repository, and what leads to the site's pages is text. */
export function guides(folder) {
  const { homepage } = JSON.parse(read("web/ts/package.json"));
  const repository = homepage.replace(/#.*/, "");
  const lead = (whole, name, to) => {
    if (/^(https?:|#|\.\/)/.test(to)) return whole;
    return to.endsWith("/") ? name : `[${name}](${repository}/blob/main/docs/${to.replace(/^\.\.\//, "")})`;
  };
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  for (const name of readdirSync(join(root, "docs/guide"))) {
    writeFileSync(join(folder, name), included(read(`docs/guide/${name}`)).replace(/\[([^\]]+)\]\(([^)\s]+)\)/g, lead));
  }
}
