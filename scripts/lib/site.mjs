// Helpers for scripts and tests that visit all pages of the built site.
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { brotliCompressSync } from "node:zlib";
import { root } from "./run.mjs";

/** The paths of all pages. */
export function sitePages() {
  const files = readdirSync(join(root, "www/dist"), { recursive: true }).filter((each) => each.endsWith("index.html"));
  return files.map((each) => each.replaceAll("\\", "/").slice(0, -"index.html".length)).sort();
}

/** Waits until a page has settled, i.e. until its status line no longer reports work in progress. */
export async function waitUntilIdle(page) {
  const isIdle = () => !/^(The compiler starts|Starting|Running|Not run yet|$)/.test(document.getElementById("status")?.textContent ?? "done");
  await page.waitForFunction(isIdle, null, { timeout: 60_000 });
}

/**
 * The bytes (brotli) of a built page without the package, models and lazily loaded pictures: its HTML, and the styles,
 * fonts and scripts that it refers to, with their imports.
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
