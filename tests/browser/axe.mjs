// Accessibility of the built site, by axe-core: names, contrast, roles, order of headings; and that nothing moves by itself while a page comes up.
// usage: npm run test:axe [-- PATH ..]    every page, light and dark, or those whose paths contain one of these
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { launch } from "../../scripts/lib/chromium.mjs";
import { Failure, main, root } from "../../scripts/lib/run.mjs";
import { sitePages, waitUntilIdle } from "../../scripts/lib/site.mjs";
import { serve } from "../../scripts/serve.mjs";

const source = () => readFileSync(join(root, "node_modules/axe-core/axe.min.js"), "utf8");

/** How far a page may move by itself in all, as browsers measure it: below this counts as good (web.dev, "Cumulative Layout Shift"). */
const MAX_LAYOUT_SHIFT = 0.1;

/** Keeps what moves, and how far; what follows a click or a key does not count. */
const watchShifts = () => {
  globalThis.shifts = [];
  const keep = (list) => {
    for (const { hadRecentInput, value, sources } of list.getEntries()) {
      if (!hadRecentInput) globalThis.shifts.push([value, sources.map(({ node }) => node?.outerHTML?.slice(0, 80) ?? "")]);
    }
  };
  new PerformanceObserver(keep).observe({ type: "layout-shift", buffered: true });
};

/** Fails where axe finds something in a page, light or dark, or where the page moves. */
export async function checkAccessibility(browser, url, path) {
  const page = await browser.newPage({ reducedMotion: "reduce" });
  await page.addInitScript(watchShifts);
  await page.goto(`${url}/${path}${path.includes("?") ? "" : "?device=wasm"}`);
  await waitUntilIdle(page);
  const shifts = await page.evaluate(() => globalThis.shifts);
  const sum = shifts.reduce((all, [value]) => all + value, 0);
  if (sum > MAX_LAYOUT_SHIFT) throw new Failure(`axe: /${path} moves by ${sum.toFixed(3)} while it comes up: ${JSON.stringify(shifts)}`);
  await page.evaluate(source());
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    const { violations } = await page.evaluate(() => globalThis.axe.run({ resultTypes: ["violations"] }));
    const text = violations.map(({ id, help, nodes }) => {
      const why = (text) => text.replace(/\s+/g, " ").slice(0, 260);
      const where = nodes.slice(0, 4).map(({ html, failureSummary }) => `    ${html.slice(0, 160)}\n      ${why(failureSummary)}`);
      return `  ${id}: ${help} (${nodes.length})\n${where.join("\n")}`;
    });
    if (violations.length > 0) throw new Failure(`axe: /${path}, ${colorScheme}\n${text.join("\n")}`);
  }
  await page.close();
}

if (process.argv[1] === new URL(import.meta.url).pathname) {
  main(async () => {
    const wanted = process.argv.slice(2);
    const server = await serve({ "/": join(root, "www/dist") });
    const browser = await launch();
    const failures = [];
    try {
      const paths = sitePages().filter((path) => wanted.length === 0 || wanted.some((part) => path.includes(part)));
      for (const path of paths) await checkAccessibility(browser, server.url, path).catch((error) => failures.push(error.message));
      if (failures.length > 0) throw new Failure(failures.join("\n"));
      console.log(`axe: nothing was found in ${paths.length} pages, light and dark`);
    } finally {
      await browser.close();
      await server.close();
    }
  });
}
