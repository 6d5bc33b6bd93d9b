// The built site's pages, for what looks at all of them.
import { readdirSync } from "node:fs";
import { join } from "node:path";
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
