// Takes screenshots of every page of the built site, on a phone and a desktop, light and dark, into screenshots/
// (ignored by git). A demo is shown twice: as it is opened, and after it has run (NAME-done-..).
//
// usage: npm run screenshots [-- PATH ..]    only pages whose path contains one of these
import { mkdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { launch } from "./lib/chromium.mjs";
import { main, root } from "./lib/run.mjs";
import { sitePages, waitUntilIdle } from "./lib/site.mjs";
import { serve } from "./serve.mjs";

/** The most pixels of a page's height in its screenshot: the browser fails at about 16,000. */
const MAX_HEIGHT = 8000;
const SIZES = { phone: { width: 390, height: 844 }, desktop: { width: 1280, height: 900 } };

/** Steps of training that are enough for a picture. */
const STEPS = 150;
/** The longest that a demo may take. */
const LIMIT = 240_000;

const waitForStatus = (page, pattern) =>
  page.waitForFunction((text) => new RegExp(text).test(document.getElementById("status").textContent), pattern, { timeout: LIMIT });
const press = (selector) => (page) => page.click(selector);
const cat = readFileSync(join(root, "tests/fixtures/images/cat/photo.jpg"));

/** For each demo: what a visitor does first, and what the status line says once it is done. */
const RUNS = {
  cells: [press("#grow"), "^Stopped", async (page) => {
    await page.waitForFunction(() => Number(/^Step (\d+)/.exec(document.getElementById("world-text").textContent)?.[1]) >= 120, null, { timeout: LIMIT });
    await page.click("#stop");
  }],
  chat: [async (page) => {
    await page.fill("#words", "And God said unto Noah,");
    await page.click("#send");
  }, "^Answered"],
  classify: [press("#cat"), "^It looks"],
  compare: [press("#compare"), "^Compared \\d+ models?\\."],
  cutout: [press("#sample"), "^Cut out"],
  digits: [press("#train"), "^Trained", async (page) => {
    await waitForStatus(page, "^Trained");
    await page.locator("#pad").scrollIntoViewIfNeeded();
    const box = await page.locator("#pad").boundingBox();
    const three = [[0.3, 0.3], [0.5, 0.16], [0.7, 0.3], [0.5, 0.48], [0.72, 0.66], [0.5, 0.86], [0.28, 0.74]];
    const at = ([x, y]) => [box.x + x * box.width, box.y + y * box.height];
    await page.mouse.move(...at(three[0]));
    await page.mouse.down();
    for (const point of three) await page.mouse.move(...at(point), { steps: 8 });
    await page.mouse.up();
    await page.waitForFunction(() => /That is a \d/.test(document.getElementById("digit").textContent), null, { timeout: LIMIT });
  }],
  dreamer: [press("#train"), "^Drawn", async (page) => {
    await waitForStatus(page, "^Trained");
    await page.click("#draw");
  }],
  faces: [press("#sample"), "^Found"],
  files: [(page) => page.setInputFiles("#file", { name: "holiday.doc", mimeType: "application/octet-stream", buffer: cat }), "^holiday"],
  notes: [press("#sample"), "^Heard"],
  read: [press("#read"), "^Read \\d+ pieces"],
  search: [press("#read"), "^Found", async (page) => {
    await waitForStatus(page, "^Read \\d+ passages\\.");
    await page.fill("#query", "my internet is broken");
  }],
  siren: [press("#fit"), "^Fitted"],
  speech: [press("#sample"), "^Speech"],
  style: [press("#paint"), "^Painted"],
  transcribe: [press("#sample"), "^Heard"],
  upscale: [press("#enlarge"), "^Enlarged"],
  writer: [press("#train"), "^Trained"],
};

/** Takes one picture of a whole page. */
async function shoot(page, viewport, path) {
  const height = Math.min(MAX_HEIGHT, await page.evaluate(() => document.documentElement.scrollHeight));
  await page.screenshot({ path, fullPage: true, clip: { x: 0, y: 0, width: viewport.width, height } });
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
          await page.goto(`${server.url}/${path}?device=wasm&steps=${STEPS}&only=magika,vad`);
          await waitUntilIdle(page);
          // load pictures further down, which would otherwise load only on scrolling
          await page.evaluate(async () => {
            const later = [...document.querySelectorAll("img[loading=lazy]")];
            later.forEach((image) => (image.loading = "eager"));
            await Promise.all(later.map((image) => image.decode().catch(() => {})));
          });
          const name = (state) => join(out, `${path.replaceAll("/", "-") || "home-"}${state}${size}-${colorScheme}.png`);
          await shoot(page, viewport, name(""));
          const [begin, done, more] = RUNS[/^gallery\/(\w+)\/$/.exec(path)?.[1]] ?? [];
          if (begin) {
            await begin(page);
            await more?.(page);
            await waitForStatus(page, done);
            await shoot(page, viewport, name("done-"));
          }
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
