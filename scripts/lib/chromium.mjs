// Starts a headless Chromium with WebGPU enabled, by default on SwiftShader, which works without a GPU.
import { existsSync } from "node:fs";
import { delimiter, join } from "node:path";
import { Failure } from "./run.mjs";

const NAMES = ["chromium", "chromium-browser", "google-chrome"];

/** Flags of every launch; `CHROMIUM_WEBGPU=default` uses the machine's own GPU in place of SwiftShader. */
const FLAGS = [
  "--no-sandbox",
  "--enable-unsafe-webgpu",
  ...(process.env.CHROMIUM_WEBGPU === "default" ? [] : ["--use-webgpu-adapter=swiftshader"]),
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--disable-quic",
  "--no-first-run",
];

/** The browser's path: `CHROMIUM`, or the first known name on the PATH. */
export function chromiumPath() {
  if (process.env.CHROMIUM) return process.env.CHROMIUM;
  const files = process.env.PATH.split(delimiter).flatMap((dir) => NAMES.map((name) => join(dir, name)));
  const found = files.find((file) => existsSync(file));
  if (!found) throw new Failure("Chromium was not found; run `cargo xtask setup`, or name one in CHROMIUM");
  return found;
}

/** How long a browser may take for its first page, which usually takes a fraction of a second. */
const FIRST_PAGE_MS = 60_000;

/** Whether a browser opens a page. */
async function opensPages(browser) {
  let timer;
  const late = new Promise((done) => (timer = setTimeout(done, FIRST_PAGE_MS, false)));
  const opened = browser.newPage().then((page) => page.close()).then(() => true, () => false);
  const answer = await Promise.race([opened, late]);
  clearTimeout(timer);
  return answer;
}

/**
 * Starts Chromium with a temporary profile. `flags` come after the usual ones. Playwright waits without a limit for a
 * browser that has started but opens no page, so such a browser is replaced once.
 */
export async function launch({ flags = [], webgpu = true } = {}) {
  const { chromium } = await import("playwright-core");
  const args = webgpu ? FLAGS : [...FLAGS.filter((flag) => !flag.includes("webgpu")), "--disable-features=WebGPU"];
  for (let attempt = 0; attempt < 2; attempt += 1) {
    const browser = await chromium.launch({ executablePath: chromiumPath(), headless: true, args: [...args, ...flags] });
    if (await opensPages(browser)) return browser;
    console.log("chromium: the browser opens no page");
    // a browser that hangs may not close either
    await Promise.race([browser.close().catch(() => {}), new Promise((done) => setTimeout(done, 5_000))]);
  }
  throw new Failure(`Chromium (${chromiumPath()}) starts, but opens no page in ${FIRST_PAGE_MS / 1000} s`);
}

/** Starts Chromium with a persistent profile in a folder; `extension` is the folder of an extension to load. */
export async function launchProfile(folder, { flags = [], extension } = {}) {
  const { chromium } = await import("playwright-core");
  const more = extension ? [`--disable-extensions-except=${extension}`, `--load-extension=${extension}`] : [];
  return chromium.launchPersistentContext(folder, {
    executablePath: chromiumPath(),
    headless: true,
    args: [...FLAGS, ...flags, ...more],
    ignoreDefaultArgs: extension ? ["--disable-extensions"] : [],
  });
}
