// The numeric contract in a page: WebGPU (SwiftShader), and the WASM device with the relaxed SIMD that Chromium has.
// usage: node tests/browser/numerics.mjs
import assert from "node:assert/strict";
import { launch } from "../../scripts/lib/chromium.mjs";
import { main, root } from "../../scripts/lib/run.mjs";
import { serve } from "../../scripts/serve.mjs";
import { check } from "../lib/numerics.mjs";
import { mounts } from "./suite.mjs";

/** A page that takes longer hangs. */
const LIMIT_MS = 300_000;

/** Which table is wanted: a machine's own GPU may round otherwise within what is listed. */
const COLUMNS = {
  // without fused products and sums in the processor, relaxed SIMD gives what is given without it
  wasm: ["wasm relaxed", "wasm"],
  webgpu: process.env.CHROMIUM_WEBGPU === "default" ? [] : ["webgpu"],
};

main(async () => {
  const server = await serve(mounts(root));
  const browser = await launch();
  let timer;
  const late = new Promise((_, fail) => {
    timer = setTimeout(() => fail(new Error(`the page did not answer for ${LIMIT_MS} ms`)), LIMIT_MS);
  });
  try {
    const page = await browser.newPage();
    page.on("pageerror", (error) => console.error(String(error)));
    await page.goto(`${server.url}/page/plain.html`);
    for (const [device, columns] of Object.entries(COLUMNS)) {
      const start = performance.now();
      const measure = page.evaluate(async (webgpu) => {
        const { default: start, numerics } = await import("/conformance/gradloom_web_tests.js");
        await start();
        return numerics(webgpu);
      }, device === "webgpu");
      const rows = check(await Promise.race([measure, late]), columns);
      assert.ok(rows > 400, `${rows} rows`);
      console.log(`numerics: ${rows} rows as listed on ${device} (${(performance.now() - start).toFixed(0)} ms)`);
    }
  } finally {
    clearTimeout(timer);
    await browser.close();
    await server.close();
  }
});
