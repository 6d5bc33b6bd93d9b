// Takes screenshots of every page of the built site, on a phone and a desktop, light and dark, into screenshots/
// (ignored by git).
//
// usage: npm run screenshots [-- PATH ..]    only pages whose path contains one of these
import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { launch } from "./lib/chromium.mjs";
import { main, root } from "./lib/run.mjs";
import { sitePages, waitUntilIdle } from "./lib/site.mjs";
import { serve } from "./serve.mjs";

/** The most pixels of a page's height in its screenshot: the browser fails at about 16,000. */
const MAX_HEIGHT = 8000;
const SIZES = { phone: { width: 390, height: 844 }, desktop: { width: 1280, height: 900 } };

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
          await waitUntilIdle(page);
          // load pictures further down, which would otherwise load only on scrolling
          await page.evaluate(async () => {
            const later = [...document.querySelectorAll("img[loading=lazy]")];
            later.forEach((image) => (image.loading = "eager"));
            await Promise.all(later.map((image) => image.decode().catch(() => {})));
          });
          const height = Math.min(MAX_HEIGHT, await page.evaluate(() => document.documentElement.scrollHeight));
          const clip = { x: 0, y: 0, width: viewport.width, height };
          await page.screenshot({ path: join(out, `${path.replaceAll("/", "-") || "home-"}${size}-${colorScheme}.png`), fullPage: true, clip });
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
