// The built site's pages, for what looks at all of them.
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { brotliCompressSync } from "node:zlib";
import { root } from "./run.mjs";

/** Their paths. */
export function sitePages() {
  const files = readdirSync(join(root, "www/dist"), { recursive: true }).filter((each) => each.endsWith("index.html"));
  return files.map((each) => each.replaceAll("\\", "/").slice(0, -"index.html".length)).sort();
}

/** Waits until a page has settled: its status line says more than that something is under way. */
export async function settled(page) {
  const said = () => !/^(The compiler starts|Starting|Running|Not run yet|$)/.test(document.getElementById("status")?.textContent ?? "done");
  await page.waitForFunction(said, null, { timeout: 60_000 });
}

/**
 * The bytes (brotli) of a built page before the package, models and lazy pictures: its HTML, and the styles, fonts and scripts it names, with
 * what those import.
 */
export function pageBytes(path) {
  const dist = join(root, "www/dist");
  const seen = new Set();
  const visit = (file) => {
    if (seen.has(file) || !existsSync(file)) return 0;
    seen.add(file);
    const bytes = readFileSync(file);
    if (/\.(woff2|webp)$/.test(file)) return bytes.length;
    const text = bytes.toString();
    const found = file.endsWith(".html")
      ? [...text.matchAll(/<(?:script|link)[^>]+(?:src|href)="([^"]+)"/g)]
      : file.endsWith(".js") ? [...text.matchAll(/\b(?:from|import)\s*"(\.[^"]+)"/g)] : [];
    return brotliCompressSync(bytes).length + found.reduce((sum, [, to]) => sum + visit(join(dirname(file), to)), 0);
  };
  return visit(join(dist, path, "index.html"));
}
