// `npm run test:export`: exports all test models that consist of one plan, and runs the results: C, modules in node,
// and some of the modules in Chromium on both devices, beside the package, which must be built (`npm test -- --only
// wasm,package`).
import { runSuite } from "../tests/browser/suite.mjs";
import { unpackPackage } from "../tests/browser/run.mjs";
import { Failure, main } from "./lib/run.mjs";
import { runTests } from "./lib/tests.mjs";

main(async () => {
  process.env.GRADLOOM_EXPORT = "all";
  runTests(["export::"]);
  const onRow = ({ name, error, ms }) => console.log(`  ${error ? `FAIL ${error}` : "ok  "} ${name} (${ms.toFixed(0)} ms)`);
  const rows = await runSuite({ path: "export/export.mjs", config: "default", gradloom: unpackPackage(), onRow });
  if (rows.some(({ error }) => error)) throw new Failure("export: a module fails in Chromium");
});
