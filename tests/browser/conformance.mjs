// The suites that others wrote, on a device of a page: every case in one page, which is opened anew only where it hangs or dies.
// usage: node tests/browser/conformance.mjs onnx CASES.zip | torch  [--device webgpu] [--filter TEXT] [--every N] [--from N]
// The test module (`cargo xtask wasm --tests`) must have been built.
import { dirname, basename, resolve } from "node:path";
import { launch } from "../../scripts/lib/chromium.mjs";
import { Failure, main, root } from "../../scripts/lib/run.mjs";
import { serve } from "../../scripts/serve.mjs";
import { categoryOf, printer } from "../lib/suites.mjs";
import { mounts } from "./suite.mjs";

/** A case that takes longer is broken. */
const LIMIT_MS = 120_000;

/** Runs from a case on; the number of the case that the page did not survive, or null at the end. */
async function visit(url, options, report) {
  const browser = await launch();
  let at = options.from;
  let timer;
  try {
    return await new Promise((settle, fail) => {
      const watch = () => {
        clearTimeout(timer);
        timer = setTimeout(() => settle(at), LIMIT_MS);
      };
      const run = async () => {
        const page = await browser.newPage();
        page.on("crash", () => settle(at));
        page.on("pageerror", (error) => console.error(String(error)));
        await page.exposeFunction("__report", (results) => {
          watch();
          for (const result of results) report(result);
          at += results.length;
        });
        watch();
        await page.goto(`${url}/page/plain.html`);
        await page.evaluate(async (chosen) => {
          const [{ default: start, OnnxSuite, TorchSuite }, { onnxCases, torchSamples }] = await Promise.all([
            import("/conformance/gradloom_web_tests.js"),
            import("/lib/suites.mjs"),
          ]);
          await start();
          const report = (result) => globalThis.__report([result]);
          if (chosen.suite === "torch") return torchSamples(TorchSuite, chosen, report);
          const bytes = new Uint8Array(await (await fetch(chosen.cases)).arrayBuffer());
          return onnxCases(OnnxSuite, bytes, chosen, report);
        }, options);
        settle(null);
      };
      run().catch((error) => (/closed|crash/i.test(error.message) ? settle(at) : fail(error)));
    });
  } finally {
    clearTimeout(timer);
    await browser.close();
  }
}

main(async () => {
  const args = process.argv.slice(2);
  const value = (name, otherwise) => (args.includes(name) ? args.splice(args.indexOf(name), 2)[1] : otherwise);
  const device = value("--device", "webgpu");
  const options = {
    webgpu: device === "webgpu",
    filter: value("--filter", ""),
    every: Number(value("--every", 1)),
    from: Number(value("--from", 0)),
  };
  const [suite, file] = args;
  if (!categoryOf[suite] || (suite === "onnx" && !file)) throw new Failure("browser: name a suite: onnx CASES.zip, or torch");
  const places = mounts(root);
  if (file) {
    places["/cases"] = dirname(resolve(file));
    options.cases = `/cases/${basename(file)}`;
  }
  const server = await serve(places);
  const out = printer(categoryOf[suite]);
  for (let from = options.from; from !== null; ) {
    const died = await visit(server.url, { ...options, suite, from }, out.report);
    if (died !== null) out.report({ name: `case ${died} of the suite`, what: "BROKEN", why: "the page did not survive it" });
    from = died === null ? null : died + 1;
  }
  await server.close();
  if (!out.end()) process.exitCode = 1;
});
