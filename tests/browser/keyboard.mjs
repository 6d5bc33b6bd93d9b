// The gallery by the keyboard alone: from the list to every demo by its link, Tab to every control, Enter on the one that begins, Tab to Stop.
// usage: node tests/browser/demo.mjs keyboard [SLUG ..]
import { demos } from "../../www/demos/index.mjs";
import { Failure } from "../../scripts/lib/run.mjs";

const MINUTE = 60_000;
/** More controls than any page has. */
const MAX_CONTROLS = 120;

/** What begins each demo. */
const START_CONTROLS = {
  digits: "train", style: "paint", upscale: "enlarge", cutout: "sample", classify: "cat", faces: "sample", transcribe: "sample",
  speech: "sample", files: "own", read: "read", notes: "sample", siren: "fit", writer: "train", search: "read", dreamer: "train",
  cells: "grow", chat: "send", compare: "compare",
};

/** Marks what Tab has to reach: all that can have the focus, of radio buttons one a group. Their count. */
const mark = () => {
  const groups = new Set();
  const all = [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]")].filter((e) => {
    if (e.disabled || e.tabIndex < 0 || !e.checkVisibility({ visibilityProperty: true })) return false;
    if (e.type !== "radio") return true;
    // of a group the one that is chosen, or any where none is
    const fresh = !groups.has(e.name);
    groups.add(e.name);
    return fresh;
  });
  all.forEach((e, at) => e.setAttribute("data-stop", e.type === "radio" ? `radio ${e.name}` : String(at)));
  for (const e of document.querySelectorAll("input[type=radio]")) e.setAttribute("data-stop", `radio ${e.name}`);
  return all.map((e) => [e.dataset.stop, e.id || e.outerHTML.slice(0, 80)]);
};

/** What has the focus: its mark and id, whether one sees that it has it, and whether it is in view. */
const focused = () => {
  const e = document.activeElement;
  if (!e || e === document.body) return null;
  // the frame of a file chooser is its label's, that of a card's link the card's
  const drawn = [e, e.closest("label, .card")].filter(Boolean).map((each) => getComputedStyle(each));
  const seen = drawn.some(({ outlineStyle, outlineWidth, boxShadow }) => (outlineStyle !== "none" && parseFloat(outlineWidth) > 0) || boxShadow !== "none");
  const { top, bottom, left, right } = (e.closest("label") ?? e).getBoundingClientRect();
  const inView = bottom > 0 && top < innerHeight && right > 0 && left < innerWidth;
  return { stop: e.dataset.stop, id: e.id, seen, inView, text: e.outerHTML.slice(0, 100) };
};

/** Presses Tab until something has the focus for which `found` holds. */
async function tabTo(page, found, what) {
  for (let i = 0; i < MAX_CONTROLS; i += 1) {
    await page.keyboard.press("Tab");
    const now = await page.evaluate(focused);
    if (now && found(now)) return now;
  }
  throw new Failure(`keyboard: Tab does not come to ${what}`);
}

/** Tab once around the page: every control has its turn, and one sees where one is. */
async function tabAround(page, slug) {
  const controls = await page.evaluate(mark);
  const visited = new Set();
  for (let i = 0; i < controls.length + 2; i += 1) {
    await page.keyboard.press("Tab");
    const now = await page.evaluate(focused);
    if (!now) continue;
    if (!now.seen) throw new Failure(`keyboard: ${slug}: one does not see that this has the focus: ${now.text}`);
    if (!now.inView) throw new Failure(`keyboard: ${slug}: this has the focus out of view: ${now.text}`);
    visited.add(now.stop);
  }
  const missed = controls.filter(([stop]) => !visited.has(stop)).map(([, text]) => text);
  if (missed.length > 0) throw new Failure(`keyboard: ${slug}: Tab does not come to ${missed.join(", ")}`);
  return controls.length;
}

/** One demo, from the gallery and back. */
async function visit(page, slug) {
  const begin = START_CONTROLS[slug];
  if (!begin) throw new Failure(`keyboard: nothing is known to begin ${slug}`);
  const status = () => page.textContent("#status");
  const until = async (holds, what, limit = 4 * MINUTE) => {
    const end = Date.now() + limit;
    while (!(await holds())) {
      const text = await status();
      if (/failed|could not/.test(text)) throw new Failure(`keyboard: ${slug}: ${text}`);
      if (Date.now() > end) throw new Failure(`keyboard: ${slug}: ${what}; the page says: ${text}`);
      await page.waitForTimeout(10);
    }
  };
  await until(async () => /^Ready: /.test(await status()), "it does not start");
  const controls = await tabAround(page, slug);
  await tabTo(page, ({ id }) => id === begin, `#${begin} of ${slug}`);
  const before = await status();
  await page.keyboard.press("Enter");
  // the end of it, or Stop if that comes first
  const busy = () => page.evaluate(() => !document.getElementById("stop").hidden);
  await until(async () => (await busy()) || (await status()) !== before, "nothing begins");
  let stopped = false;
  if (await busy()) {
    try {
      await tabTo(page, ({ id }) => id === "stop", "Stop");
      await page.keyboard.press("Enter");
      stopped = true;
    } catch (error) {
      if (await busy()) throw error;
    }
  }
  await until(async () => !(await busy()), "it does not stop");
  return `${controls} controls, ${stopped ? "stopped" : "done"}: ${(await status()).slice(0, 60)}`;
}

export async function keyboard(browser, url, slugs) {
  for (const { slug } of demos.filter((demo) => slugs.length === 0 || slugs.includes(demo.slug))) {
    const page = await browser.newPage({ viewport: { width: 1100, height: 800 }, reducedMotion: "reduce" });
    const problems = [];
    page.on("pageerror", (error) => problems.push(String(error)));
    await page.goto(`${url}/gallery/`);
    await page.evaluate(() => sessionStorage.setItem("device", "wasm"));
    // the first Tab offers to skip what all pages have
    await page.keyboard.press("Tab");
    if (!/Skip/.test((await page.evaluate(focused))?.text ?? "")) throw new Failure("keyboard: the first link does not skip the navigation");
    await page.keyboard.press("Enter");
    const link = await tabTo(page, ({ text }) => text.includes(`href="${slug}/"`) || text.includes(`/${slug}/"`), `the card of ${slug}`);
    if (!link.seen) throw new Failure(`keyboard: one does not see that the card of ${slug} has the focus`);
    await Promise.all([page.waitForURL(`**/gallery/${slug}/**`), page.keyboard.press("Enter")]);
    console.log(`demo: keyboard: ${slug}: ${await visit(page, slug)}`);
    if (problems.length > 0) throw new Failure(`keyboard: ${slug}: ${problems.join("\n")}`);
    await page.close();
  }
}
