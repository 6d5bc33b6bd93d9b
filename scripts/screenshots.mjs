// Pictures of every page of the built site, on a phone and a desktop, light and dark, into screenshots/ (which git ignores).
// usage: npm run screenshots [-- PATH ..]    only pages whose path contains one of these
import { mkdirSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { launch } from "./lib/chromium.mjs";
import { main, root } from "./lib/run.mjs";
import { serve } from "./serve.mjs";

const SIZES = { phone: { width: 390, height: 844 }, desktop: { width: 1280, height: 900 } };

/** The paths of the built site's pages. */
export function sitePages() {
  const files = readdirSync(join(root, "www/dist"), { recursive: true }).filter((each) => each.endsWith("index.html"));
  return files.map((each) => each.replaceAll("\\", "/").slice(0, -"index.html".length)).sort();
}

/** Waits until a page has settled: its status line says more than that something is under way. */
export async function settled(page) {
  const said = () => !/^(The compiler starts|Starting|Running|Not run yet|$)/.test(document.getElementById("status")?.textContent ?? "done");
  await page.waitForFunction(said, null, { timeout: 60_000 });
}

main(async () => {
  const wanted = process.argv.slice(2);
  const out = join(root, "screenshots");
  if (wanted.length === 0) rmSync(out, { recursive: true, force: true });
  mkdirSync(out, { recursive: true });
  const server = await serve({ "/": join(root, "www/dist") });
  const browser = await launch();
  try {
    for (const path of sitePages().filter((each) => wanted.length === 0 || wanted.some((part) => (part === "home" ? each === "" : each.includes(part))))) {
      for (const [size, viewport] of Object.entries(SIZES)) {
        for (const colorScheme of ["light", "dark"]) {
          const page = await browser.newPage({ viewport, colorScheme });
          await page.goto(`${server.url}/${path}?device=wasm`);
          await settled(page);
          await page.screenshot({ path: join(out, `${path.replaceAll("/", "-") || "home-"}${size}-${colorScheme}.png`), fullPage: true });
          await page.close();
        }
      }
    }
    console.log(`screenshots: ${out}`);
  } finally {
    await browser.close();
    await server.close();
  }
});
