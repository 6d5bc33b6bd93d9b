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

/** Starts Chromium with a temporary profile. `flags` come after the usual ones. */
export async function launch({ flags = [], webgpu = true } = {}) {
  const { chromium } = await import("playwright-core");
  const args = webgpu ? FLAGS : [...FLAGS.filter((flag) => !flag.includes("webgpu")), "--disable-features=WebGPU"];
  return chromium.launch({ executablePath: chromiumPath(), headless: true, args: [...args, ...flags] });
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
