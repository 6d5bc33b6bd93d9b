// Starts a headless Firefox, driven over WebDriver BiDi. It has no WebGPU on Linux, so it runs the WebAssembly suites.
import { existsSync } from "node:fs";
import { delimiter, join } from "node:path";
import { pathToFileURL } from "node:url";
import { Failure } from "./run.mjs";
import { apt } from "./system.mjs";
import { npmTools } from "./tools.mjs";

const findFirefox = () => {
  const folders = process.env.PATH.split(delimiter);
  return folders.flatMap((folder) => ["firefox-esr", "firefox"].map((name) => join(folder, name))).find((file) => existsSync(file));
};

/**
 * The browser's path: `FIREFOX`, or the first known name on the PATH; if there is none, Debian's package is installed.
 */
function firefoxPath() {
  if (process.env.FIREFOX) return process.env.FIREFOX;
  if (!findFirefox()) {
    console.log("firefox: not found, installing firefox-esr with apt");
    apt(["firefox-esr"]);
  }
  const found = findFirefox();
  if (!found) throw new Failure("Firefox was not found; name one in FIREFOX");
  return found;
}

/** Starts Firefox with a temporary profile. */
export async function launchFirefox() {
  const module = join(npmTools(), "node_modules/puppeteer-core/lib/puppeteer/puppeteer-core.js");
  const { default: puppeteer } = await import(pathToFileURL(module));
  return puppeteer.launch({ browser: "firefox", executablePath: firefoxPath(), headless: true });
}
