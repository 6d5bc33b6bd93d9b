// Makes the gallery's pictures: runs each demo of the built site and saves what it shows as a small file in
// www/public/thumbs.
//
// usage: npm run thumbnails [-- SLUG ..]    after `npm run build` and the site's build; build the site again afterwards
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { readNpz } from "../tests/lib/npz.mjs";
import { launch } from "./lib/chromium.mjs";
import { main, root } from "./lib/run.mjs";
import { waitUntilIdle } from "./lib/site.mjs";
import { serve } from "./serve.mjs";

const [WIDTH, HEIGHT] = [580, 320];

const waitForStatus = (page, pattern) =>
  page.waitForFunction((text) => new RegExp(text).test(document.getElementById("status").textContent), pattern, { timeout: 240_000 });

/** The astronaut picture (NASA, public domain) from the detector's test, as a PNG made by the page. */
async function astronaut(page) {
  const { images, ...more } = await readNpz(readFileSync(join(root, "tests/models/yolov8n_nudenet/input.npz")));
  const [tensor] = [images, ...Object.values(more)].filter(Boolean);
  const side = tensor.shape[2];
  const bytes = await page.evaluate(async ([size, values]) => {
    const canvas = new OffscreenCanvas(size, size);
    const image = new ImageData(size, size);
    for (let at = 0; at < size * size; at += 1) {
      for (let c = 0; c < 3; c += 1) image.data[4 * at + c] = values[c * size * size + at];
      image.data[4 * at + 3] = 255;
    }
    canvas.getContext("2d").putImageData(image, 0, 0);
    return [...new Uint8Array(await (await canvas.convertToBlob()).arrayBuffer())];
  }, [side, [...tensor.data].map((v) => Math.round(255 * v))]);
  return Buffer.from(bytes);
}

const thumbs = join(root, "www/public/thumbs");

/** Saves a canvas of a page as a small file, which the page shows before anything is chosen. */
async function saveCanvas(page, selector, name) {
  const bytes = await page.evaluate(async (which) => {
    const small = new OffscreenCanvas(320, 320);
    const pen = small.getContext("2d");
    pen.imageSmoothingQuality = "high";
    pen.drawImage(document.querySelector(which), 0, 0, 320, 320);
    return [...new Uint8Array(await (await small.convertToBlob({ type: "image/webp", quality: 0.8 })).arrayBuffer())];
  }, selector);
  writeFileSync(join(thumbs, `${name}.webp`), Buffer.from(bytes));
}

/** Renders the drawing in every style, side by side. */
async function styles(page) {
  const inputs = page.locator("#style-a input");
  const count = await inputs.count();
  await page.evaluate((all) => (window.strip = new OffscreenCanvas(96 * all, 96)), count);
  for (let at = 0; at < count; at += 1) {
    await inputs.nth(at).check();
    await page.waitForFunction((text) => document.getElementById("painted-text").textContent === text, `Style ${at + 1}`);
    await page.evaluate((x) => {
      const pen = window.strip.getContext("2d");
      pen.imageSmoothingQuality = "high";
      pen.drawImage(document.getElementById("painted"), 96 * x, 0, 96, 96);
    }, at);
  }
  const bytes = await page.evaluate(async () => [
    ...new Uint8Array(await (await window.strip.convertToBlob({ type: "image/webp", quality: 0.7 })).arrayBuffer()),
  ]);
  writeFileSync(join(thumbs, "styles.webp"), Buffer.from(bytes));
  console.log(`thumbnails: styles ${(bytes.length / 1000).toFixed(1)} kB`);
  await inputs.nth(7).check();
  await waitForStatus(page, "^Painted");
}

/**
 * For each demo: the steps to run it, and the selectors of the elements to show; elements of one selector are on one
 * picture.
 */
const DEMOS = {
  async digits(page) {
    await page.click("#train");
    await waitForStatus(page, "^Trained");
    const box = await page.locator("#pad").boundingBox();
    const at = ([x, y]) => [box.x + x * box.width, box.y + y * box.height];
    const points = [[0.3, 0.3], [0.5, 0.16], [0.7, 0.3], [0.5, 0.48], [0.72, 0.66], [0.5, 0.86], [0.28, 0.74]];
    await page.mouse.move(...at(points[0]));
    await page.mouse.down();
    for (const point of points) await page.mouse.move(...at(point), { steps: 8 });
    await page.mouse.up();
    await page.waitForFunction(() => /That is a \d/.test(document.querySelector("#digit").textContent));
    return ["#loss", "#pad"];
  },
  async style(page) {
    await page.click("#paint");
    await waitForStatus(page, "^Painted");
    await styles(page);
    return ["#source", "#painted"];
  },
  async upscale(page) {
    await page.click("#enlarge");
    await waitForStatus(page, "^Enlarged");
    return [".stack"];
  },
  async cutout(page) {
    await page.setInputFiles("#picture", { name: "astronaut.png", mimeType: "image/png", buffer: await astronaut(page) });
    await waitForStatus(page, "^Cut out");
    await page.selectOption("#backdrop", "woven");
    await page.waitForTimeout(1500);
    await saveCanvas(page, "#source", "astronaut");
    return ["#cut"];
  },
  async classify(page) {
    await page.click("#cat");
    await waitForStatus(page, "^It looks");
    await saveCanvas(page, "#source", "cat");
    return ["#source", "#kinds"];
  },
  async cells(page) {
    await page.click("#grow");
    await page.waitForFunction(() => /^Step \d{3}/.test(document.getElementById("world-text").textContent));
    await page.click("#stop");
    return ["#world"];
  },
  async faces(page) {
    await page.click("#sample");
    await waitForStatus(page, "^Found");
    return ["#source"];
  },
  async transcribe(page) {
    await page.click("#sample");
    await waitForStatus(page, "^Heard");
    return ["#wave, #said"];
  },
  async search(page) {
    await page.click("#read");
    await waitForStatus(page, "^Read \\d+ passages\\.");
    await page.fill("#query", "my internet is broken");
    await waitForStatus(page, "^Found");
    return ["#hits"];
  },
  async speech(page) {
    await page.click("#sample");
    await waitForStatus(page, "^Speech");
    return ["#voice"];
  },
  async files(page) {
    const buffer = readFileSync(join(root, "tests/models/magika/model.onnx"));
    await page.setInputFiles("#file", { name: "model.bin", mimeType: "application/octet-stream", buffer });
    await waitForStatus(page, "^model.bin");
    return ["#kinds"];
  },
  async read(page) {
    await page.click("#read");
    await waitForStatus(page, "^Read \\d");
    return ["#source", "#text"];
  },
  async notes(page) {
    await page.click("#sample");
    await waitForStatus(page, "^Heard");
    return ["#roll"];
  },
  async compare(page) {
    await page.click("#compare");
    await waitForStatus(page, "^Compared \\d+ models");
    return ["#table"];
  },
  async dreamer(page) {
    await page.click("#train");
    await waitForStatus(page, "^Trained");
    return ["#drawn"];
  },
  async siren(page) {
    await page.click("#fit");
    await waitForStatus(page, "^Fitted");
    return ["#source", "#fitted"];
  },
  async chat(page) {
    await page.click("#send");
    await waitForStatus(page, "^Answered");
    return ["#talk"];
  },
  async writer(page) {
    await page.click("#train");
    await waitForStatus(page, "^Trained");
    return ["#written"];
  },
};

/** The width of the page: results that are text are laid out narrowly, so that it is legible when the picture is small. */
const PAGE_WIDTH = 760;
const PAGE_WIDTHS = { chat: 440, classify: 440, files: 440, read: 440, search: 440, transcribe: 440, writer: 440 };

/** The position of the crop of a result, from 0 (left or top) to 1. Texts are shown whole. */
const CROPS = {
  digits: { x: 0 },
  faces: { y: 0.1 }, classify: { whole: true }, search: { x: 0, y: 0 }, compare: { whole: true }, cutout: { y: 0 },
  files: { whole: true }, writer: { x: 0, y: 0 }, chat: { whole: true }, read: { whole: true }, transcribe: { whole: true }, upscale: { y: 0 },
};

/** Combines elements side by side to one small picture. */
async function combineScreenshots(page, selectors, { x = 0.5, y = 0.5, whole = false } = {}) {
  const shots = [];
  for (const selector of selectors) {
    const boxes = [];
    for (const each of await page.locator(selector).all()) boxes.push(await each.boundingBox());
    const [left, top] = ["x", "y"].map((side) => Math.min(...boxes.map((box) => box[side])));
    const right = Math.max(...boxes.map((box) => box.x + box.width));
    const bottom = Math.max(...boxes.map((box) => box.y + box.height));
    const scrolled = await page.evaluate(() => scrollY);
    const clip = { x: left, y: top + scrolled, width: right - left, height: bottom - top };
    shots.push((await page.screenshot({ fullPage: true, clip })).toString("base64"));
  }
  const url = await page.evaluate(async ([files, width, height, x, y, whole]) => {
    const canvas = new OffscreenCanvas(width, height);
    const pen = canvas.getContext("2d");
    pen.imageSmoothingQuality = "high";
    const part = width / files.length;
    for (const [at, file] of files.entries()) {
      const image = await createImageBitmap(await (await fetch(`data:image/png;base64,${file}`)).blob()).catch(() => undefined);
      const gap = whole ? 20 : 0;
      const scale = (whole ? Math.min : Math.max)((part - gap) / image.width, (height - gap) / image.height);
      const [w, h] = [part / scale, height / scale];
      if (whole) {
        pen.fillStyle = "#faf8f3";
        pen.fillRect(at * part, 0, part, height);
      }
      pen.drawImage(image, (image.width - w) * x, (image.height - h) * y, w, h, at * part, 0, part, height);
    }
    const bytes = new Uint8Array(await (await canvas.convertToBlob({ type: "image/webp", quality: 0.72 })).arrayBuffer());
    return [...bytes];
  }, [shots, WIDTH, HEIGHT, x, y, whole]);
  return Buffer.from(url);
}

main(async () => {
  const wanted = process.argv.slice(2);
  mkdirSync(thumbs, { recursive: true });
  const server = await serve({ "/": join(root, "www/dist") });
  const browser = await launch();
  try {
    for (const [slug, act] of Object.entries(DEMOS)) {
      if (wanted.length > 0 && !wanted.includes(slug)) continue;
      // the pages' content security policy forbids what converts a screenshot to a file
      const context = await browser.newContext({ viewport: { width: PAGE_WIDTHS[slug] ?? PAGE_WIDTH, height: 900 }, colorScheme: "light", bypassCSP: true });
      const page = await context.newPage();
      await page.goto(`${server.url}/gallery/${slug}/?device=wasm`);
      await waitUntilIdle(page);
      const bytes = await combineScreenshots(page, await act(page), CROPS[slug]);
      writeFileSync(join(thumbs, `${slug}.webp`), bytes);
      console.log(`thumbnails: ${slug} ${(bytes.length / 1000).toFixed(1)} kB`);
      await context.close();
    }
  } finally {
    await browser.close();
    await server.close();
  }
});
