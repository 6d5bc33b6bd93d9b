// `npm run test:export`: exports all models of the tests that are one plan, and runs what came of them, C and modules in node.
import { main, run } from "./lib/run.mjs";

main(() => {
  process.env.GRADLOOM_EXPORT = "all";
  run("cargo", ["test", "-p", "gradloom-tests", "--test", "it", "export::"]);
});
