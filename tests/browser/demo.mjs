// The built demo page in headless Chromium: it opens, and says what it found.
import { join } from "node:path";
import { launch } from "../../scripts/lib/chromium.mjs";
import { Failure, main, root } from "../../scripts/lib/run.mjs";
import { serve } from "../../scripts/serve.mjs";

main(async () => {
  const server = await serve({ "/": join(root, "www/dist") });
  const browser = await launch();
  try {
    const page = await browser.newPage();
    const problems = [];
    page.on("console", (message) => message.type() === "error" && problems.push(message.text()));
    page.on("pageerror", (error) => problems.push(String(error)));
    await page.goto(server.url);
    await page.waitForFunction(() => document.querySelector("#status")?.textContent?.includes("WebGPU is here"), null, { timeout: 30_000 });
    if (problems.length > 0) throw new Failure(`demo: ${problems.join("\n")}`);
    console.log("demo: ok");
  } finally {
    await browser.close();
    await server.close();
  }
});
