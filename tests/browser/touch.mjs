// Demos by fingers alone, on a phone's screen: drawing, dragging over cells, sliders, tabs; and the page scrolls where it should
// and nowhere else.
import { launch } from "../../scripts/lib/chromium.mjs";
import { MINUTE, check, open } from "./visit.mjs";

const PHONE = { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true, deviceScaleFactor: 2 };

/** Moves one finger through points of an element, given as shares of its sides. */
async function drag(page, selector, points) {
  await page.locator(selector).scrollIntoViewIfNeeded();
  const box = await page.locator(selector).boundingBox();
  const session = await page.context().newCDPSession(page);
  const touch = (type, point) => {
    const touchPoints = point ? [{ x: box.x + point[0] * box.width, y: box.y + point[1] * box.height }] : [];
    return session.send("Input.dispatchTouchEvent", { type, touchPoints });
  };
  await touch("touchStart", points[0]);
  let last = points[0];
  for (const point of points.slice(1)) {
    // small steps, as a finger's
    for (let part = 1; part <= 6; part += 1) await touch("touchMove", last.map((v, axis) => v + ((point[axis] - v) * part) / 6));
    last = point;
  }
  await touch("touchEnd");
  await session.detach();
}

const scrolled = (page) => page.evaluate(() => Math.round(scrollY));

/** Drags over an element and checks that it stayed where it was on the screen. */
async function dragInPlace(page, selector, points) {
  await page.locator(selector).scrollIntoViewIfNeeded();
  const top = async () => (await page.locator(selector).boundingBox()).y;
  const before = await top();
  await drag(page, selector, points);
  const moved = (await top()) - before;
  // what is written above may change, and the browser keeps the element in place to the pixel
  check(Math.abs(moved) < 2, `a finger on ${selector} moves the page by ${moved} pixels`);
}

/** Ends the browser's GPU process, and waits until what lies on the GPU is gone. */
async function endGpu(browser, page) {
  const session = await browser.newBrowserCDPSession();
  await page.evaluate(() => {
    globalThis.watched = document.createElement("canvas");
    globalThis.context = watched.getContext("webgl");
  });
  await session.send("Browser.crashGpuProcess");
  // no frames come meanwhile
  await page.waitForFunction(() => globalThis.context.isContextLost(), null, { polling: 50 });
  await session.detach();
}

async function digits(browser, url) {
  const { page, status } = await open(browser, url, "gallery/digits/?device=wasm&steps=150", PHONE);
  await page.tap("#train");
  const trained = await status(/^Trained /, 4 * MINUTE);
  const draw = async (points) => {
    // where a machine has no time for the browser, a tap may be taken for a long press; the old answer must not be taken for the new one
    for (let taps = 0; taps < 3 && (await page.textContent("#digit")) !== "Draw a digit."; taps += 1) await page.tap("#clear");
    check((await page.textContent("#digit")) === "Draw a digit.", "taps on Clear do not clear");
    await dragInPlace(page, "#pad", points);
    await page.waitForFunction(() => /That is a \d/.test(document.querySelector("#digit").textContent), null, { timeout: MINUTE });
    return page.textContent("#digit");
  };
  const ring = Array.from({ length: 25 }, (_, at) => [0.5 + 0.22 * Math.sin(at / 4), 0.5 - 0.32 * Math.cos(at / 4)]);
  const read = [await draw([[0.55, 0.15], [0.5, 0.5], [0.45, 0.85]]), await draw(ring)];
  await endGpu(browser, page);
  read.push(await draw(ring));
  const digits = read.map((text) => /That is a (\d)/.exec(text)?.[1]);
  check(digits.join() === "1,0,0", `a 1 and a 0 that a finger drew, and a 0 after the GPU process ended, were read as: ${read.join(" ")} ${trained}`);
  await page.close();
}

async function cells(browser, url) {
  const { page, status } = await open(browser, url, "gallery/cells/?device=wasm", PHONE);
  await page.tap("#grow");
  await page.waitForFunction(() => Number(/^Step (\d+)/.exec(document.querySelector("#world-text").textContent)?.[1]) >= 100);
  await page.tap("#stop");
  await status(/^Stopped after/);
  const alive = () => page.evaluate(() => Number(/: (\d+) cells/.exec(document.querySelector("#world-text").textContent)[1]));
  const fewerThan = async (count) => {
    while ((await alive()) >= count) await page.waitForTimeout(50);
  };
  const before = await alive();
  await dragInPlace(page, "#world", [[18 / 48, 14 / 32], [18 / 48, 19 / 32]]);
  await fewerThan(before - 10);
  // a tap hurts too
  const left = await alive();
  const { width, height } = await page.locator("#world").boundingBox();
  await page.tap("#world", { position: { x: 0.62 * width, y: 0.5 * height } });
  await fewerThan(left);
  await page.close();
}

async function upscale(browser, url) {
  const { page, status } = await open(browser, url, "gallery/upscale/?device=wasm", PHONE);
  await page.tap("#enlarge");
  await status(/^Enlarged\./);
  const border = () => page.evaluate(() => Number(/([\d.]+)%/.exec(document.getElementById("after").style.clipPath)?.[1] ?? 50));
  await dragInPlace(page, "#slider", [[0.5, 0.5], [0.1, 0.5]]);
  check((await border()) < 25, `the slider that a finger moved to the left is at ${await border()} %`);
  await page.close();
}

async function style(browser, url) {
  const { page, status } = await open(browser, url, "gallery/style/?device=wasm", PHONE);
  await page.tap("#paint");
  await status(/^Painted\./);
  const painted = (pattern) =>
    page.waitForFunction((words) => new RegExp(words).test(document.getElementById("painted-text").textContent), pattern, { timeout: MINUTE });
  await page.tap("#style-a label:has([aria-label='Style 3'])");
  await painted("^Style 3$");
  await dragInPlace(page, "#mix", [[0.02, 0.5], [0.5, 0.5]]);
  await painted("^Style 3 with [45]\\d % of style");
  // a swipe over the swatches shows others, and leaves the page where it is
  const left = () => page.locator("#style-a .swatches").evaluate((box) => box.scrollLeft);
  const before = await left();
  await dragInPlace(page, "#style-a", [[0.8, 0.5], [0.2, 0.5]]);
  check((await left()) > before, "a swipe over the swatches does not move them");
  await page.close();
}

async function pages(browser, url) {
  const { page, status } = await open(browser, url, "?device=wasm", PHONE);
  // a swipe over the heading and over the editor's results scrolls the page
  const before = await scrolled(page);
  await drag(page, "h1", [[0.5, 0.9], [0.5, -0.9]]);
  await page.waitForFunction((top) => scrollY > top, before);
  await page.locator("#bench").scrollIntoViewIfNeeded();
  await status(/^Ran in/, MINUTE);
  for (const name of ["kernels", "graph", "timeline", "result"]) {
    await page.tap(`#tab-${name}`);
    check(await page.isVisible(`#${name}`), `a tap on ${name} does not open it`);
  }
  // code is typed after a tap, as on a keyboard of glass
  await page.tap("#code");
  check(await page.evaluate(() => document.activeElement.id === "code"), "a tap does not reach the code");
  await page.tap("#tab-kernels");
  await page.locator("#kernels summary").first().tap();
  await page.locator("#kernels details[open] pre").first().waitFor();
  await page.close();
}

/** All of the above. */
export async function touch(browser, url) {
  const own = await launch();
  try {
    await digits(own, url);
  } finally {
    await own.close();
  }
  for (const part of [cells, upscale, style, pages]) await part(browser, url);
  console.log("demo: touch: ok");
}
